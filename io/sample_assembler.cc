#include "io/sample_assembler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "io/caption.h"

namespace mso {
namespace {

// Order is part of the agreement between ranks and never changes; new ones go to the end.
constexpr const char* kReasons[] = {"",           "other",        "truncated_shard", "duplicate_member", "bad_member",
                                    "odd_name",   "no_picture",   "no_caption",      "empty_caption",    "bad_text",
                                    "bad_json",   "too_long",     "too_large",       "read_error",       "decode_error",
                                    "no_label",   "bad_conversation", "missing_media", "template_error"};
constexpr std::string_view kCaptionMark = "{caption}";
// In the order of Modality; text has none.
constexpr std::string_view kMediaMarks[kModalities] = {"", "<audio>", "<image>", "<video>"};
std::string_view mark_of(Modality m) { return kMediaMarks[static_cast<size_t>(m)]; }

const char* explain_unusable(const std::string& reason) {
  if (reason == "truncated_shard") return "the shard ends in or right behind it, so parts of it may be missing";
  if (reason == "duplicate_member") return "two members have the same name, so it is unknown which is right";
  if (reason == "bad_member") return "a member is a link without target, a sparse file or cut off";
  return "its picture or caption has a second dot in its name, where WebDataset ends the key at the first";
}

}  // namespace

uint8_t reason_code(const std::string& reason) {
  for (size_t i = 1; i < std::size(kReasons); ++i)
    if (reason == kReasons[i]) return static_cast<uint8_t>(i);
  return 1;
}

const char* reason_name(uint8_t code) { return code > 0 && code < std::size(kReasons) ? kReasons[code] : kReasons[1]; }

// A run of text, encoded as one, or the place of one medium.
struct SampleAssembler::Piece {
  std::optional<Modality> media;
  bool has_caption = false;
  std::string before, after;  // around the caption; without one, all is `before`
  std::vector<int64_t> before_ids, after_ids;
};

// "A <image> B {caption} C" in parts, and for every set of media that a sample may lack, the pieces that are left: text
// on both sides of a mark that is left out is one piece.
struct SampleAssembler::Template {
  using Present = unsigned;  // bit per Modality
  static constexpr Present bit(Modality m) { return 1u << static_cast<unsigned>(m); }

  Present marks = 0;
  std::vector<std::pair<std::string_view, std::string>> parts;  // {mark or empty, text}
  std::vector<std::vector<Piece>> variants{1u << kModalities};

  explicit Template(const std::string& text, const Tokenizer& tokenizer) {
    auto refuse = [&](const std::string& what) {
      return Error("wrong template: " + what, "data.template: " + text, "the default is <image>{caption}", ExitCode::kBadUsage);
    };
    bool caption = false;
    std::string words;
    for (size_t at = 0; at < text.size();) {
      const std::string_view rest = std::string_view(text).substr(at);
      std::string_view mark;
      if (rest.starts_with(kCaptionMark)) {
        if (caption) throw refuse("{caption} comes twice");
        caption = true;
        mark = kCaptionMark;
      }
      for (Modality m : kAllModalities) {
        if (mark_of(m).empty() || !rest.starts_with(mark_of(m))) continue;
        if (marks & bit(m)) throw refuse(std::string(mark_of(m)) + " comes twice");
        marks |= bit(m);
        mark = mark_of(m);
      }
      if (mark.empty()) {
        words += text[at++];
        continue;
      }
      parts.emplace_back(std::string_view(), std::exchange(words, {}));
      parts.emplace_back(mark, std::string());
      at += mark.size();
    }
    parts.emplace_back(std::string_view(), words);
    if (!caption) throw refuse("{caption} is missing");
    for (Present present = 0; present < variants.size(); ++present)
      if ((present & ~marks) == 0) variants[present] = pieces(present, tokenizer);
  }

  std::vector<Piece> pieces(Present present, const Tokenizer& tokenizer) const {
    std::vector<Piece> made(1);
    for (const auto& [mark, words] : parts) {
      Piece& last = made.back();
      (last.has_caption ? last.after : last.before) += words;
      if (mark == kCaptionMark) last.has_caption = true;
      for (Modality m : kAllModalities) {
        if (mark.empty() || mark != mark_of(m) || !(present & bit(m))) continue;
        Piece place;
        place.media = m;
        made.push_back(place);
        made.emplace_back();
      }
    }
    std::erase_if(made, [](const Piece& p) { return !p.media && !p.has_caption && p.before.empty(); });
    for (Piece& piece : made) {
      piece.before_ids = tokenizer.encode(piece.before);
      piece.after_ids = tokenizer.encode(piece.after);
    }
    return made;
  }
};

SampleAssembler::SampleAssembler(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Tokenizer> tokenizer,
                                 PictureDecoder picture_decoder, AssemblerOptions options, PerModality<MediaDecoder> others)
    : dataset_(std::move(dataset)),
      tokenizer_(std::move(tokenizer)),
      picture_decoder_(std::move(picture_decoder)),
      options_(std::move(options)),
      decoders_(std::move(others)),
      template_(std::make_unique<Template>(options_.text_template, *tokenizer_)) {
  for (Modality m : {Modality::kVideo, Modality::kAudio})
    if ((template_->marks & Template::bit(m)) && !decoders_[m].decode)
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
  }
}

SampleAssembler::~SampleAssembler() = default;

// The file of a sample that stands for the template's mark of `m`; nullptr without mark or file.
const ShardMember* SampleAssembler::member_for(const ShardSample& sample, Modality m) const {
  if (m == Modality::kText || !(template_->marks & Template::bit(m))) return nullptr;
  if (m == Modality::kImage) return sample.picture();
  for (const ShardMember& member : sample.members)
    if (media_of_extension(member.extension) == m) return &member;
  return nullptr;
}

Modality SampleAssembler::modality(uint64_t id) const {
  const ShardSample& sample = dataset_->sample(id);
  for (Modality m : {Modality::kVideo, Modality::kImage, Modality::kAudio})
    if (member_for(sample, m)) return m;
  return Modality::kText;
}

SampleCost SampleAssembler::cost(uint64_t id) const {
  const ShardSample& sample = dataset_->sample(id);
  SampleCost cost;
  if (member_for(sample, Modality::kImage)) cost.picture = picture_decoder_.tokens;
  for (Modality m : {Modality::kVideo, Modality::kAudio})
    if (member_for(sample, m)) cost.picture += decoders_[m].most_tokens;
  double bytes = sample.text_bytes;
  if (options_.caption != "txt") {
    // The caption's length is not in the index; the size of the whole JSON is the best that is known, and only the
    // balance between ranks hangs on it.
    const ShardMember* json = sample.find("json");
    bytes = json ? std::min<double>(static_cast<double>(json->size), 4096) / 2 : 0;
  }
  size_t fixed = 0;
  for (const Piece& piece : template_->variants[0]) fixed += piece.before_ids.size() + piece.after_ids.size();
  cost.text = static_cast<int64_t>(std::ceil(bytes / options_.bytes_per_token)) + static_cast<int64_t>(fixed) + 2;
  if (options_.max_length > 0)
    cost.text = std::max<int64_t>(1, std::min(cost.text, options_.max_length - cost.picture));
  return cost;
}

uint64_t SampleAssembler::decoded_bytes(uint64_t id) const {
  const ShardSample& sample = dataset_->sample(id);
  uint64_t bytes = static_cast<uint64_t>(cost(id).total()) * 3 * sizeof(int64_t);
  if (member_for(sample, Modality::kImage)) {
    uint64_t pixels = sizeof(float);
    for (int64_t side : picture_decoder_.shape) pixels *= static_cast<uint64_t>(side);
    bytes += pixels;
  }
  for (Modality m : {Modality::kVideo, Modality::kAudio})
    if (member_for(sample, m)) bytes += decoders_[m].most_bytes;
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

// Reads and decodes one file into `out`; returns the positions it fills.
int64_t SampleAssembler::decode_media(uint64_t id, Modality m, const ShardMember& member, BufferPool* pool,
                                      AssembledSample* out) const {
  const char* what = m == Modality::kImage ? "picture" : name_of(m);
  const std::vector<std::byte> file = read_media(id, member, what);
  out->bytes_read += file.size();
  ++out->counts[m];
  try {
    if (m != Modality::kImage) {
      const MediaDecoder& decoder = decoders_[m];
      DecodedMedia decoded = decoder.decode(file, dataset_->describe(id) + "." + std::string(member.extension), pool);
      out->media.insert_or_assign(decoder.media_name, std::move(decoded.tensor));
      return decoded.tokens;
    }
    std::vector<int64_t> shape{1};
    shape.insert(shape.end(), picture_decoder_.shape.begin(), picture_decoder_.shape.end());
    HostTensor& pixels = out->media[picture_decoder_.media_name];
    pixels = pool ? pool->tensor(DType::kF32, shape) : HostTensor::make(DType::kF32, shape);
    picture_decoder_.decode(file, pixels.data<float>());
    return picture_decoder_.tokens;
  } catch (const std::exception& error) {
    throw BadSampleError("decode_error", error.what());
  }
}

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
    assemble_into(id, pool, &out);
    for (auto& [name, tensor] : out.media) BufferPool::park(tensor);  // until it is joined into a batch
    return out;
  } catch (const std::exception& error) {
    if (pool) out.give_back(*pool);
    if (dynamic_cast<const BadSampleError*>(&error)) throw;
    throw BadSampleError("other", error.what());  // a tokenizer's limit, no memory for a huge picture …
  }
}

void SampleAssembler::assemble_into(uint64_t id, BufferPool* pool, AssembledSample* out) const {
  const ShardSample& sample = dataset_->sample(id);
  const std::string unusable = dataset_->unusable_reason(id);
  if (!unusable.empty()) throw BadSampleError(unusable, explain_unusable(unusable));
  const ShardMember* members[kModalities];
  Template::Present present = 0;
  for (Modality m : kAllModalities)
    if ((members[static_cast<size_t>(m)] = member_for(sample, m))) present |= Template::bit(m);
  if ((present & Template::bit(Modality::kImage)) && (sample.flags & kSampleBadPictureSize))
    throw BadSampleError("decode_error", "its picture has an impossible size");
  const CaptionResult read = read_caption(*dataset_, id, sample, options_.caption);
  if (!read.reason.empty()) throw BadSampleError(read.reason, read.detail);
  const std::string& caption = read.text;
  out->bytes_read += read.bytes_read;

  const std::vector<Piece>& pieces = template_->variants[present];
  std::vector<bool> learn;  // per token: whether it is a label
  auto append = [&](int64_t token, bool label) {
    out->tokens.push_back(token);
    learn.push_back(label);
  };
  if (tokenizer_->bos_id()) append(*tokenizer_->bos_id(), false);
  size_t first_label = 0;          // its place, for the message on what does not fit
  bool ends_with_caption = false;  // else the end belongs to other words and is not learned
  for (const Piece& piece : pieces) {
    ends_with_caption = false;
    if (piece.media) {
      const Modality m = *piece.media;
      const int64_t count = decode_media(id, m, *members[static_cast<size_t>(m)], pool, out);
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
