// Features of a CLIP model, for comparison with transformers. Usage: clip_features MODEL_DIR INPUTS OUT
// INPUTS (safetensors): pixel_values [images, 3, side, side], input_ids [texts, length] (int64) and lengths [texts]
// (int64). OUT: image_features and text_features.
#include <cstdio>

#include "base/error.h"
#include "base/safetensors.h"
#include "model/clip_embedder.h"

namespace {

std::vector<int64_t> integers(const mso::SafetensorsFolder& file, const std::string& name) {
  const mso::HostTensor tensor = file.read(name);
  return {tensor.data<int64_t>(), tensor.data<int64_t>() + tensor.count()};
}

int run(char** argv) {
  const mso::ClipEmbedder clip(argv[1]);
  const mso::SafetensorsFolder inputs(argv[2]);
  std::vector<float> pixels(static_cast<size_t>(inputs.entry("pixel_values").count()));
  inputs.read_f32("pixel_values", 0, pixels.size(), pixels.data());
  const int64_t images = inputs.entry("pixel_values").shape[0];
  const std::vector<int64_t> ids = integers(inputs, "input_ids"), lengths = integers(inputs, "lengths");
  const auto width = static_cast<size_t>(inputs.entry("input_ids").shape[1]);
  std::vector<std::vector<int64_t>> texts;
  for (size_t row = 0; row < lengths.size(); ++row)
    texts.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(row * width),
                       ids.begin() + static_cast<std::ptrdiff_t>(row * width) + lengths[row]);
  const std::vector<float> image = clip.image_features(pixels, images), text = clip.text_features(texts);
  const int64_t size = clip.projection_size();
  mso::write_safetensors(argv[3], {{"image_features", mso::DType::kF32, {images, size}, image.data()},
                                   {"text_features", mso::DType::kF32, {static_cast<int64_t>(texts.size()), size}, text.data()}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: clip_features MODEL_DIR INPUTS OUT\n");
    return 2;
  }
  try {
    return run(argv);
  } catch (const mso::Error& error) {
    std::fprintf(stderr, "clip_features: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
