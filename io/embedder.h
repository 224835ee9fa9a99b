// What turns samples into vectors whose cosine tells how alike they are: the built-in descriptor (io/descriptor.h), or
// a CLIP model (runtime/model/clip_embedder.h, which io does not know).
#pragma once

#include <span>
#include <string>

#include "io/image.h"

namespace mso {

// What is intact of a sample.
struct SampleContent {
  Image picture;     // of the sample, or the first frame of its video; empty: none, or it does not decode
  std::string text;  // valid UTF-8; empty: none
};

// A row is [media_size() + text_size()] float32: a unit vector of the picture, then one of the text; zeros for a part
// the sample does not have. Methods may be called from several threads at once.
class Embedder {
 public:
  virtual ~Embedder() = default;
  // Changes whenever the vectors would: "built-in descriptor 1", "CLIP 9f3c… (folder)".
  virtual std::string name() const = 0;
  virtual int media_size() const = 0;
  virtual int text_size() const = 0;
  // The picture's share of the similarity of two samples that have both, 0 to 1; the text's is the rest.
  virtual double media_share() const = 0;
  // How a picture of this size is to be decoded.
  virtual DecodeOptions decode_options(int width, int height) const = 0;
  // `rows`: [samples.size()][media_size() + text_size()].
  virtual void embed(std::span<const SampleContent> samples, float* rows) const = 0;
};

}  // namespace mso
