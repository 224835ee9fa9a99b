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

}  // namespace

uint8_t reason_code(const std::string& reason) {
  for (size_t i = 1; i < std::size(kReasons); ++i)
    if (reason == kReasons[i]) return static_cast<uint8_t>(i);
  return 1;
}

const char* reason_name(uint8_t code) { return code > 0 && code < std::size(kReasons) ? kReasons[code] : kReasons[1]; }

SampleAssembler::SampleAssembler(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Tokenizer> tokenizer,
                                 PictureDecoder picture_decoder, AssemblerOptions options, PerModality<MediaDecoder> others)
    : dataset_(std::move(dataset)),
      tokenizer_(std::move(tokenizer)),
      picture_decoder_(std::move(picture_decoder)),
      options_(std::move(options)),
      decoders_(std::move(others)),
      template_(options_.text_template, *tokenizer_) {
  for (Modality m : {Modality::kVideo, Modality::kAudio})
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
    if (!takes(m)) continue;
    const int64_t id = m == Modality::kImage ? options_.image_token : decoders_[m].token;
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
    cost.picture += static_cast<int64_t>(media[m]) * (m == Modality::kImage ? picture_decoder_.tokens : decoders_[m].most_tokens);
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
  const PerModality<uint64_t> media = media_of(dataset_->sample(id));
  uint64_t bytes = static_cast<uint64_t>(cost(id).total()) * 3 * sizeof(int64_t);
  uint64_t pixels = sizeof(float);
  for (int64_t side : picture_decoder_.shape) pixels *= static_cast<uint64_t>(side);
  bytes += media[Modality::kImage] * pixels;
  for (Modality m : {Modality::kVideo, Modality::kAudio}) bytes += media[m] * decoders_[m].most_bytes;
  return bytes;
}

std::vector<std::byte> SampleAssembler::read_media(uint64_t id, const ShardMember& member, const char* what) const {
  if (member.size > options_.max_member_bytes)
    throw BadSampleError("too_large", "its " + std::string(what) + " has " + std::to_string(member.size) + " bytes");
  std::vector<std::byte> file;
  try {
    file = dataset_->read(id, member);
  } catch (const Error& error) {
    throw BadSampleError("read_error", error.what());
  }
  if (file.empty()) throw BadSampleError("decode_error", "its " + std::string(what) + " has 0 bytes");
  return file;
}

// Reads and decodes videos or sounds, each by itself.
std::vector<DecodedMedia> SampleAssembler::decode_media(uint64_t id, Modality m, const Members& members, BufferPool* pool,
                                                        AssembledSample* out) const {
  std::vector<DecodedMedia> decoded;
  for (const ShardMember* member : members) {
    const std::vector<std::byte> file = read_media(id, *member, name_of(m));
    out->bytes_read += file.size();
    ++out->counts[m];
    try {
      decoded.push_back(decoders_[m].decode(file, dataset_->describe(id) + "." + std::string(member->extension), pool));
    } catch (const std::exception& error) {
      throw BadSampleError("decode_error", error.what());
    }
  }
  return decoded;
}

// Reads and decodes pictures into one tensor of `out`.
void SampleAssembler::decode_pictures(uint64_t id, const Members& members, BufferPool* pool, AssembledSample* out) const {
  if (members.empty()) return;
  std::vector<int64_t> shape{static_cast<int64_t>(members.size())};
  shape.insert(shape.end(), picture_decoder_.shape.begin(), picture_decoder_.shape.end());
  HostTensor& pixels = out->media[picture_decoder_.media_name];
  pixels = pool ? pool->tensor(DType::kF32, shape) : HostTensor::make(DType::kF32, shape);
  const int64_t each = pixels.count() / shape[0];
  for (size_t k = 0; k < members.size(); ++k) {
    const std::vector<std::byte> file = read_media(id, *members[k], "picture");
    out->bytes_read += file.size();
    ++out->counts[Modality::kImage];
    try {
      picture_decoder_.decode(file, pixels.data<float>() + static_cast<int64_t>(k) * each);
    } catch (const std::exception& error) {
      const std::string which = members.size() > 1 ? "its picture ." + std::string(members[k]->extension) + ": " : "";
      throw BadSampleError("decode_error", which + error.what());
    }
  }
}

namespace {

// Puts the first `kept` of them into `media` as one, joined along the first dimension.
void join_media(std::vector<DecodedMedia> decoded, size_t kept, Modality m, const std::string& name, BufferPool* pool,
                std::map<std::string, HostTensor>* media) {
  if (pool)
    for (size_t k = kept; k < decoded.size(); ++k) pool->give_back(std::move(decoded[k].tensor));
  if (kept == 0) return;
  if (kept == 1) {
    media->insert_or_assign(name, std::move(decoded[0].tensor));
    return;
  }
  std::vector<int64_t> shape = decoded[0].tensor.shape;
  for (size_t k = 1; k < kept; ++k) {
    const std::vector<int64_t>& other = decoded[k].tensor.shape;
    if (!std::equal(shape.begin() + 1, shape.end(), other.begin() + 1, other.end()))
      throw Error("media of one kind have different shapes", name);
    shape[0] += other[0];
  }
  HostTensor joined = pool ? pool->tensor(DType::kF32, shape, m) : HostTensor::make(DType::kF32, shape);
  std::byte* end = joined.bytes.data();
  for (size_t k = 0; k < kept; ++k) {
    HostTensor& part = decoded[k].tensor;
    std::memcpy(end, part.bytes.data(), part.bytes.size());
    end += part.bytes.size();
    if (pool) pool->give_back(std::move(part));
  }
  media->insert_or_assign(name, std::move(joined));
}

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
  PerModality<Members> members;
  for (size_t i = 0; i < media.size(); ++i) {
    const Modality m = modality_of(media[i].kind);
    if (!takes(m))
      throw BadSampleError("bad_conversation", read.conversation.where + ": the model takes no " + name_of(m));
    members[m].push_back(read.media[i]);
  }
  if (!members[Modality::kImage].empty() && (sample.flags & kSampleBadPictureSize))
    throw BadSampleError("decode_error", "its picture has an impossible size");
  // Only media whose number of positions decoding tells are decoded before it is known what a cut leaves of them.
  PerModality<std::vector<DecodedMedia>> decoded;
  for (Modality m : {Modality::kVideo, Modality::kAudio})
    if (!decoders_[m].same_tokens) decoded[m] = decode_media(id, m, members[m], pool, out);
  std::vector<std::vector<TokenRun>> expansions;
  PerModality<size_t> next;
  for (const MediumRef& medium : media) {
    const Modality m = modality_of(medium.kind);
    int64_t count = picture_decoder_.tokens;
    if (m != Modality::kImage)
      count = decoders_[m].same_tokens ? decoders_[m].most_tokens : decoded[m][next[m]++].tokens;
    expansions.push_back({{media_tokens_[m], count, true}});
  }
  EncodedConversation encoded = options_.conversations->encode(read.conversation, expansions);
  PerModality<size_t> kept;  // of each kind the first ones
  for (size_t i = 0; i < media.size(); ++i) kept[modality_of(media[i].kind)] += encoded.kept[i];
  for (Modality m : {Modality::kImage, Modality::kVideo, Modality::kAudio}) {
    members[m].resize(kept[m]);
    if (m == Modality::kImage) {
      decode_pictures(id, members[m], pool, out);
      continue;
    }
    if (decoders_[m].same_tokens) decoded[m] = decode_media(id, m, members[m], pool, out);
    out->counts[m] = kept[m];
    join_media(std::move(decoded[m]), kept[m], m, decoders_[m].media_name, pool, &out->media);
  }
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

  std::vector<bool> learn;  // per token: whether it is a label
  auto append = [&](int64_t token, bool label) {
    out->tokens.push_back(token);
    learn.push_back(label);
  };
  if (tokenizer_->bos_id()) append(*tokenizer_->bos_id(), false);
  size_t first_label = 0;          // its place, for the message on what does not fit
  bool ends_with_caption = false;  // else the end belongs to other words and is not learned
  for (const CaptionTemplate::Piece& piece : template_.pieces(present)) {
    ends_with_caption = false;
    if (piece.media) {
      const Modality m = *piece.media;
      int64_t count = picture_decoder_.tokens;
      if (m == Modality::kImage) {
        decode_pictures(id, {members[static_cast<size_t>(m)]}, pool, out);
      } else {
        std::vector<DecodedMedia> decoded = decode_media(id, m, {members[static_cast<size_t>(m)]}, pool, out);
        count = decoded[0].tokens;
        join_media(std::move(decoded), 1, m, decoders_[m].media_name, pool, &out->media);
      }
      const int64_t token = m == Modality::kImage ? options_.image_token : decoders_[m].token;
      for (int64_t i = 0; i < count; ++i) {
        out->media_positions[m].push_back(static_cast<int64_t>(out->tokens.size()));
        append(token, false);
      }
      continue;
    }
    if (!piece.has_caption) {
      for (int64_t token : piece.before_ids) append(token, false);
      continue;
    }
    // The caption is encoded together with the words around it, as a tokenizer sees them in one text; its own tokens are
    // those beyond what the words in front and behind give alone.
    const std::vector<int64_t> text = tokenizer_->encode(piece.before + caption + piece.after);
    for (Modality m : kAllModalities) {
      const int64_t token = m == Modality::kImage ? options_.image_token : decoders_[m].token;
      if (!mark_of(m).empty() && std::ranges::find(text, token) != text.end())
        throw BadSampleError("bad_text", "its caption contains the " + std::string(name_of(m)) + " token");
    }
    const std::vector<int64_t>&before = piece.before_ids, &after = piece.after_ids;
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
    bool media_cut = false;
    for (const std::vector<int64_t>& positions : out->media_positions)
      media_cut |= !positions.empty() && positions.back() >= options_.max_length;
    if (media_cut || keep <= first_label)
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
  return name == "pixel_values_videos" ? Modality::kVideo
         : name == "input_features"    ? Modality::kAudio
                                       : Modality::kImage;
}

MicroBatch join_samples(const std::vector<const AssembledSample*>& samples, const std::vector<uint64_t>& ids,
                        BufferPool* pool) {
  MicroBatch batch;
  size_t total = 0;
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const AssembledSample* sample : samples) {
    total += sample->tokens.size();
    for (const auto& [name, tensor] : sample->media) {
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
    joined = pool ? pool->tensor(DType::kF32, shape, modality_of_media(name)) : HostTensor::make(DType::kF32, shape);
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
