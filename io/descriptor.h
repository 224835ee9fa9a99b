// The built-in descriptor: a small, hand-made embedding of pictures and texts, so that healing works where there is no
// CLIP model. It knows colours, shapes and words, not meanings.
#pragma once

#include <string_view>

#include "io/embedder.h"

namespace mso {

// All parts are unit vectors of non-negative similarity: a constant component lifts the cosine c of the features to
// b + (1 - b) c, so that the default threshold of replacements (0.92) lies where neighbours are mostly of one kind.

// [kPictureDescriptorSize] of a picture that is not empty: colours of what stands out from the border (4 × 4 × 4 soft
// bins), layout of colours (6 × 6 cells of luma and chroma, as differences from the border), gradients (4 × 4 cells
// of 8 directions), all at 48 × 48 pixels.
inline constexpr int kPictureDescriptorSize = 1 + 64 + 108 + 128;
void describe_picture(const Image& picture, float* out);

// [kTextDescriptorSize]: words and their 3- to 5-grams of characters, case-folded, hashed. All zeros for a text without a word.
inline constexpr int kTextDescriptorSize = 1 + 511;
void describe_text(std::string_view utf8, float* out);

class BuiltinEmbedder : public Embedder {
 public:
  std::string name() const override { return "built-in descriptor 1"; }
  int media_size() const override { return kPictureDescriptorSize; }
  int text_size() const override { return kTextDescriptorSize; }
  double media_share() const override;
  DecodeOptions decode_options(int width, int height) const override;
  void embed(std::span<const SampleContent> samples, float* rows) const override;
};

}  // namespace mso
