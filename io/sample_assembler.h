// One sample of a data set → tokens, labels and pixels by the data template ("<image>{caption}").
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/host_tensor.h"
#include "io/batch_plan.h"
#include "io/buffer_pool.h"
#include "io/dataset.h"
#include "io/micro_batch.h"
#include "io/tokenizer.h"

namespace mso {

// The family's processor as the assembler sees it: io/image_processor.h for LLaVA, a stub in tests.
struct PictureDecoder {
  std::vector<int64_t> shape;  // of one picture in the model's input: {3, height, width}
  int64_t tokens = 0;          // positions of one picture: (side/patch)² for strategy "default", one more for "full"
  std::string media_name = "pixel_values";  // in MicroBatch::media
  // Encoded file → float32 pixels of `shape`; called from several threads at once; throws Error for a bad picture.
  std::function<void(std::span<const std::byte> file, float* pixels)> decode;
};

// Every reason for which a sample can be left out has a number ≥ 1, so that ranks can agree with one byte per sample.
uint8_t reason_code(const std::string& reason);  // an unknown reason is "other"
const char* reason_name(uint8_t code);

// A sample that cannot be trained on: `reason` is one word for the ledger, `detail` a sentence.
class BadSampleError : public std::runtime_error {
 public:
  BadSampleError(std::string reason, std::string detail)
      : std::runtime_error(reason + ": " + detail), reason_(std::move(reason)), detail_(std::move(detail)) {}
  const std::string& reason() const { return reason_; }
  const std::string& detail() const { return detail_; }

 private:
  std::string reason_, detail_;
};

struct AssemblerOptions {
  std::string text_template = "<image>{caption}";  // data.template
  // data.caption: "txt" (the .txt member) or a JSON pointer into the .json member, "/captions/en".
  std::string caption = "txt";
  int64_t image_token = 0;        // id that fills image positions (model.image_token_index)
  int64_t max_length = 0;         // data.max_length in packed positions; 0: no limit
  double bytes_per_token = 4.0;   // for cost estimates only (1 for the byte tokenizer)
  uint64_t max_member_bytes = uint64_t{256} << 20;  // larger pictures are refused, reason "too_large"
};

struct AssembledSample {
  std::vector<int64_t> tokens;           // [t]
  std::vector<int64_t> labels;           // [t] shifted: labels[i] is the token after i, or kIgnoreLabel
  std::vector<int64_t> image_positions;  // positions inside the sample that hold image features
  std::vector<HostTensor> pictures;      // float32 of PictureDecoder::shape
  bool cut = false;                      // text was cut at max_length
};

// Immutable; methods may be called from several threads.
//
// Rules. bos in front and eos at the end where the tokenizer has them. Labels only on the caption and the eos behind
// it, never on images, bos or the template's own words. A sample without a picture is trained on as text (its <image>
// mark is left out). data.max_length: what is longer is cut at its end, eos included (a cut caption does not end
// there); image positions are never cut: where not even one caption token fits, the sample is bad, "too_long".
// Reasons: no_picture no_caption empty_caption bad_text bad_json too_long too_large read_error decode_error, and those
// of Dataset::unusable_reason().
class SampleAssembler {
 public:
  // Error (kBadUsage) for a template without {caption} or with more than one <image>.
  SampleAssembler(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Tokenizer> tokenizer,
                  PictureDecoder picture_decoder, AssemblerOptions options);
  ~SampleAssembler();

  // From the index alone.
  SampleCost cost(uint64_t id) const;
  // Upper bound of the bytes a decoded sample takes, for memory limits.
  uint64_t decoded_bytes(uint64_t id) const;
  // Reads and decodes, pixels into memory of `pool` where one is given. Throws BadSampleError, and nothing else for
  // whatever the shard holds.
  AssembledSample assemble(uint64_t id, BufferPool* pool = nullptr) const;

  const Dataset& dataset() const { return *dataset_; }
  const PictureDecoder& picture_decoder() const { return picture_decoder_; }
  const AssemblerOptions& options() const { return options_; }

 private:
  struct Template;
  std::string caption_of(uint64_t id, const ShardSample& sample) const;
  std::shared_ptr<const Dataset> dataset_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  PictureDecoder picture_decoder_;
  AssemblerOptions options_;
  std::unique_ptr<Template> template_;
};

// Joins samples into one packed MicroBatch, in the given order.
MicroBatch join_samples(const std::vector<const AssembledSample*>& samples, const std::vector<uint64_t>& ids,
                        const PictureDecoder& picture_decoder, BufferPool* pool = nullptr);

}  // namespace mso
