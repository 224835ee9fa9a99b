#include "io/sample_assembler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "io/caption.h"
#include "io/caption_template.h"

namespace mso {
namespace {

// Order is part of the agreement between ranks and never changes; new ones go to the end.
constexpr const char* kReasons[] = {"",           "other",        "truncated_shard", "duplicate_member", "bad_member",
                                    "odd_name",   "no_picture",   "no_caption",      "empty_caption",    "bad_text",
                                    "bad_json",   "too_long",     "too_large",       "read_error",       "decode_error",
                                    "no_label",   "bad_conversation", "missing_media", "template_error"};

ModalityBit bit_of(Modality m) {
  return m == Modality::kVideo ? kHasVideo : m == Modality::kAudio ? kHasAudio : m == Modality::kImage ? kHasImage : kHasText;
}

}  // namespace

uint8_t reason_code(const std::string& reason) {
  for (size_t i = 1; i < std::size(kReasons); ++i)
    if (reason == kReasons[i]) return static_cast<uint8_t>(i);
  return 1;
}

const char* reason_name(uint8_t code) { return code > 0 && code < std::size(kReasons) ? kReasons[code] : kReasons[1]; }

SampleAssembler::SampleAssembler(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Tokenizer> tokenizer,
                                 const PictureDecoder& pictures, AssemblerOptions options, PerModality<MediaDecoder> others)
    : SampleAssembler(std::move(dataset), std::move(tokenizer),
                      [&] {
                        others[Modality::kImage] = media_decoder_of(pictures, options.image_token);
                        return std::move(others);
                      }(),
                      std::move(options)) {}

SampleAssembler::SampleAssembler(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Tokenizer> tokenizer,
                                 PerModality<MediaDecoder> decoders, AssemblerOptions options)
    : dataset_(std::move(dataset)),
      tokenizer_(std::move(tokenizer)),
      decoders_(std::move(decoders)),
      options_(std::move(options)),
      template_(options_.text_template, *tokenizer_) {
  for (Modality m : {Modality::kImage, Modality::kVideo, Modality::kAudio})
    if (template_.has(m) && !takes(m))
      throw Error(std::string("the model takes no ") + name_of(m), "data.template: " + options_.text_template,
                  std::string("leave ") + std::string(mark_of(m)) + " out, or give the model model." + name_of(m),
                  ExitCode::kBadUsage);
  if (options_.caption != "txt") {
    try {
      if (options_.caption.empty() || options_.caption[0] != '/') throw std::invalid_argument("no pointer");
      (void)nlohmann::json::json_pointer(options_.caption);
    } catch (const std::exception&) {
      throw Error("wrong caption source", "data.caption: " + options_.caption,
                  "txt, or a JSON pointer into the .json member such as /captions/en", ExitCode::kBadUsage);
    }
    return;
  }
  if (!dataset_ || !dataset_->has_conversations()) return;
  if (!options_.conversations)
    throw Error("the data has conversations, and there is no chat template for them",
                options_.no_conversations.empty() ? "data.chat_template" : options_.no_conversations,
                "set data.chat_template to llava_v1, chatml, plain or a .jinja file, or put chat_template.jinja into the model's folder",
                ExitCode::kBadUsage);
  for (Modality m : kAllModalities) {
    const int64_t id = decoders_[m].token;
    if (!takes(m) || id == -1) continue;
    const std::optional<std::string> token = tokenizer_->token(id);
    if (!token)
      throw Error("the tokenizer has no token for model." + std::string(name_of(m)) + "_token_index", std::to_string(id),
                  "give the model's tokenizer, or the id of one of its tokens", ExitCode::kBadUsage);
    media_tokens_[m] = *token;
  }
}

bool SampleAssembler::is_conversation(const ShardSample& sample) const {
  return options_.conversations && options_.caption == "txt" && mso::is_conversation(*dataset_, sample);
}

// The file of a captioned sample that stands for the template's mark of `m`; nullptr without mark or file.
const ShardMember* SampleAssembler::member_for(const ShardSample& sample, Modality m) const {
  if (m == Modality::kText || !template_.has(m)) return nullptr;
  if (m == Modality::kImage && sample.picture()) return sample.picture();
  for (const ShardMember& member : sample.members)
    if (media_of_extension(member.extension) == m) return &member;
  return nullptr;
}

// How many files of each the sample is trained on with, by the index.
PerModality<uint64_t> SampleAssembler::media_of(const ShardSample& sample) const {
  PerModality<uint64_t> counts;
  if (is_conversation(sample)) {
    for (const ShardMember& member : sample.members)
      if (const auto m = media_of_extension(member.extension); m && takes(*m)) ++counts[*m];
  } else {
    for (Modality m : kAllModalities) counts[m] = member_for(sample, m) != nullptr;
  }
  return counts;
}

// The costliest medium among those that media_of() counts.
Modality SampleAssembler::counted_as(SampleKind kind) const {
  const bool conversation = (kind & kKindJsonAlone) && options_.conversations && options_.caption == "txt" && dataset_->has_conversations();
  for (const auto& [m, bit] : {std::pair(Modality::kVideo, kKindVideo), {Modality::kImage, kKindImage}, {Modality::kAudio, kKindAudio}})
    if ((kind & bit) && (conversation ? takes(m) : template_.has(m))) return m;
  return Modality::kText;
}

Modality SampleAssembler::modality(uint64_t id) const { return counted_as(dataset_->kind(id)); }

std::vector<ModalityBlock> SampleAssembler::modality_blocks() const {
  PerModality<std::vector<SampleKind>> kinds;
  for (SampleKind kind = 0; kind < kSampleKinds; ++kind) kinds[counted_as(kind)].push_back(kind);
  std::vector<ModalityBlock> blocks;
  for (uint32_t shard = 0; shard < dataset_->shard_count(); ++shard) {
    const ShardIndex& index = dataset_->shard_index(shard);
    for (uint64_t b = 0; b < index.blocks(); ++b) {
      const SampleKindCounts counts = index.kind_counts(b);
      ModalityBlock block;
      block.size = static_cast<uint32_t>(std::min(ShardIndex::kBlock, index.size() - b * ShardIndex::kBlock));
      for (Modality m : kAllModalities)
        for (SampleKind kind : kinds[m]) block.counts[m] += counts[kind];
      blocks.push_back(block);
    }
  }
  return blocks;
}

SampleCost SampleAssembler::cost(uint64_t id) const {
  // Of a conversation, for what the template writes around the words of its turns.
  constexpr int64_t kTemplateWords = 32;
  const ShardSample& sample = dataset_->sample(id);
  const PerModality<uint64_t> media = media_of(sample);
  SampleCost cost;
  for (Modality m : {Modality::kImage, Modality::kVideo, Modality::kAudio})
    if (media[m] > 0) cost.picture += decoders_[m].bounds_of(sample, bit_of(m), media[m]).tokens;
  double bytes = sample.text_bytes;
  int64_t fixed = 0;
  if (is_conversation(sample)) {
    if (!(sample.flags & kSampleConversation)) bytes = static_cast<double>(sample.find("json")->size);  // too large to look into
    fixed = kTemplateWords;
  } else {
    // The caption's length is not in the index; the size of the whole JSON is the best that is known, and only the
    // balance between ranks hangs on it.
    if (options_.caption != "txt") {
      const ShardMember* json = sample.find("json");
      bytes = json ? std::min<double>(static_cast<double>(json->size), 4096) / 2 : 0;
    }
    for (const CaptionTemplate::Piece& piece : template_.pieces(0))
      fixed += static_cast<int64_t>(piece.before_ids.size() + piece.after_ids.size());
  }
  cost.text = static_cast<int64_t>(std::ceil(bytes / options_.bytes_per_token)) + fixed + 2;
  if (options_.max_length > 0) {
    cost.picture = std::min(cost.picture, options_.max_length);
    cost.text = std::max<int64_t>(1, std::min(cost.text, options_.max_length - cost.picture));
  }
  return cost;
}

uint64_t SampleAssembler::decoded_bytes(uint64_t id) const {
  const ShardSample sample = dataset_->sample(id);
  const PerModality<uint64_t> media = media_of(sample);
  uint64_t bytes = static_cast<uint64_t>(cost(id).total()) * 3 * sizeof(int64_t);
  for (Modality m : {Modality::kImage, Modality::kVideo, Modality::kAudio})
    if (media[m] > 0) bytes += decoders_[m].bounds_of(sample, bit_of(m), media[m]).bytes;
  return bytes;
}

// Reads and decodes one file.
ProcessedMedia SampleAssembler::decode_medium(uint64_t id, Modality m, const ShardMember& member, bool of_several, BufferPool* pool,
                                              AssembledSample* out) const {
  const std::string what = m == Modality::kImage ? "picture" : name_of(m);
  if (member.size > options_.max_member_bytes)
    throw BadSampleError("too_large", "its " + what + " has " + std::to_string(member.size) + " bytes");
  std::vector<std::byte> file;
  try {
    file = dataset_->read(id, member);
  } catch (const Error& error) {
    throw BadSampleError("read_error", error.what());
  }
  if (file.empty()) throw BadSampleError("decode_error", "its " + what + " has 0 bytes");
  out->bytes_read += file.size();
  ++out->counts[m];
  try {
    return decoders_[m].decode(file, dataset_->describe(id) + "." + std::string(member.extension), pool);
  } catch (const std::exception& error) {
    const bool which = m == Modality::kImage && of_several;
    throw BadSampleError("decode_error", (which ? "its picture ." + std::string(member.extension) + ": " : "") + error.what());
  }
}

// The runs with the decoder's own token under its name.
std::vector<TokenRun> SampleAssembler::named(std::vector<TokenRun> runs, Modality m) const {
  for (TokenRun& run : runs)
    if (run.token.empty()) run.token = media_tokens_[m];
  return runs;
}

// Nothing: the run is text.
std::optional<int64_t> SampleAssembler::token_of(const TokenRun& run, Modality m) const {
  if (run.token.empty()) return decoders_[m].token;
  if (run.text) return {};
  const std::optional<int64_t> id = tokenizer_->token_id(run.token);
  if (!id && run.feature)
    throw Error("the tokenizer does not know a media token", "'" + run.token + "'", "give the tokenizer of the model, or add the token to it",
                ExitCode::kBadUsage);
  return id;
}

namespace {

// The tensors of a sample's media by name, in the order of the media.
class MediaParts {
 public:
  explicit MediaParts(BufferPool* pool) : pool_(pool) {}
  void add(std::map<std::string, HostTensor> tensors, Modality m) {
    for (auto& [name, tensor] : tensors) parts_[name].push_back({std::move(tensor), m});
  }
  // Each joined along its first dimension.
  void join(std::map<std::string, HostTensor>* media) {
    for (auto& [name, parts] : parts_) {
      if (parts.size() == 1) {
        media->insert_or_assign(name, std::move(parts[0].tensor));
        continue;
      }
      std::vector<int64_t> shape = parts[0].tensor.shape;
      for (size_t k = 1; k < parts.size(); ++k) {
        const std::vector<int64_t>& other = parts[k].tensor.shape;
        if (!std::equal(shape.begin() + 1, shape.end(), other.begin() + 1, other.end()))
          throw Error("media of one kind have different shapes", name);
        shape[0] += other[0];
      }
      const DType dtype = parts[0].tensor.dtype;
      HostTensor joined = pool_ ? pool_->tensor(dtype, shape, parts[0].modality) : HostTensor::make(dtype, shape);
      std::byte* end = joined.bytes.data();
      for (Part& part : parts) {
        std::memcpy(end, part.tensor.bytes.data(), part.tensor.bytes.size());
        end += part.tensor.bytes.size();
        if (pool_) pool_->give_back(std::move(part.tensor));
      }
      media->insert_or_assign(name, std::move(joined));
    }
  }

 private:
  struct Part {
    HostTensor tensor;
    Modality modality;
  };
  BufferPool* pool_;
  std::map<std::string, std::vector<Part>> parts_;
};

}  // namespace

void AssembledSample::give_back(BufferPool& pool) noexcept {
  for (auto& [name, tensor] : media) {
    try {
      pool.give_back(std::move(tensor));
    } catch (const std::exception&) {  // no memory for the list of buffers: it is freed
    }
  }
  media.clear();
}

AssembledSample SampleAssembler::assemble(uint64_t id, BufferPool* pool) const {
  AssembledSample out;
  try {
    const ShardSample& sample = dataset_->sample(id);
    const std::string unusable = dataset_->unusable_reason(id);
    if (!unusable.empty()) throw BadSampleError(unusable, explain_unusable(unusable));
    if (is_conversation(sample))
      assemble_conversation(id, sample, pool, &out);
    else
      assemble_caption(id, sample, pool, &out);
    for (auto& [name, tensor] : out.media) BufferPool::park(tensor);  // until it is joined into a batch
    return out;
  } catch (const std::exception& error) {
    if (pool) out.give_back(*pool);
    if (dynamic_cast<const BadSampleError*>(&error)) throw;
    throw BadSampleError("other", error.what());  // a tokenizer's limit, no memory for a huge picture …
  }
}

void SampleAssembler::assemble_conversation(uint64_t id, const ShardSample& sample, BufferPool* pool,
                                            AssembledSample* out) const {
  const ConversationSample read = read_conversation(*dataset_, id, sample);
  out->bytes_read += read.bytes_read;
  const std::vector<MediumRef> media = read.conversation.media();
  PerModality<uint64_t> given;
  for (const MediumRef& medium : media) {
    const Modality m = modality_of(medium.kind);
    if (!takes(m))
      throw BadSampleError("bad_conversation", read.conversation.where + ": the model takes no " + name_of(m));
    ++given[m];
  }
  if (given[Modality::kImage] > 0 && (sample.flags & kSampleBadPictureSize))
    throw BadSampleError("decode_error", "its picture has an impossible size");
  auto decode = [&](size_t i) {
    const Modality m = modality_of(media[i].kind);
    return decode_medium(id, m, *read.media[i], given[m] > 1, pool, out);
  };
  // Only media whose number of positions decoding tells are decoded before it is known what a cut leaves of them.
  std::vector<ProcessedMedia> decoded(media.size());
  std::vector<std::vector<TokenRun>> expansions;
  for (size_t i = 0; i < media.size(); ++i) {
    const Modality m = modality_of(media[i].kind);
    if (!decoders_[m].same_tokens) decoded[i] = decode(i);
    expansions.push_back(named(decoders_[m].same_tokens ? std::vector<TokenRun>{{"", decoders_[m].most_tokens, true}} : decoded[i].tokens, m));
  }
  EncodedConversation encoded = options_.conversations->encode(read.conversation, expansions);
  MediaParts parts(pool);
  PerModality<uint64_t> kept;
  for (size_t i = 0; i < media.size(); ++i) {
    const Modality m = modality_of(media[i].kind);
    if (!encoded.kept[i]) continue;
    ++kept[m];
    if (decoders_[m].same_tokens) decoded[i] = decode(i);
    parts.add(std::move(decoded[i].tensors), m);
  }
  parts.join(&out->media);
  out->counts = kept;
  out->tokens = std::move(encoded.tokens);
  out->labels = std::move(encoded.labels);
  out->cut = encoded.cut;
  for (MediaKind kind : kMediaKinds)
    if (auto at = encoded.feature_positions.find(media_name(kind)); at != encoded.feature_positions.end())
      out->media_positions[modality_of(kind)] = std::move(at->second);
}

void SampleAssembler::assemble_caption(uint64_t id, const ShardSample& sample, BufferPool* pool, AssembledSample* out) const {
  const ShardMember* members[kModalities];
  CaptionTemplate::Present present = 0;
  for (Modality m : kAllModalities)
    if ((members[static_cast<size_t>(m)] = member_for(sample, m))) present |= CaptionTemplate::bit(m);
  if ((present & CaptionTemplate::bit(Modality::kImage)) && (sample.flags & kSampleBadPictureSize))
    throw BadSampleError("decode_error", "its picture has an impossible size");
  const CaptionResult read = read_caption(*dataset_, id, sample, options_.caption);
  if (!read.reason.empty()) throw BadSampleError(read.reason, read.detail);
  const std::string& caption = read.text;
  out->bytes_read += read.bytes_read;

  const std::vector<CaptionTemplate::Piece>& pieces = template_.pieces(present);
  PerModality<std::vector<TokenRun>> runs;
  MediaParts parts(pool);
  for (const CaptionTemplate::Piece& piece : pieces) {
    if (!piece.media) continue;
    ProcessedMedia decoded = decode_medium(id, *piece.media, *members[static_cast<size_t>(*piece.media)], false, pool, out);
    runs[*piece.media] = std::move(decoded.tokens);
    parts.add(std::move(decoded.tensors), *piece.media);
  }
  parts.join(&out->media);

  std::vector<bool> learn;  // per token: whether it is a label
  auto append = [&](int64_t token, bool label) {
    out->tokens.push_back(token);
    learn.push_back(label);
  };
  const std::optional<int64_t> bos = tokenizer_->bos_id();
  const std::vector<TokenRun>* leading = pieces.empty() || !pieces[0].media ? nullptr : &runs[*pieces[0].media];
  if (bos && !(leading && std::ranges::any_of(*leading, [&](const TokenRun& run) { return token_of(run, *pieces[0].media) == bos; })))
    append(*bos, false);
  size_t first_label = 0;          // its place, for the message on what does not fit
  size_t media_end = 0;            // behind the last token of a medium
  bool ends_with_caption = false;  // else the end belongs to other words and is not learned
  bool begun = false;              // the next medium's first words are there already
  for (size_t p = 0; p < pieces.size(); ++p) {
    const CaptionTemplate::Piece& piece = pieces[p];
    ends_with_caption = false;
    if (piece.media) {
      const Modality m = *piece.media;
      for (size_t r = 0; r < runs[m].size(); ++r) {
        const TokenRun& run = runs[m][r];
        const std::optional<int64_t> token = token_of(run, m);
        if (!token && !(r == 0 && begun))
          for (int64_t word : tokenizer_->encode(text_of({run}))) append(word, false);
        for (int64_t i = 0; token && i < run.count; ++i) {
          if (run.feature) out->media_positions[m].push_back(static_cast<int64_t>(out->tokens.size()));
          append(*token, false);
        }
      }
      begun = false;
      media_end = out->tokens.size();
      continue;
    }
    // A medium may begin with words ("Frame1: "): they are one text with the words in front of them.
    std::string words;
    if (p + 1 < pieces.size() && pieces[p + 1].media) {
      const Modality m = *pieces[p + 1].media;
      if (!runs[m].empty() && !token_of(runs[m][0], m)) words = text_of({runs[m][0]});
      begun = !words.empty();
    }
    if (!piece.has_caption) {
      for (int64_t token : words.empty() ? piece.before_ids : tokenizer_->encode(piece.before + words)) append(token, false);
      continue;
    }
    // The caption is encoded together with the words around it, as a tokenizer sees them in one text; its own tokens are
    // those beyond what the words in front and behind give alone.
    const std::vector<int64_t> text = tokenizer_->encode(piece.before + caption + piece.after + words);
    for (Modality m : kAllModalities)
      if (takes(m) && decoders_[m].token != -1 && std::ranges::find(text, decoders_[m].token) != text.end())
        throw BadSampleError("bad_text", "its caption contains the " + std::string(name_of(m)) + " token");
    const std::vector<int64_t>&before = piece.before_ids, after = words.empty() ? piece.after_ids : tokenizer_->encode(piece.after + words);
    size_t from = 0, to = text.size();
    while (from < to && from < before.size() && text[from] == before[from]) ++from;
    for (size_t k = 0; to > from && k < after.size() && text[to - 1] == after[after.size() - 1 - k]; ++k) --to;
    first_label = out->tokens.size() + from;
    for (size_t i = 0; i < text.size(); ++i) append(text[i], i >= from && i < to);
    ends_with_caption = to == text.size();
  }
  if (tokenizer_->eos_id()) append(*tokenizer_->eos_id(), ends_with_caption);

  if (options_.max_length > 0 && static_cast<int64_t>(out->tokens.size()) > options_.max_length) {
    const size_t keep = static_cast<size_t>(options_.max_length);
    if (options_.drop_over_length)
      throw BadSampleError("too_long", std::to_string(out->tokens.size()) + " positions, data.max_length is " +
                                           std::to_string(options_.max_length));
    if (media_end > keep || keep <= first_label)
      throw BadSampleError("too_long", "its media and one token of its caption need " + std::to_string(first_label + 1) +
                                           " positions or more, data.max_length is " + std::to_string(options_.max_length));
    out->tokens.resize(keep);
    learn.resize(keep);
    out->cut = true;
  }
  out->labels.assign(out->tokens.size(), kIgnoreLabel);
  bool any = false;
  for (size_t i = 0; i + 1 < out->tokens.size(); ++i) {
    if (!learn[i + 1]) continue;
    out->labels[i] = out->tokens[i + 1];
    any = true;
  }
  if (!any) throw BadSampleError("no_label", "nothing in it can be predicted from what comes before");
}

static Modality modality_of_media(const std::string& name) {
  if (name == "input_features" || name.ends_with("attention_mask")) return Modality::kAudio;
  return name.find("video") != std::string::npos ? Modality::kVideo : Modality::kImage;
}

MicroBatch join_samples(const std::vector<const AssembledSample*>& samples, const std::vector<uint64_t>& ids,
                        BufferPool* pool) {
  MicroBatch batch;
  size_t total = 0;
  std::map<std::string, std::vector<int64_t>> shapes;
  std::map<std::string, DType> types;
  for (const AssembledSample* sample : samples) {
    total += sample->tokens.size();
    for (const auto& [name, tensor] : sample->media) {
      types.emplace(name, tensor.dtype);
      auto [shape, fresh] = shapes.emplace(name, tensor.shape);
      if (!fresh) shape->second[0] += tensor.shape[0];
    }
  }
  batch.tokens.reserve(total);
  batch.labels.reserve(total);
  batch.positions.reserve(total);
  batch.sample_starts.push_back(0);
  batch.sample_ids = ids;
  std::map<std::string, std::byte*> ends;
  for (const auto& [name, shape] : shapes) {
    HostTensor& joined = batch.media[name];
    joined = pool ? pool->tensor(types.at(name), shape, modality_of_media(name)) : HostTensor::make(types.at(name), shape);
    ends[name] = joined.bytes.data();
  }
  for (const AssembledSample* sample : samples) {
    const int64_t start = batch.size();
    batch.tokens.insert(batch.tokens.end(), sample->tokens.begin(), sample->tokens.end());
    batch.labels.insert(batch.labels.end(), sample->labels.begin(), sample->labels.end());
    for (size_t i = 0; i < sample->tokens.size(); ++i) batch.positions.push_back(static_cast<int64_t>(i));
    for (Modality m : kAllModalities)
      for (int64_t position : sample->media_positions[m]) batch.media_positions[name_of(m)].push_back(start + position);
    for (const auto& [name, tensor] : sample->media) {
      const std::vector<int64_t>& shape = shapes.at(name);
      if (!std::equal(shape.begin() + 1, shape.end(), tensor.shape.begin() + 1, tensor.shape.end()))
        throw Error("media of one kind have different shapes", name);
      std::memcpy(ends.at(name), tensor.bytes.data(), tensor.bytes.size());
      ends.at(name) += tensor.bytes.size();
    }
    batch.sample_starts.push_back(batch.size());
  }
  return batch;
}

}  // namespace mso
