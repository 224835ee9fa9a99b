// export_model MODEL_DIR TOKENIZER OUT [SHARD_BYTES]: reads a Hugging Face folder, exports it again with the
// tokenizer ("bytes" or a tokenizer.json). export_reference.py loads the result in transformers.
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "io/chat_template.h"
#include "io/image_processor.h"
#include "io/tokenizer.h"
#include "model/hf_export.h"
#include "model/model_options.h"

int main(int argc, char** argv) {
  using namespace mso;
  if (argc < 4) return std::fprintf(stderr, "usage: export_model MODEL_DIR TOKENIZER OUT [SHARD_BYTES]\n"), 2;
  try {
    ModelOptions options;
    options.path = argv[1];
    const ModelOutline outline = outline_model(options);
    std::vector<float> trainable(outline.layouts.trainable.size), frozen(outline.layouts.frozen.size);
    fill_parameters(options, outline, trainable.data(), frozen.data());
    HuggingFaceExport model;
    model.config_json = exported_config(outline.config, "");
    auto tokenizer = load_tokenizer(argv[2]);
    model.tokenizer_json = tokenizer->source_text();
    model.tokenizer_config_json = tokenizer->config_text();
    model.chat_templates = ChatTemplate::all(argv[1], tokenizer->config_text());
    const std::filesystem::path generation = std::filesystem::path(argv[1]) / "generation_config.json";
    if (std::filesystem::exists(generation)) model.generation_json = read_file(generation);
    model.preprocessor_json =
        to_json(clip_image_processor(static_cast<int>(outline.config.vision.image_size)));
    if (argc > 4) model.shard_bytes = std::strtoull(argv[4], nullptr, 10);
    for (auto [layout, data] :
         {std::pair(&outline.layouts.trainable, &trainable), std::pair(&outline.layouts.frozen, &frozen)})
      for (const FlatTensor& t : layout->tensors)
        model.tensors.push_back({t.name, DType::kF32, t.shape, data->data() + t.offset});
    export_hugging_face(argv[3], model);
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "export_model: %s\n", e.what()), 1;
  }
  return 0;
}
