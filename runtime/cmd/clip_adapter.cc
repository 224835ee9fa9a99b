#include "cmd/clip_adapter.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "io/image_processor.h"
#include "io/tokenizer.h"
#include "model/clip_embedder.h"

namespace mso {
namespace {

ImageProcessorConfig processor_of(const std::filesystem::path& folder, const ClipEmbedder& clip) {
  ImageProcessorConfig config;
  return read_image_processor(folder, &config) ? config : clip_image_processor(clip.image_size());
}

class ClipAdapter : public Embedder {
 public:
  explicit ClipAdapter(const std::filesystem::path& folder)
      : clip_(folder), processor_(processor_of(folder, clip_)), tokenizer_(load_tokenizer(folder.string())) {
    if (processor_.height() != clip_.image_size() || processor_.width() != clip_.image_size())
      throw Error("the image processor does not fit the CLIP model",
                  folder.string() + ": pictures of " + std::to_string(processor_.width()) + " × " +
                      std::to_string(processor_.height()) + " instead of " + std::to_string(clip_.image_size()),
                  "mend preprocessor_config.json", ExitCode::kBadUsage);
    if (tokenizer_->vocabulary_size() > clip_.vocabulary_size())
      throw Error("the tokenizer does not fit the CLIP model",
                  folder.string() + ": " + std::to_string(tokenizer_->vocabulary_size()) + " tokens for " +
                      std::to_string(clip_.vocabulary_size()) + " rows",
                  "put the model's own tokenizer.json beside it", ExitCode::kBadUsage);
    at::set_num_threads(1);  // the index runs many samples side by side
  }

  std::string name() const override { return "CLIP " + clip_.fingerprint(); }
  int media_size() const override { return clip_.projection_size(); }
  int text_size() const override { return clip_.projection_size(); }
  double media_share() const override { return 0.5; }
  DecodeOptions decode_options(int width, int height) const override { return processor_.decode_options(width, height); }

  void embed(std::span<const SampleContent> samples, float* rows) const override {
    const size_t size = static_cast<size_t>(clip_.projection_size()), row = 2 * size;
    std::fill_n(rows, samples.size() * row, 0.0f);
    std::vector<float> pixels;
    std::vector<std::vector<int64_t>> texts;
    std::vector<size_t> with_picture, with_text;
    for (size_t i = 0; i < samples.size(); ++i) {
      if (!samples[i].picture.rgb.empty()) {
        pixels.resize(pixels.size() + processor_.size());
        processor_.process(samples[i].picture, pixels.data() + pixels.size() - processor_.size());
        with_picture.push_back(i);
      }
      if (!samples[i].text.empty()) {
        texts.push_back(tokenizer_->encode(samples[i].text, true));
        with_text.push_back(i);
      }
    }
    place(clip_.image_features(pixels, static_cast<int64_t>(with_picture.size())), with_picture, rows, row);
    place(clip_.text_features(texts), with_text, rows + size, row);
  }

 private:
  // As unit vectors.
  void place(const std::vector<float>& features, const std::vector<size_t>& samples, float* rows, size_t row) const {
    const size_t size = static_cast<size_t>(clip_.projection_size());
    for (size_t k = 0; k < samples.size(); ++k) {
      const float* from = features.data() + k * size;
      double sum = 0;
      for (size_t i = 0; i < size; ++i) sum += static_cast<double>(from[i]) * from[i];
      const double factor = sum > 0 ? 1 / std::sqrt(sum) : 0;
      for (size_t i = 0; i < size; ++i) rows[samples[k] * row + i] = static_cast<float>(from[i] * factor);
    }
  }

  ClipEmbedder clip_;
  ImageProcessor processor_;
  std::unique_ptr<const Tokenizer> tokenizer_;
};

}  // namespace

std::unique_ptr<Embedder> make_clip_adapter(const std::string& folder) {
  return std::make_unique<ClipAdapter>(std::filesystem::path(folder));
}

}  // namespace mso
