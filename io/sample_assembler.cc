#include "io/sample_assembler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/json_text.h"
#include "io/utf8.h"

namespace mso {
namespace {

// Order is part of the agreement between ranks and never changes; new ones go to the end.
constexpr const char* kReasons[] = {"",           "other",        "truncated_shard", "duplicate_member", "bad_member",
                                    "odd_name",   "no_picture",   "no_caption",      "empty_caption",    "bad_text",
                                    "bad_json",   "too_long",     "too_large",       "read_error",       "decode_error",
                                    "no_label"};
constexpr uint64_t kMaxTextBytes = 1 << 20, kMaxJsonBytes = 16 << 20;
constexpr std::string_view kImageMark = "<image>", kCaptionMark = "{caption}";

std::string_view trim(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // byte order mark
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

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

// "A <image> B {caption} C": text before the image, and the text around the caption. The caption may stand on either
// side of the image.
struct SampleAssembler::Template {
  bool has_image = false, caption_first = false;
  std::string other;          // the side of the image mark that has no caption
  std::string before, after;  // around the caption
  std::vector<int64_t> other_ids, before_ids, after_ids;
  // Text only: what stands on the other side joins this one, for the mark is left out.
  std::string before_text_only, after_text_only;
  std::vector<int64_t> before_text_only_ids, after_text_only_ids;

  explicit Template(std::string_view text) {
    auto refuse = [&](const char* what) {
      return Error(std::string("wrong template: ") + what, "data.template: " + std::string(text),
                   "the default is <image>{caption}", ExitCode::kBadUsage);
    };
    const size_t image = text.find(kImageMark), caption = text.find(kCaptionMark);
    if (caption == std::string_view::npos) throw refuse("{caption} is missing");
    if (text.find(kCaptionMark, caption + 1) != std::string_view::npos) throw refuse("{caption} comes twice");
    has_image = image != std::string_view::npos;
    if (has_image && text.find(kImageMark, image + 1) != std::string_view::npos) throw refuse("<image> comes twice");
    std::string_view side = text;
    if (has_image) {
      caption_first = caption < image;
      std::string_view left = text.substr(0, image), right = text.substr(image + kImageMark.size());
      other = caption_first ? right : left;
      side = caption_first ? left : right;
    }
    const size_t at = side.find(kCaptionMark);
    before = side.substr(0, at);
    after = side.substr(at + kCaptionMark.size());
    before_text_only = caption_first ? before : other + before;
    after_text_only = caption_first ? after + other : after;
  }
};

SampleAssembler::SampleAssembler(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Tokenizer> tokenizer,
                                 PictureDecoder picture_decoder, AssemblerOptions options)
    : dataset_(std::move(dataset)),
      tokenizer_(std::move(tokenizer)),
      picture_decoder_(std::move(picture_decoder)),
      options_(std::move(options)),
      template_(std::make_unique<Template>(options_.text_template)) {
  if (options_.caption != "txt") {
    try {
      if (options_.caption.empty() || options_.caption[0] != '/') throw std::invalid_argument("no pointer");
      (void)nlohmann::json::json_pointer(options_.caption);
    } catch (const std::exception&) {
      throw Error("wrong caption source", "data.caption: " + options_.caption,
                  "txt, or a JSON pointer into the .json member such as /captions/en", ExitCode::kBadUsage);
    }
  }
  Template& t = *template_;
  t.other_ids = tokenizer_->encode(t.other);
  t.before_ids = tokenizer_->encode(t.before);
  t.after_ids = tokenizer_->encode(t.after);
  t.before_text_only_ids = tokenizer_->encode(t.before_text_only);
  t.after_text_only_ids = tokenizer_->encode(t.after_text_only);
}

SampleAssembler::~SampleAssembler() = default;

SampleCost SampleAssembler::cost(uint64_t id) const {
  const ShardSample& sample = dataset_->sample(id);
  SampleCost cost;
  if (template_->has_image && sample.picture()) cost.picture = picture_decoder_.tokens;
  double bytes = sample.text_bytes;
  if (options_.caption != "txt") {
    // The caption's length is not in the index; the size of the whole JSON is the best that is known, and only the
    // balance between ranks hangs on it.
    const ShardMember* json = sample.find("json");
    bytes = json ? std::min<double>(static_cast<double>(json->size), 4096) / 2 : 0;
  }
  const size_t fixed = template_->other_ids.size() + template_->before_ids.size() + template_->after_ids.size();
  cost.text = static_cast<int64_t>(std::ceil(bytes / options_.bytes_per_token)) + static_cast<int64_t>(fixed) + 2;
  if (options_.max_length > 0)
    cost.text = std::max<int64_t>(1, std::min(cost.text, options_.max_length - cost.picture));
  return cost;
}

uint64_t SampleAssembler::decoded_bytes(uint64_t id) const {
  const SampleCost c = cost(id);
  uint64_t bytes = static_cast<uint64_t>(c.total()) * 3 * sizeof(int64_t);
  if (c.picture > 0) {
    uint64_t pixels = sizeof(float);
    for (int64_t side : picture_decoder_.shape) pixels *= static_cast<uint64_t>(side);
    bytes += pixels;
  }
  return bytes;
}

std::string SampleAssembler::caption_of(uint64_t id, const ShardSample& sample) const {
  const bool json = options_.caption != "txt";
  const ShardMember* member = sample.find(json ? "json" : "txt");
  if (!member) throw BadSampleError("no_caption", std::string("there is no .") + (json ? "json" : "txt"));
  if (member->size > (json ? kMaxJsonBytes : kMaxTextBytes))
    throw BadSampleError("too_large", "its ." + member->extension + " has " + std::to_string(member->size) + " bytes");
  std::vector<std::byte> bytes;
  try {
    bytes = dataset_->read(id, *member);
  } catch (const Error& error) {
    throw BadSampleError("read_error", error.what());
  }
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (json) {
    try {
      const auto document = parse_shallow_json(text);
      const auto pointer = nlohmann::json::json_pointer(options_.caption);
      if (!document.contains(pointer)) throw BadSampleError("no_caption", "its .json has no " + options_.caption);
      const auto& value = document.at(pointer);
      if (!value.is_string()) throw BadSampleError("bad_json", options_.caption + " is not a text");
      text = value.get<std::string>();
    } catch (const nlohmann::json::exception& error) {
      throw BadSampleError("bad_json", error.what());
    }
    if (text.size() > kMaxTextBytes) throw BadSampleError("too_large", "its caption has more than 1 MiB");
  }
  std::string_view trimmed = trim(text);
  if (trimmed.empty()) throw BadSampleError("empty_caption", "its caption is empty");
  std::string storage;
  if (valid_utf8(trimmed, storage).data() != trimmed.data()) throw BadSampleError("bad_text", "its caption is not UTF-8");
  return std::string(trimmed);
}

AssembledSample SampleAssembler::assemble(uint64_t id, BufferPool* pool) const try {
  const ShardSample& sample = dataset_->sample(id);
  const std::string unusable = dataset_->unusable_reason(id);
  if (!unusable.empty()) throw BadSampleError(unusable, explain_unusable(unusable));
  if (sample.flags & kSampleBadPictureSize) throw BadSampleError("decode_error", "its picture has an impossible size");
  const std::string caption = caption_of(id, sample);

  const Template& t = *template_;
  const ShardMember* picture = t.has_image ? sample.picture() : nullptr;
  const bool with_picture = picture != nullptr;
  const std::string& before = with_picture ? t.before : t.before_text_only;
  const std::string& after = with_picture ? t.after : t.after_text_only;
  const std::vector<int64_t>& before_ids = with_picture ? t.before_ids : t.before_text_only_ids;
  const std::vector<int64_t>& after_ids = with_picture ? t.after_ids : t.after_text_only_ids;

  // The caption is encoded together with the words around it, as a tokenizer sees them in one text; its own tokens are
  // those beyond what the words in front and behind give alone.
  const std::vector<int64_t> text = tokenizer_->encode(before + caption + after);
  if (std::find(text.begin(), text.end(), options_.image_token) != text.end())
    throw BadSampleError("bad_text", "its caption contains the image token");
  size_t from = 0, to = text.size();
  while (from < to && from < before_ids.size() && text[from] == before_ids[from]) ++from;
  for (size_t k = 0; to > from && k < after_ids.size() && text[to - 1] == after_ids[after_ids.size() - 1 - k]; ++k) --to;

  AssembledSample out;
  std::vector<bool> learn;  // per token: whether it is a label
  auto append = [&](int64_t token, bool label) {
    out.tokens.push_back(token);
    learn.push_back(label);
  };
  auto append_image = [&] {
    for (int64_t i = 0; with_picture && i < picture_decoder_.tokens; ++i) {
      out.image_positions.push_back(static_cast<int64_t>(out.tokens.size()));
      append(options_.image_token, false);
    }
  };
  if (tokenizer_->bos_id()) append(*tokenizer_->bos_id(), false);
  if (with_picture && !t.caption_first) {
    for (int64_t token : t.other_ids) append(token, false);
    append_image();
  }
  const size_t text_at = out.tokens.size();
  for (size_t i = 0; i < text.size(); ++i) append(text[i], i >= from && i < to);
  if (with_picture && t.caption_first) {
    append_image();
    for (int64_t token : t.other_ids) append(token, false);
  }
  // With the image or other words behind the caption the end belongs to them and is not learned.
  const bool ends_with_caption = to == text.size() && !(with_picture && t.caption_first);
  if (tokenizer_->eos_id()) append(*tokenizer_->eos_id(), ends_with_caption);

  if (options_.max_length > 0 && static_cast<int64_t>(out.tokens.size()) > options_.max_length) {
    const size_t keep = static_cast<size_t>(options_.max_length);
    const bool image_cut = !out.image_positions.empty() && out.image_positions.back() >= options_.max_length;
    if (image_cut || keep <= text_at + from)
      throw BadSampleError("too_long", "its image and one token of its caption need " +
                                           std::to_string(text_at + from + 1) + " positions or more, data.max_length is " +
                                           std::to_string(options_.max_length));
    out.tokens.resize(keep);
    learn.resize(keep);
    out.cut = true;
  }
  out.labels.assign(out.tokens.size(), kIgnoreLabel);
  bool any = false;
  for (size_t i = 0; i + 1 < out.tokens.size(); ++i) {
    if (!learn[i + 1]) continue;
    out.labels[i] = out.tokens[i + 1];
    any = true;
  }
  if (!any) throw BadSampleError("no_label", "nothing in it can be predicted from what comes before");

  if (with_picture) {
    if (picture->size > options_.max_member_bytes)
      throw BadSampleError("too_large", "its picture has " + std::to_string(picture->size) + " bytes");
    std::vector<std::byte> file;
    try {
      file = dataset_->read(id, *picture);
    } catch (const Error& error) {
      throw BadSampleError("read_error", error.what());
    }
    if (file.empty()) throw BadSampleError("decode_error", "its picture has 0 bytes");
    HostTensor pixels = pool ? pool->tensor(DType::kF32, picture_decoder_.shape)
                             : HostTensor::make(DType::kF32, picture_decoder_.shape);
    try {
      picture_decoder_.decode(file, pixels.data<float>());
    } catch (const std::exception& error) {
      if (pool) pool->give_back(std::move(pixels));
      throw BadSampleError("decode_error", error.what());
    }
    out.pictures.push_back(std::move(pixels));
  }
  return out;
} catch (const BadSampleError&) {
  throw;
} catch (const std::exception& error) {  // a tokenizer's limit, no memory for a huge picture …
  throw BadSampleError("other", error.what());
}

MicroBatch join_samples(const std::vector<const AssembledSample*>& samples, const std::vector<uint64_t>& ids,
                        const PictureDecoder& picture_decoder, BufferPool* pool) {
  MicroBatch batch;
  size_t total = 0, pictures = 0;
  for (const AssembledSample* sample : samples) {
    total += sample->tokens.size();
    pictures += sample->pictures.size();
  }
  batch.tokens.reserve(total);
  batch.labels.reserve(total);
  batch.positions.reserve(total);
  batch.sample_starts.push_back(0);
  batch.sample_ids = ids;
  std::byte* pixels = nullptr;
  if (pictures > 0) {
    std::vector<int64_t> shape{static_cast<int64_t>(pictures)};
    shape.insert(shape.end(), picture_decoder.shape.begin(), picture_decoder.shape.end());
    HostTensor& media = batch.media[picture_decoder.media_name];
    media = pool ? pool->tensor(DType::kF32, shape) : HostTensor::make(DType::kF32, shape);
    pixels = media.bytes.data();
  }
  for (const AssembledSample* sample : samples) {
    const int64_t start = batch.size();
    batch.tokens.insert(batch.tokens.end(), sample->tokens.begin(), sample->tokens.end());
    batch.labels.insert(batch.labels.end(), sample->labels.begin(), sample->labels.end());
    for (size_t i = 0; i < sample->tokens.size(); ++i) batch.positions.push_back(static_cast<int64_t>(i));
    for (int64_t position : sample->image_positions) batch.media_positions["image"].push_back(start + position);
    for (const HostTensor& picture : sample->pictures) {
      std::memcpy(pixels, picture.bytes.data(), picture.bytes.size());
      pixels += picture.bytes.size();
    }
    batch.sample_starts.push_back(batch.size());
  }
  return batch;
}

}  // namespace mso
