#include "base/config_schema.h"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace mso {

using nlohmann::json;

namespace {

template <typename T>
constexpr KeyType type_of() {
  if constexpr (std::is_same_v<T, bool>)
    return KeyType::kBool;
  else if constexpr (std::is_same_v<T, int64_t>)
    return KeyType::kInteger;
  else if constexpr (std::is_same_v<T, std::optional<int64_t>>)
    return KeyType::kOptionalInteger;
  else if constexpr (std::is_same_v<T, double>)
    return KeyType::kNumber;
  else if constexpr (std::is_same_v<T, std::string>)
    return KeyType::kString;
  else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
    return KeyType::kIntegerList;
  else if constexpr (std::is_same_v<T, std::vector<std::string>>)
    return KeyType::kStringList;
  else if constexpr (std::is_same_v<T, std::vector<ParameterGroup>>)
    return KeyType::kGroups;
  else
    return KeyType::kMap;
}

json groups_to_json(const std::vector<ParameterGroup>& groups) {
  json list = json::array();
  for (const ParameterGroup& group : groups) {
    json entry = {{"match", group.match}, {"learning_rate_scale", group.learning_rate_scale}};
    if (group.weight_decay) entry["weight_decay"] = *group.weight_decay;
    list.push_back(std::move(entry));
  }
  return list;
}

std::vector<ParameterGroup> groups_from_json(const json& list) {
  std::vector<ParameterGroup> groups;
  for (const json& entry : list) {
    ParameterGroup group;
    group.match = entry.at("match").get<std::string>();
    if (entry.contains("learning_rate_scale")) group.learning_rate_scale = entry["learning_rate_scale"];
    if (entry.contains("weight_decay")) group.weight_decay = entry["weight_decay"].get<double>();
    groups.push_back(std::move(group));
  }
  return groups;
}

template <typename T>
json value_to_json(const T& value) {
  if constexpr (std::is_same_v<T, std::optional<int64_t>>)
    return value ? json(*value) : json();
  else if constexpr (std::is_same_v<T, std::vector<ParameterGroup>>)
    return groups_to_json(value);
  else
    return json(value);
}

template <typename T>
void value_from_json(T& value, const json& from) {
  if constexpr (std::is_same_v<T, std::optional<int64_t>>) {
    if (from.is_null())
      value.reset();
    else
      value = from.get<int64_t>();
  } else if constexpr (std::is_same_v<T, std::vector<ParameterGroup>>) {
    value = groups_from_json(from);
  } else if constexpr (std::is_same_v<T, json>) {
    value = from;
  } else {
    value = from.get<T>();
  }
}

// Builds one row; the type follows from the member the accessor names.
class Row {
 public:
  template <typename Field>
  Row(std::string name, Field field, json default_value, std::string help) {
    using T = std::remove_cvref_t<decltype(field(std::declval<Config&>()))>;
    key_.name = std::move(name);
    key_.type = type_of<T>();
    key_.default_value = std::move(default_value);
    key_.help = std::move(help);
    key_.get = [field](const Config& config) { return value_to_json(field(config)); };
    key_.set = [field](Config& config, const json& value) { value_from_json(field(config), value); };
  }
  Row& at_least(double min) { return key_.min = min, *this; }
  Row& more_than(double min) { return key_.min = min, key_.min_excluded = true, *this; }
  Row& at_most(double max) { return key_.max = max, *this; }
  Row& one_of(std::vector<std::string> choices) { return key_.choices = std::move(choices), *this; }
  Row& not_available(std::vector<std::string> values) { return key_.unavailable = std::move(values), *this; }
  Row& bytes() { return key_.type = KeyType::kBytes, *this; }
  Row& not_in_force() { return key_.in_force = false, *this; }
  Row& safe() { return key_.safe = true, *this; }
  operator ConfigKey() const { return key_; }

 private:
  ConfigKey key_;
};

// clang-format off
#define FIELD(path) [](auto& c) -> auto& { return c.path; }

std::vector<ConfigKey> make_schema() {
  constexpr double kMaxCount = 9007199254740992.0;  // 2^53: every integer below is exact as a double
  const json none;                                  // an optional integer: "auto"
  std::vector<ConfigKey> keys = {
      // ---- ero ----
      Row("ero.gpu_slice_policy", FIELD(ero.gpu_slice_policy), "dynamic", "How GPU memory slices follow the load.")
          .one_of({"dynamic", "static"}).not_in_force().safe(),
      Row("ero.cpu_reserve_cores", FIELD(ero.cpu_reserve_cores), json{4, 8},
          "Most decoder threads of a node for [image, video]; scaled down on a smaller machine.")
          .at_least(1).at_most(4096).safe(),
      Row("ero.nvme_reserve_channels", FIELD(ero.nvme_reserve_channels), 2,
          "NVMe queues kept for training data.").at_least(0).at_most(1024).not_in_force().safe(),
      Row("ero.gpu_slices", FIELD(ero.gpu_slices), "",
          "Memory of each GPU by part of the model, for srun --mso-config; such as vision:24G,llm:32G,shared:24G.").safe(),
      Row("ero.nvme_lanes", FIELD(ero.nvme_lanes), "",
          "NVMe drives and PCIe lanes of each for training data, for srun --mso-config; such as image:1x4,video:2x8.").safe(),
      Row("ero.check", FIELD(ero.check), "staging",
          "Where a node falls short of what is asked: refuse (prod), warn (staging), say nothing (off); for srun --mso-config.")
          .one_of({"prod", "staging", "off"}).safe(),
      Row("ero.needs", FIELD(ero.needs), "",
          "What a node's hardware must have, where not the site's or built-in needs; such as pcie-lanes:64,nvlink:off,infiniband:100.").safe(),
      // ---- mdp ----
      Row("mdp.prefetch_depth.text", FIELD(mdp.prefetch_depth.text), 16,
          "Samples of text a rank reads ahead, at least two batches of its own; up to 8 times as many while it has to wait.")
          .at_least(1).at_most(65536).safe(),
      Row("mdp.prefetch_depth.image", FIELD(mdp.prefetch_depth.image), 8, "The same for samples with pictures.")
          .at_least(1).at_most(65536).safe(),
      Row("mdp.prefetch_depth.video", FIELD(mdp.prefetch_depth.video), 4, "The same for samples with video.")
          .at_least(1).at_most(65536).safe(),
      Row("mdp.prefetch_depth.audio", FIELD(mdp.prefetch_depth.audio), 8, "The same for samples with sound and no picture.")
          .at_least(1).at_most(65536).safe(),
      Row("mdp.batch_recipe.text", FIELD(mdp.batch_recipe.text), 0,
          "With the keys beside it: in what proportion a batch holds text, image, video and audio; all 0: as they come.")
          .at_least(0).at_most(65536),
      Row("mdp.batch_recipe.image", FIELD(mdp.batch_recipe.image), 0, "Proportion of samples with pictures in a batch.")
          .at_least(0).at_most(65536),
      Row("mdp.batch_recipe.video", FIELD(mdp.batch_recipe.video), 0, "Proportion of samples with video in a batch.")
          .at_least(0).at_most(65536),
      Row("mdp.batch_recipe.audio", FIELD(mdp.batch_recipe.audio), 0, "Proportion of samples with sound in a batch.")
          .at_least(0).at_most(65536),
      Row("mdp.micro_batch.text.samples", FIELD(mdp.micro_batch.text.samples), 512,
          "Samples of text alone in a micro-batch at most; data.micro_batch_tokens limits it too.")
          .at_least(1).at_most(65536).safe(),
      Row("mdp.micro_batch.text.memory", FIELD(mdp.micro_batch.text.memory), 0.30,
          "Share of mdp.batch_memory that is kept for text; what it does not use is lent, 0: it only borrows.")
          .at_least(0).at_most(1).safe(),
      Row("mdp.micro_batch.text.fragmentation", FIELD(mdp.micro_batch.text.fragmentation), 0.08,
          "Blocks of batch memory are moved together between steps when more of what is free is too split up for text.")
          .at_least(0).at_most(1).safe(),
      Row("mdp.micro_batch.image.samples", FIELD(mdp.micro_batch.image.samples), 8,
          "The same for samples with pictures.")
          .at_least(1).at_most(65536).safe(),
      Row("mdp.micro_batch.image.memory", FIELD(mdp.micro_batch.image.memory), 0.45,
          "The same for pictures.")
          .at_least(0).at_most(1).safe(),
      Row("mdp.micro_batch.image.fragmentation", FIELD(mdp.micro_batch.image.fragmentation), 0.12,
          "The same for pictures.")
          .at_least(0).at_most(1).safe(),
      Row("mdp.micro_batch.video.samples", FIELD(mdp.micro_batch.video.samples), 4,
          "The same for samples with video.")
          .at_least(1).at_most(65536).safe(),
      Row("mdp.micro_batch.video.memory", FIELD(mdp.micro_batch.video.memory), 0.0,
          "The same for video.")
          .at_least(0).at_most(1).safe(),
      Row("mdp.micro_batch.video.fragmentation", FIELD(mdp.micro_batch.video.fragmentation), 0.15,
          "The same for video.")
          .at_least(0).at_most(1).safe(),
      Row("mdp.micro_batch.audio.samples", FIELD(mdp.micro_batch.audio.samples), 32,
          "The same for samples with sound.")
          .at_least(1).at_most(65536).safe(),
      Row("mdp.micro_batch.audio.memory", FIELD(mdp.micro_batch.audio.memory), 0.25,
          "The same for sound.")
          .at_least(0).at_most(1).safe(),
      Row("mdp.micro_batch.audio.fragmentation", FIELD(mdp.micro_batch.audio.fragmentation), 0.15,
          "The same for sound.")
          .at_least(0).at_most(1).safe(),
      Row("mdp.batch_memory", FIELD(mdp.batch_memory), 1073741824,
          "Memory of a rank for decoded samples that wait; batches made of them may take as much again.")
          .bytes().at_least(16777216).at_most(kMaxCount).safe(),
      Row("mdp.defer_after_ms", FIELD(mdp.defer_after_ms), 2000,
          "A sample so much later than its batch gives its slot to the next of its modality and comes in a later batch "
          "(in the ledger); 0: batches wait.")
          .at_least(0).at_most(3600e3).safe(),
      Row("mdp.skip_sample_threshold", FIELD(mdp.skip_sample_threshold), 0.92,
          "Least cosine similarity of the sample that replaces a broken one; where none reaches it, the sample is skipped.")
          .at_least(0).at_most(1).safe(),
      Row("mdp.healing.replace", FIELD(mdp.healing.replace), true,
          "Replace a broken sample by its nearest healthy neighbour (mso data index --embed); false: always skip it.")
          .safe(),
      Row("mdp.healing.category", FIELD(mdp.healing.category), "auto",
          "Category of a sample: a JSON pointer into its .json such as /category; auto: the first folder of its key, else of "
          "/category."),
      Row("mdp.healing.thresholds", FIELD(mdp.healing.thresholds), json::object(),
          "By category, in place of mdp.skip_sample_threshold; such as {sports: 0.85, medical: 0.95}.")
          .safe(),
      Row("mdp.healing.cap", FIELD(mdp.healing.cap), 0.01,
          "Stop when more than this share of a category had to be replaced or skipped; 1: never.")
          .at_least(0).at_most(1).safe(),
      Row("mdp.healing.cap_minimum", FIELD(mdp.healing.cap_minimum), 3,
          "So many lost samples of a category never stop a run, however small the category is.")
          .at_least(0).at_most(1e9).safe(),
      Row("mdp.nvme", FIELD(mdp.nvme), json::object(),
          "NVMe sources: name to mount point or block device, for nvme://NAME/FOLDER paths; checked to be NVMe.").safe(),
      Row("mdp.sources", FIELD(mdp.sources), json::object(),
          "Folders that hold the same shards as data.path: text, image, video, audio or any, to one or a list, first one "
          "first; data.path is the last resort.").safe(),
      Row("mdp.latency_limit_ms", FIELD(mdp.latency_limit_ms), 100,
          "A source whose reads take longer (99th percentile of five seconds) is slow: cache first, read ahead.")
          .at_least(1).at_most(600e3).safe(),
      Row("mdp.read_deadline_ms", FIELD(mdp.read_deadline_ms), 10000,
          "A read that takes longer is given up and tried elsewhere, else the sample is left out.")
          .at_least(10).at_most(600e3).safe(),
      Row("mdp.read_ahead_bytes", FIELD(mdp.read_ahead_bytes), 268435456,
          "Memory of a rank for data read ahead while a source is slow and there is no cache.")
          .bytes().at_least(0).at_most(kMaxCount).safe(),
      Row("mdp.cache.path", FIELD(mdp.cache.path), "",
          "Folder on a local disk in which shards are cached, shared by the ranks of a node; empty: no cache.").safe(),
      Row("mdp.cache.max_bytes", FIELD(mdp.cache.max_bytes), 68719476736,
          "Size of the cache at most, of all ranks of a node together.").bytes().at_least(4194304).at_most(kMaxCount).safe(),
      Row("mdp.cache.fill", FIELD(mdp.cache.fill), "always",
          "When the cache is filled ahead: always, at a low rate while sources are healthy; or only while one is slow.")
          .one_of({"always", "slow"}).safe(),
      // ---- hpgc ----
      Row("hpgc.precision_routing.vit_encoder", FIELD(hpgc.precision_routing.vit_encoder), "fp16",
          "Precision of vision encoders; read by train.precision: routed.")
          .one_of({"fp16", "bf16", "fp32", "fp8"}).not_in_force(),
      Row("hpgc.precision_routing.llm_decoder", FIELD(hpgc.precision_routing.llm_decoder), "bf16",
          "Precision of language decoders; read by train.precision: routed.")
          .one_of({"fp16", "bf16", "fp32", "fp8"}).not_in_force(),
      Row("hpgc.precision_routing.cross_attention", FIELD(hpgc.precision_routing.cross_attention), "fp32",
          "Precision of cross-attention; read by train.precision: routed.")
          .one_of({"fp16", "bf16", "fp32", "fp8"}).not_in_force(),
      Row("hpgc.grad_clip_ratio", FIELD(hpgc.grad_clip_ratio), 0.01,
          "Largest gradient-to-weight norm ratio of a unit; train.grad_clip_norm clips until this is in force.")
          .at_least(0).not_in_force(),
      // ---- ecm ----
      Row("ecm.snapshot_levels.level0_interval_ms", FIELD(ecm.snapshot_levels.level0_interval_ms), 500,
          "Milliseconds between snapshots to the RAM disk; 0 switches the level off.")
          .at_least(0).at_most(86400e3).safe(),
      Row("ecm.snapshot_levels.level1_interval_s", FIELD(ecm.snapshot_levels.level1_interval_s), 30,
          "Seconds between snapshots of weights to the shared file system; 0 switches the level off.")
          .at_least(0).at_most(7 * 86400).safe(),
      Row("ecm.snapshot_levels.level2_interval_m", FIELD(ecm.snapshot_levels.level2_interval_m), 5,
          "Minutes between full snapshots to the shared file system; 0 leaves those on a signal and at the end.")
          .at_least(0).at_most(30 * 1440).safe(),
      Row("ecm.level0_path", FIELD(ecm.level0_path), "auto",
          "RAM disk of level 0; auto: the job's snapshot directory ($MSO_SNAPSHOT_DIR), else /dev/shm.").safe(),
      Row("ecm.level0_size", FIELD(ecm.level0_size), "auto",
          "Size of the snapshot directory on each node, for srun --mso-config; auto, off, or such as 4G.").safe(),
      Row("ecm.level0_partner", FIELD(ecm.level0_partner), "auto",
          "Copy of level 0 on another node; auto: where there is one.").one_of({"auto", "off"}).safe(),
      Row("ecm.level1_optimizer", FIELD(ecm.level1_optimizer), true,
          "Keep the optimizer in level 1 too; false keeps weights only, and resuming from it is not exact.").safe(),
      Row("ecm.keep", FIELD(ecm.keep), 2, "Snapshots kept of level 1 and of level 2; level 0 keeps two.").at_least(1).at_most(1000).safe(),
      Row("ecm.max_write_bandwidth", FIELD(ecm.max_write_bandwidth), 0,
          "Bytes per second a rank writes to the shared file system at most; 0: no limit.")
          .bytes().at_least(0).at_most(kMaxCount).safe(),
      Row("ecm.min_shared_interval_s", FIELD(ecm.min_shared_interval_s), 0.0,
          "Levels 1 and 2 are never taken more often than this many seconds (a site's limit).")
          .at_least(0).at_most(30 * 86400).safe(),
      // ---- model ----
      Row("model.family", FIELD(model.family), "llava", "Model family.").one_of({"llava"}),
      Row("model.path", FIELD(model.path), "",
          "Hugging Face folder with config.json, weights and tokenizer; empty: from scratch."),
      Row("model.vision", FIELD(model.vision), json::object(),
          "From scratch: the vision_config, with Hugging Face names."),
      Row("model.text", FIELD(model.text), json::object(),
          "From scratch: the text_config, with Hugging Face names."),
      Row("model.audio", FIELD(model.audio), json::object(),
          "From scratch: the audio_config (Qwen2AudioEncoderConfig), with Hugging Face names; empty: no sound."),
      Row("model.video.frames", FIELD(model.video.frames), none,
          "Most frames of a video; auto: as config.json says, else the model takes no video unless "
          "model.video_token_index is set (then 8).").at_least(1).at_most(65536),
      Row("model.video.pool", FIELD(model.video.pool), none,
          "Patches of a video frame averaged into one, on each side; auto: as config.json says, else 2.")
          .at_least(1).at_most(65536),
      Row("model.projector_hidden_act", FIELD(model.projector_hidden_act), "gelu",
          "From scratch: activation of the projector."),
      Row("model.multimodal_projector_bias", FIELD(model.multimodal_projector_bias), true,
          "From scratch: biases in the projector."),
      Row("model.image_token_index", FIELD(model.image_token_index), none,
          "Token id that stands for an image position; auto: as config.json or the tokenizer says.")
          .at_least(0).at_most(2147483647),
      Row("model.video_token_index", FIELD(model.video_token_index), none,
          "The same of a video position, for models with video.").at_least(0).at_most(2147483647),
      Row("model.audio_token_index", FIELD(model.audio_token_index), none,
          "The same of a sound's position, for models with an audio encoder.").at_least(0).at_most(2147483647),
      Row("model.vision_feature_layer", FIELD(model.vision_feature_layer), none,
          "Vision layer whose output is used, negative from the end; auto: as config.json says, else -2.")
          .at_least(-1000).at_most(1000),
      Row("model.vision_feature_select_strategy", FIELD(model.vision_feature_select_strategy), "auto",
          "default drops the class token's feature, full keeps it; auto: as config.json says, else default.")
          .one_of({"auto", "default", "full"}),
      Row("model.tokenizer", FIELD(model.tokenizer), "auto",
          "A tokenizer.json or its folder, or bytes; auto: the one in model.path, else bytes."),
      Row("model.init_std", FIELD(model.init_std), 0.02, "From scratch: standard deviation of the first weights.")
          .at_least(0).at_most(10),
      Row("model.activation_recomputation", FIELD(model.activation_recomputation), false,
          "Compute activations again in the backward pass to save memory.").safe(),
      Row("model.freeze", FIELD(model.freeze), json::array(),
          "Stages (vision_encoder, projector, audio_encoder, audio_projector, llm_decoder) or patterns of parameter names "
          "that are not trained."),
      // ---- data ----
      Row("data.path", FIELD(data.path), json::array(),
          "Folders with shards, or tar files, to train on (see mso data pack). May move: a resume checks that the "
          "samples are the same.").safe(),
      Row("data.weights", FIELD(data.weights), json::array(),
          "How often samples of each entry of data.path come, as whole numbers such as [7, 3]; empty: all samples equally often.")
          .at_least(1).at_most(1e6),
      Row("data.eval_path", FIELD(data.eval_path), json::array(), "Folders or tar files to evaluate on.").safe(),
      Row("data.eval_shards", FIELD(data.eval_shards), 0,
          "How many of the last shards of data.path are held out for evaluation.").at_least(0).at_most(1e6),
      Row("data.max_length", FIELD(data.max_length), 2048,
          "Longest sample in positions, image positions included.").at_least(2).at_most(1 << 24),
      Row("data.over_length", FIELD(data.over_length), "cut",
          "What becomes of a longer one. cut: its text ends there, images are never cut; drop: it is left out (too_long).")
          .one_of({"cut", "drop"}),
      Row("data.template", FIELD(data.prompt_template), "<image>{caption}",
          "Text of a captioned sample; <image> and {caption} are replaced."),
      Row("data.caption", FIELD(data.caption), "txt",
          "Where the caption is: txt, or a JSON pointer into the sample's .json such as /captions/en. With txt, samples "
          "without a .txt whose .json has conversations or messages are conversations."),
      Row("data.chat_template", FIELD(data.chat_template), "auto",
          "How conversations are written: llava_v1, chatml, plain, a Jinja file or a folder with one; auto: the one of "
          "model.path or of the tokenizer."),
      Row("data.micro_batch_tokens", FIELD(data.micro_batch_tokens), 4096,
          "Packed positions of one forward pass at most.").at_least(2).at_most(1 << 26).safe(),
      Row("data.decoder_threads", FIELD(data.decoder_threads), none,
          "Decoder threads of a rank; auto: its share of ero.cpu_reserve_cores.").at_least(1).at_most(4096).safe(),
      Row("data.exact_jpeg", FIELD(data.exact_jpeg), false,
          "Decode JPEG at full scale even where the target is much smaller."),
      Row("data.video_decoder", FIELD(data.video_decoder), "auto",
          "What decodes video. auto: a GPU's decoder (NVDEC) for large clips where there is a GPU, else the CPU; cpu; nvdec: the "
          "GPU whatever the size, refused where there is none.")
          .one_of({"auto", "cpu", "nvdec"}).safe(),
      Row("data.image_size", FIELD(data.image_size), none, "Side of the model's images in pixels; auto: the model's.")
          .at_least(1).at_most(65536),
      Row("data.max_bad_samples_ratio", FIELD(data.max_bad_samples_ratio), 0.05,
          "Stop when more than this share of the samples was bad.").at_least(0).at_most(1).safe(),
      Row("data.known_bad", FIELD(data.known_bad), "",
          "List of bad samples (mso data verify --list) that are left out without being read; empty: none.")
          .safe(),
      Row("data.alignment.video.length", FIELD(data.alignment.video.length), 0,
          "Length that the frames of a clip are brought to; 0: as they are.").at_least(0).at_most(1 << 20),
      Row("data.alignment.video.rule", FIELD(data.alignment.video.rule), "auto",
          "How: pad, interpolate (bilinear, to twice the length at most) or average_pool; auto: interpolate.")
          .one_of({"auto", "pad", "interpolate", "average_pool"}),
      Row("data.alignment.video.value", FIELD(data.alignment.video.value), 0.0, "What is put behind to fill up.")
          .at_least(-1e6).at_most(1e6),
      Row("data.alignment.audio.length", FIELD(data.alignment.audio.length), 0,
          "Length that the mel features of a sound, in frames of 10 ms are brought to; the audio encoder takes one length only; 0: as they are.").at_least(0).at_most(1 << 20),
      Row("data.alignment.audio.rule", FIELD(data.alignment.audio.rule), "auto",
          "How: pad, interpolate (bilinear, to twice the length at most) or average_pool; auto: pad.")
          .one_of({"auto", "pad", "interpolate", "average_pool"}),
      Row("data.alignment.audio.value", FIELD(data.alignment.audio.value), 0.0, "What is put behind to fill up.")
          .at_least(-1e6).at_most(1e6),
      Row("data.alignment.signal.length", FIELD(data.alignment.signal.length), 0,
          "Length that the samples of a signal such as an EEG are brought to; 0: as they are.").at_least(0).at_most(1 << 20),
      Row("data.alignment.signal.rule", FIELD(data.alignment.signal.rule), "auto",
          "How: pad, interpolate (bilinear, to twice the length at most) or average_pool; auto: average_pool.")
          .one_of({"auto", "pad", "interpolate", "average_pool"}),
      Row("data.alignment.signal.value", FIELD(data.alignment.signal.value), 0.0, "What is put behind to fill up.")
          .at_least(-1e6).at_most(1e6),
      // ---- train ----
      Row("train.steps", FIELD(train.steps), none, "Optimizer steps; auto: from train.epochs.")
          .at_least(1).at_most(kMaxCount).safe(),
      Row("train.epochs", FIELD(train.epochs), 1.0, "Passes over the data, where train.steps is auto.")
          .more_than(0).at_most(1e6).safe(),
      Row("train.global_batch_samples", FIELD(train.global_batch_samples), 128,
          "Samples of a step, over all ranks.").at_least(1).at_most(1 << 24),
      Row("train.seed", FIELD(train.seed), 42, "Seed of sample order and first weights.")
          .at_least(0).at_most(kMaxCount),
      Row("train.precision", FIELD(train.precision), "fp32",
          "Compute precision; master weights and gradients are fp32 always.")
          .one_of({"fp32", "bf16", "routed"}).not_available({"routed"}),
      Row("train.learning_rate", FIELD(train.learning_rate), 1e-4, "Highest learning rate.").at_least(0).at_most(100),
      Row("train.min_learning_rate", FIELD(train.min_learning_rate), 0.0, "Learning rate at the schedule's end.")
          .at_least(0).at_most(100),
      Row("train.warmup_steps", FIELD(train.warmup_steps), 0, "Steps over which the learning rate rises linearly.")
          .at_least(0).at_most(kMaxCount),
      Row("train.schedule", FIELD(train.schedule), "cosine", "How the learning rate falls after the warm-up.")
          .one_of({"cosine", "linear", "constant"}),
      Row("train.weight_decay", FIELD(train.weight_decay), 0.1,
          "Decoupled weight decay; norms and biases have none unless a group says so.").at_least(0).at_most(100),
      Row("train.beta1", FIELD(train.beta1), 0.9, "AdamW: decay of the first moment.").at_least(0).at_most(0.999999),
      Row("train.beta2", FIELD(train.beta2), 0.95, "AdamW: decay of the second moment.").at_least(0).at_most(0.9999999),
      Row("train.epsilon", FIELD(train.epsilon), 1e-8, "AdamW: added to the root of the second moment.")
          .more_than(0).at_most(1),
      Row("train.grad_clip_norm", FIELD(train.grad_clip_norm), 1.0,
          "Global gradient norm above which gradients are scaled down; 0: off.").at_least(0),
      Row("train.groups", FIELD(train.groups), json::array(),
          "List of {match: stage or pattern, learning_rate_scale: x, weight_decay: x}; the last match counts."),
      Row("train.eval_interval", FIELD(train.eval_interval), 0, "Steps between evaluations; 0: at the end only.")
          .at_least(0).at_most(kMaxCount).safe(),
      Row("train.eval_samples", FIELD(train.eval_samples), 256, "Samples of one evaluation at most; 0: all.")
          .at_least(0).at_most(kMaxCount).safe(),
      Row("train.log_interval_s", FIELD(train.log_interval_s), 5.0,
          "Seconds between progress lines where there is no terminal.").more_than(0).at_most(86400).safe(),
      Row("train.run_dir", FIELD(train.run_dir), "runs/default",
          "Folder of the run: configuration, metrics, checkpoints; training there again resumes.").safe(),
      Row("train.device", FIELD(train.device), "auto", "auto: a GPU where one answers.")
          .one_of({"auto", "cpu", "cuda"}).safe(),
      // ---- parallel ----
      Row("parallel.threads_per_rank", FIELD(parallel.threads_per_rank), 1, "Compute threads of a rank.")
          .at_least(1).at_most(1024).safe(),
      Row("parallel.bucket_mb", FIELD(parallel.bucket_mb), 25.0, "MiB of gradients that are reduced together.")
          .more_than(0).at_most(65536).safe(),
      Row("parallel.timeout_s", FIELD(parallel.timeout_s), 60.0, "Longest wait for another rank.")
          .more_than(0).at_most(86400).safe(),
  };
  return keys;
}

#undef FIELD
// clang-format on

}  // namespace

const std::vector<ConfigKey>& config_schema() {
  static const std::vector<ConfigKey> schema = make_schema();
  return schema;
}

const ConfigKey* find_config_key(std::string_view name) {
  for (const ConfigKey& key : config_schema())
    if (key.name == name) return &key;
  return nullptr;
}

std::string section_help(std::string_view section) {
  if (section == "ero") return "Elastic resource orchestrator";
  if (section == "mdp") return "Multimodal data pipeline";
  if (section == "hpgc") return "Hybrid-precision gradient coordinator";
  if (section == "ecm") return "Elastic checkpoint manager";
  if (section == "model") return "What is trained";
  if (section == "data") return "What it is trained on";
  if (section == "train") return "How it is trained";
  if (section == "parallel") return "How the work is spread";
  return "";
}

Config::Config() {
  for (const ConfigKey& key : config_schema()) key.set(*this, key.default_value);
}

DecoderThreads decoder_threads(const Config& config, int64_t machine_cores, int64_t ranks_on_node) {
  machine_cores = std::max<int64_t>(machine_cores, 1);
  ranks_on_node = std::max<int64_t>(ranks_on_node, 1);
  const int64_t image_limit = config.ero.cpu_reserve_cores.at(0),
                video_limit = config.ero.cpu_reserve_cores.at(1);
  DecoderThreads threads;
  if (config.data.decoder_threads) {
    // Asked for by name: only the limit holds, not what the machine suggests.
    threads.image = std::min(*config.data.decoder_threads, image_limit);
    threads.video = std::min(*config.data.decoder_threads, video_limit);
    if (threads.image < *config.data.decoder_threads)
      threads.note = "data.decoder_threads: " + std::to_string(*config.data.decoder_threads) +
                     " lowered to " + std::to_string(threads.image) + " by ero.cpu_reserve_cores";
    return threads;
  }
  // At most half of the cores decode, so that ranks keep computing.
  const int64_t half = std::max<int64_t>(machine_cores / 2, 1);
  threads.image = std::max<int64_t>(std::min(image_limit, half) / ranks_on_node, 1);
  threads.video = std::max<int64_t>(std::min(video_limit, half) / ranks_on_node, 1);
  if (half < image_limit || half < video_limit)
    threads.note = "ero.cpu_reserve_cores: [" + std::to_string(image_limit) + ", " +
                   std::to_string(video_limit) + "] scaled to " + std::to_string(machine_cores) +
                   " cores and " + std::to_string(ranks_on_node) +
                   " ranks on this node: " + std::to_string(threads.image) + " decoder threads a rank";
  return threads;
}

SnapshotIntervals snapshot_intervals(const Config& config) {
  const SnapshotLevels& levels = config.ecm.snapshot_levels;
  auto shared = [&](double seconds) {
    return seconds > 0 ? std::max(seconds, config.ecm.min_shared_interval_s) : 0.0;
  };
  return {static_cast<double>(levels.level0_interval_ms) / 1000.0,
          shared(static_cast<double>(levels.level1_interval_s)),
          shared(static_cast<double>(levels.level2_interval_m) * 60.0)};
}

}  // namespace mso
