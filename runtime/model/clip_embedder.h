// CLIP (Radford et al. 2021) as an embedding of pictures and texts: transformers' CLIPModel.get_image_features and
// get_text_features, from a Hugging Face folder. Inference only, float32.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mso {

// Immutable after construction; methods may be called from several threads at once (each computes with as many torch
// threads as at::set_num_threads() says).
class ClipEmbedder {
 public:
  // config.json and safetensors of a CLIPModel. Error (kBadUsage) naming file and key or tensor for what is missing, of
  // another shape, or would change the maths and is not known.
  explicit ClipEmbedder(const std::filesystem::path& folder);
  ~ClipEmbedder();

  int image_size() const;     // side of the pictures, pixels
  int channels() const;       // 3
  int projection_size() const;
  int64_t vocabulary_size() const;
  int64_t max_text_length() const;  // positions, begin and end included
  int64_t end_token() const;        // whose position gives a text's feature; what texts are cut at
  // 16 hexadecimal digits of configuration and weights.
  std::string fingerprint() const;

  // pixels: [images, channels, image_size, image_size], normalised by the image processor. Returns
  // [images, projection_size], as they come from the projection (not of unit length).
  std::vector<float> image_features(std::span<const float> pixels, int64_t images) const;
  // Texts as the CLIP tokenizer gives them, begin and end tokens included. Longer ones than max_text_length() are cut
  // and end with the end token, as transformers' tokenizer does with truncation. Returns [texts, projection_size].
  std::vector<float> text_features(const std::vector<std::vector<int64_t>>& texts) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mso
