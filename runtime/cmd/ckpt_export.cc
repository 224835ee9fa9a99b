#include "cmd/ckpt_export.h"

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "exec/model_setup.h"
#include "io/tokenizer_sentencepiece.h"
#include "model/hf_export.h"

namespace mso {

namespace {

const std::string& record(const StoredState& state, const std::string& name) {
  auto it = state.records.find(name);
  if (it == state.records.end())
    throw Error("the snapshot has no record of this name", name, "it was written by another program", ExitCode::kNoValidState);
  return it->second;
}

// Nearest bfloat16, ties to even; NaN stays NaN.
uint16_t to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Level 0 leaves its text out.
std::shared_ptr<const Tokenizer> exported_tokenizer(const StoredState& state, const Config& config) {
  if (!state.records.contains("tokenizer")) return make_tokenizer(config);
  return parse_tokenizer(record(state, "tokenizer"), record(state, "tokenizer_config"), "the snapshot's tokenizer");
}

// The record of model_files(). Level 0 and earlier versions have none: then what the configuration names holds today.
nlohmann::json exported_files(const StoredState& state, const Config& config) {
  if (state.records.contains("model_files")) return parse_shallow_json(record(state, "model_files"));
  try {
    const ModelInputs inputs = check_model_inputs(config);
    return nlohmann::json::parse(model_files(config, *inputs.tokenizer, inputs.samples.conversations.get()));
  } catch (const Error& error) {
    log_warn("exported without chat templates, which this snapshot does not hold: {}", error.what());
    return nlohmann::json::object();
  }
}

// tokenizer_config.json with the tokens that templates write, also where the model's folder had them in another file.
std::string with_special_tokens(const Tokenizer& tokenizer) {
  auto config = tokenizer.config_text().empty() ? nlohmann::ordered_json::object() : parse_shallow_json<nlohmann::ordered_json>(tokenizer.config_text());
  for (const auto& [name, id] : {std::pair("bos_token", tokenizer.bos_id()), {"eos_token", tokenizer.eos_id()}})
    if (const auto token = id ? tokenizer.token(*id) : std::nullopt; token && (!config.contains(name) || config[name].is_null()))
      config[name] = *token;
  return config.dump();
}

}  // namespace

// What transformers' class does not know.
static std::string beyond_llava(const LlavaConfig& config) {
  std::string note;
  if (config.audio)
    note += "  It reads text and images. The audio encoder and projector are in the folder as tensors it does not know "
            "(audio_tower.*, audio_projector.*, named as unexpected) and are read by model.path.\n";
  if (config.video)
    note += "  It takes no video; LlavaNextVideoPooler with spatial_pool_stride " + std::to_string(config.video->pool) +
            " between vision tower and projector gives the same features.\n";
  return note;
}

std::string export_state(const StoredState& state, const std::filesystem::path& folder, const std::string& type) {
  if (type != "float32" && type != "bfloat16")
    throw Error("unknown --dtype", type, "use float32 or bfloat16", ExitCode::kBadUsage);
  const Config config = config_from_json(nlohmann::json::parse(record(state, "config")), "the snapshot's configuration");
  const std::shared_ptr<const Tokenizer> tokenizer = exported_tokenizer(state, config);
  ModelOptions options = model_options(config, *tokenizer);
  options.config_json = record(state, "model_config");  // as it was trained, whatever lies in model.path today
  const ModelOutline outline = outline_model(options);
  std::vector<float> trainable(outline.layouts.trainable.size), frozen(outline.layouts.frozen.size);
  fill_parameters(options, outline, trainable.data(), frozen.data());

  std::map<std::string, const StoredTensor*> stored;
  for (const StoredTensor& tensor : state.tensors)
    if (tensor.buffer == "master") stored[tensor.name] = &tensor;
  for (const FlatTensor& tensor : outline.layouts.trainable.tensors) {
    auto it = stored.find(tensor.name);
    if (it == stored.end() || !it->second->whole() || it->second->shape != tensor.shape)
      throw Error("the state does not hold this parameter as a whole", tensor.name,
                  "give a state's or a run's folder instead of one rank's file", ExitCode::kNoValidState);
    const std::vector<double> values = read_tensor(state, *it->second);
    std::copy(values.begin(), values.end(), trainable.begin() + static_cast<std::ptrdiff_t>(tensor.offset));
  }

  HuggingFaceExport out;
  out.config_json = exported_config(outline.config, record(state, "model_config"));
  if (is_sentencepiece_model(tokenizer->source_text()))
    throw Error("cannot export a model with a SentencePiece tokenizer", "the snapshot's tokenizer",
                "train with the tokenizer.json that transformers makes of it: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
                ExitCode::kBadUsage);
  out.tokenizer_json = tokenizer->source_text();
  out.tokenizer_config_json = with_special_tokens(*tokenizer);
  const nlohmann::json files = exported_files(state, config);
  if (auto found = files.find("chat_templates"); found != files.end())
    out.chat_templates = found->get<std::map<std::string, std::string>>();
  if (auto found = files.find("generation_config"); found != files.end()) out.generation_json = found->dump();
  out.preprocessor_json = to_json(image_processor_config(config, outline.config));
  std::vector<std::vector<uint16_t>> rounded;
  for (auto [layout, values] :
       {std::pair(&outline.layouts.trainable, &trainable), std::pair(&outline.layouts.frozen, &frozen)})
    for (const FlatTensor& tensor : layout->tensors) {
      const float* data = values->data() + tensor.offset;
      if (type == "float32") {
        out.tensors.push_back({tensor.name, DType::kF32, tensor.shape, data});
        continue;
      }
      std::vector<uint16_t>& target = rounded.emplace_back(tensor.count);
      for (size_t i = 0; i < tensor.count; ++i) target[i] = to_bf16(data[i]);
      out.tensors.push_back({tensor.name, DType::kBF16, tensor.shape, target.data()});
    }
  export_hugging_face(folder, out);
  return beyond_llava(outline.config);
}

}  // namespace mso
