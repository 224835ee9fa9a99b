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
#include "io/sample_media.h"
#include "io/tokenizer.h"

namespace mso {

// Every reason for which a sample can be left out has a number ≥ 1, so that ranks can agree with one byte per sample.
uint8_t reason_code(const std::string& reason);  // an unknown reason is "other"
const char* reason_name(uint8_t code);

struct AssemblerOptions {
  std::string text_template = "<image>{caption}";  // data.template
  // data.caption: "txt" (the .txt member) or a JSON pointer into the .json member, "/captions/en".
  std::string caption = "txt";
  int64_t image_token = 0;        // id that fills positions of a PictureDecoder's pictures (model.image_token_index)
  int64_t max_length = 0;         // data.max_length in packed positions; 0: no limit
  bool drop_over_length = false;  // data.over_length: what is longer is left out instead of cut
  // How conversations are encoded, by the same limit and rule; none: data with conversations is refused, for this reason.
  std::shared_ptr<const ConversationEncoder> conversations;
  std::string no_conversations;
  double bytes_per_token = 4.0;   // for cost estimates only (1 for the byte tokenizer)
  uint64_t max_member_bytes = uint64_t{256} << 20;  // larger pictures are refused, reason "too_large"
};

struct AssembledSample {
  std::vector<int64_t> tokens;           // [t]
  std::vector<int64_t> labels;           // [t] shifted: labels[i] is the token after i, or kIgnoreLabel
  PerModality<std::vector<int64_t>> media_positions;  // positions inside the sample that hold features of each
  std::map<std::string, HostTensor> media;            // under the names of the decoders' tensors, [items, …]
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
// A mark is replaced by what its medium's decoder says (TokenRun); words among that are tokenised with the text in front. A
// medium that brings bos itself (Fuyu) has none in front of it.
// data.max_length: what is longer is left out, "too_long", or cut at its end, eos included (a cut caption does not end
// there); positions of media are never cut: where not even one caption token fits, the sample is bad, "too_long".
// Conversations (io/conversation_sample.h, with data.caption: txt): io/conversation_encoder.h; all their media are used, but
// those behind a cut.
// Reasons: no_picture no_caption empty_caption bad_text bad_json too_long too_large read_error decode_error no_label
// bad_conversation missing_media template_error, and those of Dataset::unusable_reason().
class SampleAssembler {
 public:
  // `decoders`: of pictures, video and audio; one without decode() is none. Error (kBadUsage) for a template without
  // {caption}, with a mark twice, or with a mark that has no decoder, and for conversations without a chat template.
  SampleAssembler(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Tokenizer> tokenizer,
                  PerModality<MediaDecoder> decoders, AssemblerOptions options);
  // The same with pictures that fill positions of options.image_token.
  SampleAssembler(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Tokenizer> tokenizer,
                  const PictureDecoder& pictures, AssemblerOptions options, PerModality<MediaDecoder> others = {});

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
  const AssemblerOptions& options() const { return options_; }

 private:
  bool takes(Modality m) const { return decoders_[m].decode != nullptr; }
  bool is_conversation(const ShardSample& sample) const;
  Modality counted_as(SampleKind kind) const;
  const ShardMember* member_for(const ShardSample& sample, Modality m) const;
  PerModality<uint64_t> media_of(const ShardSample& sample) const;
  ProcessedMedia decode_medium(uint64_t id, Modality m, const ShardMember& member, bool of_several, BufferPool* pool,
                               AssembledSample* out) const;
  std::vector<TokenRun> named(std::vector<TokenRun> runs, Modality m) const;
  std::optional<int64_t> token_of(const TokenRun& run, Modality m) const;
  void assemble_caption(uint64_t id, const ShardSample& sample, BufferPool* pool, AssembledSample* out) const;
  void assemble_conversation(uint64_t id, const ShardSample& sample, BufferPool* pool, AssembledSample* out) const;
  std::shared_ptr<const Dataset> dataset_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  PerModality<MediaDecoder> decoders_;
  AssemblerOptions options_;
  CaptionTemplate template_;
  PerModality<std::string> media_tokens_;  // with conversations: how the tokenizer writes MediaDecoder::token
};

// Joins samples into one packed MicroBatch, in the given order.
MicroBatch join_samples(const std::vector<const AssembledSample*>& samples, const std::vector<uint64_t>& ids,
                        BufferPool* pool = nullptr);

}  // namespace mso
