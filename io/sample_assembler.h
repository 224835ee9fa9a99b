// One sample of a data set → tokens, labels and pixels: a captioned one by the data template ("<image>{caption}"), a
// conversation by the chat template.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/host_tensor.h"
#include "io/bad_sample.h"
#include "io/batch_plan.h"
#include "io/buffer_pool.h"
#include "io/caption_template.h"
#include "io/conversation_encoder.h"
#include "io/conversation_sample.h"
#include "io/dataset.h"
#include "io/micro_batch.h"
#include "io/modality.h"
#include "io/modality_index.h"
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

struct AssemblerOptions {
  std::string text_template = "<image>{caption}";  // data.template
  // data.caption: "txt" (the .txt member) or a JSON pointer into the .json member, "/captions/en".
  std::string caption = "txt";
  int64_t image_token = 0;        // id that fills image positions (model.image_token_index)
  int64_t max_length = 0;         // data.max_length in packed positions; 0: no limit
  bool drop_over_length = false;  // data.over_length: what is longer is left out instead of cut
  // How conversations are encoded, by the same limit and rule; none: data with conversations is refused, for this reason.
  std::shared_ptr<const ConversationEncoder> conversations;
  std::string no_conversations;
  double bytes_per_token = 4.0;   // for cost estimates only (1 for the byte tokenizer)
  uint64_t max_member_bytes = uint64_t{256} << 20;  // larger pictures are refused, reason "too_large"
};

// A video or a sound as the assembler sees it.
struct DecodedMedia {
  HostTensor tensor;   // [items, …]: frames of a clip, windows of a sound; joined along the first dimension
  int64_t tokens = 0;  // positions it fills
};
struct MediaDecoder {
  std::string media_name;  // in MicroBatch::media: "pixel_values_videos", "input_features"
  int64_t token = -1;      // id that fills its positions
  int64_t most_tokens = 0;  // of one file, for costs and memory
  uint64_t most_bytes = 0;  // of its tensor
  bool same_tokens = false;  // every file fills `most_tokens`
  // Called from several threads at once; throws Error for a bad file. `name` is for messages.
  std::function<DecodedMedia(std::span<const std::byte> file, const std::string& name, BufferPool* pool)> decode;
};

struct AssembledSample {
  std::vector<int64_t> tokens;           // [t]
  std::vector<int64_t> labels;           // [t] shifted: labels[i] is the token after i, or kIgnoreLabel
  PerModality<std::vector<int64_t>> media_positions;  // positions inside the sample that hold features of each
  std::map<std::string, HostTensor> media;            // by the decoder's media_name, [items, …]
  PerModality<uint64_t> counts;          // files of each that are in it
  uint64_t bytes_read = 0;
  bool cut = false;                      // text was cut at max_length

  void give_back(BufferPool& pool) noexcept;  // the memory of its media
};

// Immutable; methods may be called from several threads.
//
// Rules. bos in front and eos at the end where the tokenizer has them. Labels only on the caption and the eos behind
// it, never on media, bos or the template's own words. Of a sample all media are used that the template has a mark for
// (<image>, <video>, <audio>); marks without a file are left out, so one without any is trained on as text.
// data.max_length: what is longer is left out, "too_long", or cut at its end, eos included (a cut caption does not end
// there); positions of media are never cut: where not even one caption token fits, the sample is bad, "too_long".
// Conversations (io/conversation_sample.h, with data.caption: txt): io/conversation_encoder.h; all their media are used, but
// those behind a cut.
// Reasons: no_picture no_caption empty_caption bad_text bad_json too_long too_large read_error decode_error no_label
// bad_conversation missing_media template_error, and those of Dataset::unusable_reason().
class SampleAssembler {
 public:
  // `others`: decoders of video and audio; one without decode() is none. Error (kBadUsage) for a template without
  // {caption}, with a mark twice, or with a mark that has no decoder, and for conversations without a chat template.
  SampleAssembler(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Tokenizer> tokenizer,
                  PictureDecoder picture_decoder, AssemblerOptions options, PerModality<MediaDecoder> others = {});

  // From the index alone.
  SampleCost cost(uint64_t id) const;
  Modality modality(uint64_t id) const;
  std::vector<ModalityBlock> modality_blocks() const;  // of all samples, from the counts in the index
  // Upper bound of the bytes a decoded sample takes, for memory limits.
  uint64_t decoded_bytes(uint64_t id) const;
  // Reads and decodes, pixels into memory of `pool` where one is given. Throws BadSampleError, and nothing else for
  // whatever the shard holds.
  AssembledSample assemble(uint64_t id, BufferPool* pool = nullptr) const;

  const Dataset& dataset() const { return *dataset_; }
  const std::shared_ptr<const Dataset>& shared_dataset() const { return dataset_; }
  const PictureDecoder& picture_decoder() const { return picture_decoder_; }
  const AssemblerOptions& options() const { return options_; }

 private:
  using Members = std::vector<const ShardMember*>;
  bool takes(Modality m) const { return m == Modality::kImage || (m != Modality::kText && decoders_[m].decode); }
  bool is_conversation(const ShardSample& sample) const;
  Modality counted_as(SampleKind kind) const;
  const ShardMember* member_for(const ShardSample& sample, Modality m) const;
  PerModality<uint64_t> media_of(const ShardSample& sample) const;
  std::vector<std::byte> read_media(uint64_t id, const ShardMember& member, const char* what) const;
  std::vector<DecodedMedia> decode_media(uint64_t id, Modality m, const Members& members, BufferPool* pool, AssembledSample* out) const;
  void decode_pictures(uint64_t id, const Members& members, BufferPool* pool, AssembledSample* out) const;
  void assemble_caption(uint64_t id, const ShardSample& sample, BufferPool* pool, AssembledSample* out) const;
  void assemble_conversation(uint64_t id, const ShardSample& sample, BufferPool* pool, AssembledSample* out) const;
  std::shared_ptr<const Dataset> dataset_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  PictureDecoder picture_decoder_;
  AssemblerOptions options_;
  PerModality<MediaDecoder> decoders_;  // of video and audio
  CaptionTemplate template_;
  PerModality<std::string> media_tokens_;  // with conversations: how the tokenizer writes what fills positions
};

// Joins samples into one packed MicroBatch, in the given order.
MicroBatch join_samples(const std::vector<const AssembledSample*>& samples, const std::vector<uint64_t>& ids,
                        BufferPool* pool = nullptr);

}  // namespace mso
