#include "io/tokenizer_sentencepiece.h"

#include <algorithm>

#include "base/error.h"

#ifdef MSO_HAVE_SENTENCEPIECE
#include <sentencepiece_processor.h>

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/json_text.h"
#include "io/json_node.h"
#include "io/tokenizer_added.h"
#include "io/tokenizer_steps.h"
#include "io/utf8.h"
#endif

namespace mso {

namespace {
constexpr std::string_view kWrapped = "{\"sentencepiece_model\": \"";
}

bool is_sentencepiece_model(std::string_view bytes) {
  if (bytes.starts_with(kWrapped)) return true;
  // The first field of its protobuf is the first piece: 0x0a, lengths and types below 0x09 soon follow. JSON has none.
  return bytes.starts_with('\x0a') && std::any_of(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(bytes.size(), 64)),
                                                  [](char c) { return static_cast<uint8_t>(c) < 0x09; });
}

#ifndef MSO_HAVE_SENTENCEPIECE

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(std::string, std::string, const std::string& name) {
  throw Error("this build reads no SentencePiece models", name, "install libsentencepiece-dev and configure again, or use a tokenizer.json",
              ExitCode::kBadUsage);
}

#else

namespace {
using nlohmann::json;

constexpr std::string_view kMarker = "\u2581";
constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string wrapped(std::string_view bytes) {
  std::string out(kWrapped);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += i + k <= bytes.size() ? kBase64[group >> (18 - 6 * k) & 63] : '=';
  }
  return out + "\"}\n";
}

std::string unwrapped(std::string_view text, const std::string& name) {
  std::string out;
  uint32_t group = 0;
  int bits = 0;
  for (char c : text.substr(kWrapped.size())) {
    if (c == '"' || c == '=') return out;
    const size_t value = kBase64.find(c);
    if (value == std::string_view::npos) break;
    group = group << 6 | static_cast<uint32_t>(value);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out += static_cast<char>(group >> bits & 255);
    }
  }
  throw Error("damaged SentencePiece model", name, "take the file again from where the model came from", ExitCode::kBadUsage);
}
constexpr int64_t kMaxId = (1 << 24) - 1;

std::string content_of(const JsonNode& token) { return token.value().is_object() ? token["content"].string() : token.string(); }

// A segment's text and, for each of its bytes, where it comes from.
struct Prepared {
  std::string text;
  TextOrigin origin;
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string model, std::string config_text, const std::string& name) {
    const json config = config_text.empty() ? json::object() : parse(config_text, name);
    const std::string config_name = name + " (its tokenizer_config.json)";
    const JsonNode node(config, config_name);
    if (!config.is_object()) node.fail("not a JSON object");
    const std::string kind = node.has("tokenizer_class") ? node["tokenizer_class"].string() : "LlamaTokenizer";
    t5_ = kind.starts_with("T5");
    legacy_ = node.boolean("legacy", true);
    prefix_space_ = node.boolean("add_prefix_space", true);
    add_bos_ = !t5_ && node.boolean("add_bos_token", true);
    add_eos_ = t5_ || node.boolean("add_eos_token", false);
    if (std::string_view(model).starts_with(kWrapped)) model = unwrapped(model, name);
    source_text_ = wrapped(model);
    config_text_ = std::move(config_text);
    // Later fields of a protobuf win: normalizer_spec { add_dummy_prefix: false }.
    if (!legacy_) model += std::string("\x1a\x02\x18\x00", 4);
    const auto status = pieces_.LoadFromSerializedProto(model);
    if (!status.ok())
      throw Error("not a SentencePiece model", name + ": " + status.ToString(), "take the file again from where the model came from",
                  ExitCode::kBadUsage);
    add_tokens(node);
    for (const char* unk : {"unk_token"})
      if (node.has(unk)) unk_token_ = content_of(node[unk]);
    std::vector<int> unk;
    (void)pieces_.Encode(unk_token_, &unk);
    unk_length_ = unk.size();
    vocabulary_size_ = pieces_.GetPieceSize();
    for (const AddedToken& token : added_->tokens()) vocabulary_size_ = std::max(vocabulary_size_, token.id + 1);
  }

  std::vector<int64_t> encode(std::string_view utf8, bool add_special_tokens) const override {
    std::vector<int64_t> ids;
    if (add_special_tokens && add_bos_ && bos_id_) ids.push_back(*bos_id_);
    tokenize(utf8, ids, nullptr);
    if (add_special_tokens && add_eos_ && eos_id_ && !(t5_ && !ids.empty() && ids.back() == *eos_id_)) ids.push_back(*eos_id_);
    return ids;
  }

  std::vector<int64_t> encode_with_spans(std::string_view utf8, std::vector<TokenSpan>& spans) const override {
    std::vector<int64_t> ids;
    spans.clear();
    tokenize(utf8, ids, &spans);
    return ids;
  }

  std::string decode(std::span<const int64_t> ids, bool skip_special) const override {
    std::string out;
    std::vector<int> run;
    bool first = true;
    auto flush = [&] {
      if (run.empty()) return;
      std::string text, storage;
      (void)pieces_.Decode(run, &text);
      // Without the dummy prefix, and behind other runs, the marker of the first word is a space.
      const std::string piece = pieces_.IdToPiece(run[0]);
      if (!first && piece.starts_with(kMarker) && !text.starts_with(' ')) out += ' ';
      if (first && text.starts_with(' ') && piece.starts_with(kMarker) && prefix_space_) text.erase(0, 1);
      out += valid_utf8(text, storage);
      run.clear();
      first = false;
    };
    for (int64_t id : ids) {
      auto added = by_id_.find(id);
      if (added != by_id_.end()) {
        flush();
        const AddedToken& token = added_->tokens()[added->second];
        if (!(skip_special && token.special)) out += token.content, first = false;
      } else if (id >= 0 && id < pieces_.GetPieceSize()) {
        run.push_back(static_cast<int>(id));
      }
    }
    flush();
    return out;
  }

  int64_t vocabulary_size() const override { return vocabulary_size_; }

  std::optional<int64_t> token_id(std::string_view token) const override {
    auto added = by_content_.find(std::string(token));
    if (added != by_content_.end()) return added_->tokens()[added->second].id;
    return piece_id(token);
  }
  std::optional<std::string> token(int64_t id) const override {
    auto added = by_id_.find(id);
    if (added != by_id_.end()) return added_->tokens()[added->second].content;
    if (id < 0 || id >= pieces_.GetPieceSize()) return {};
    return pieces_.IdToPiece(static_cast<int>(id));
  }
  bool is_special(int64_t id) const override {
    auto added = by_id_.find(id);
    return added != by_id_.end() && added_->tokens()[added->second].special;
  }

 private:
  static json parse(const std::string& text, const std::string& name) {
    try {
      return parse_shallow_json(text);
    } catch (const json::exception& error) {
      throw Error("not valid JSON", name + " (its tokenizer_config.json): " + error.what(), "", ExitCode::kBadUsage);
    }
  }

  std::optional<int64_t> piece_id(std::string_view piece) const {
    const int id = pieces_.PieceToId(piece);
    if (id < 0 || id >= pieces_.GetPieceSize() || pieces_.IdToPiece(id) != piece) return {};
    return id;
  }

  // As PreTrainedTokenizer.__init__: added_tokens_decoder with its ids, then special tokens that are not there yet, which
  // get the model's id or the next free one.
  void add_tokens(const JsonNode& node) {
    std::vector<AddedToken> tokens;
    std::unordered_map<std::string, size_t> seen;
    int64_t next = pieces_.GetPieceSize();
    auto add = [&](AddedToken token) {
      if (token.content.empty() || seen.contains(token.content)) return;
      seen[token.content] = tokens.size();
      next = std::max(next, token.id + 1);
      tokens.push_back(std::move(token));
    };
    auto read = [&](const JsonNode& given, AddedToken token) {
      token.content = content_of(given);
      if (given.value().is_object()) {
        token.lstrip = given.boolean("lstrip", token.lstrip);
        token.rstrip = given.boolean("rstrip", token.rstrip);
        token.single_word = given.boolean("single_word", false);
        token.special = given.boolean("special", token.special);
      }
      return token;
    };
    bool listed = node.has("added_tokens_decoder");
    if (listed) {
      const JsonNode list = node["added_tokens_decoder"];
      if (!list.value().is_object()) list.fail("not a JSON object");
      for (const auto& [id, value] : list.value().items()) {
        if (id.empty() || id.size() > 8 || id.find_first_not_of("0123456789") != std::string::npos) list.fail("'" + id + "' is no id");
        AddedToken token;
        token.id = std::stoll(id);
        if (token.id > kMaxId) list.fail("'" + id + "' is too large an id");
        add(read(list[id], token));
      }
    } else if (t5_) {  // <extra_id_0> has the largest id
      const int64_t extra = node.has("extra_ids") ? node["extra_ids"].integer(10000) : 100;
      for (int64_t i = 0; i < extra; ++i) {
        AddedToken token;
        token.id = pieces_.GetPieceSize() - 1 + extra - i;
        token.content = "<extra_id_" + std::to_string(i) + ">";
        token.lstrip = token.rstrip = token.special = true;
        add(token);
      }
    }
    static constexpr std::pair<const char*, const char*> kLlama[] = {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}};
    static constexpr std::pair<const char*, const char*> kT5[] = {{"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}};
    std::unordered_map<std::string, std::string> named;
    for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
      AddedToken token;
      token.special = true;
      if (node.has(key)) {
        token = read(node[key], token);
        token.special = true;
      } else {
        for (const auto& [name, otherwise] : t5_ ? kT5 : kLlama)
          if (std::string_view(name) == key && !node.value().contains(key)) token.content = otherwise;
      }
      if (token.content.empty()) continue;
      named[key] = token.content;
      if (seen.contains(token.content)) {
        tokens[seen[token.content]].special = true;
        continue;
      }
      token.id = piece_id(token.content).value_or(next);
      add(std::move(token));
    }
    if (node.has("additional_special_tokens")) {
      const JsonNode list = node["additional_special_tokens"];
      for (size_t i = 0; i < list.size(); ++i) {
        AddedToken token;
        token.special = true;
        token = read(list[i], token);
        token.special = true;
        if (seen.contains(token.content)) continue;
        token.id = piece_id(token.content).value_or(next);
        add(std::move(token));
      }
    }
    for (size_t i = 0; i < tokens.size(); ++i) {
      by_content_[tokens[i].content] = i;
      by_id_[tokens[i].id] = i;
    }
    added_ = std::make_unique<AddedTokens>(tokens);
    auto id_of = [&](const char* key) -> std::optional<int64_t> {
      auto found = named.find(key);
      return found == named.end() ? std::nullopt : token_id(found->second);
    };
    bos_id_ = id_of("bos_token");
    eos_id_ = id_of("eos_token");
    pad_id_ = id_of("pad_token");
  }

  void tokenize(std::string_view given, std::vector<int64_t>& ids, std::vector<TokenSpan>* spans) const {
    std::string repaired;
    const std::string_view valid = valid_utf8(given, repaired);
    if (valid.empty()) return;
    // Without legacy, the model's dummy prefix is off and the tokenizer adds it itself.
    Prepared all;
    auto append = [&](std::string_view part, size_t start, size_t end) {
      all.text += part;
      if (spans) all.origin.insert(all.origin.end(), part.size(), {start, end});
    };
    const size_t first_end = utf8_length(valid[0]);
    if (!legacy_ && prefix_space_) append(kMarker, 0, first_end);
    for (size_t at = 0; at < valid.size();) {
      const size_t size = utf8_length(valid[at]);
      const std::string_view c = valid.substr(at, size);
      append(!legacy_ && c == kMarker ? std::string_view(" ") : c, at, at + size);
      at += size;
    }
    std::vector<AddedTokens::Segment> segments = split(all.text);
    const size_t before = ids.size();
    // The unknown piece has the id of the special <unk>, so an id alone does not tell what was written as a special token.
    bool second_special = false;
    for (const auto& segment : segments) {
      const auto start = static_cast<size_t>(segment.text.data() - all.text.data());
      if (segment.id >= 0) {
        if (ids.size() == before + 1) second_special = is_special(segment.id);
        ids.push_back(segment.id);
        if (spans) spans->push_back(place(all, start, start + segment.text.size()));
      } else {
        encode_segment(segment.text, start, all, ids, spans);
      }
    }
    if (!legacy_ && second_special && token(ids[before]) == std::string(kMarker)) {
      ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(before));
      if (spans) spans->erase(spans->begin());
    }
  }

  // As tokenize() of transformers' slow tokenizers: white space beside a token that strips it goes, a token that has to be
  // a word by itself joins its neighbour unless a space is there.
  std::vector<AddedTokens::Segment> split(const std::string& text) const {
    std::vector<AddedTokens::Segment> found;
    added_->split(text, false, found);
    return found;
  }

  static TokenSpan place(const Prepared& all, size_t start, size_t end) {
    if (start >= all.origin.size()) return all.origin.empty() ? TokenSpan{} : TokenSpan{all.origin.back().end, all.origin.back().end};
    if (end <= start) return {all.origin[start].start, all.origin[start].start};
    return {all.origin[start].start, all.origin[std::min(end, all.origin.size()) - 1].end};
  }

  void encode_segment(std::string_view text, size_t start, const Prepared& all, std::vector<int64_t>& ids, std::vector<TokenSpan>* spans) const {
    const bool with_unk = !legacy_ && (text.starts_with(kMarker) || text.starts_with(' '));
    const std::string whole = with_unk ? unk_token_ + std::string(text) : std::string(text);
    if (!spans) {
      std::vector<int> found;
      check(pieces_.Encode(whole, &found));
      const size_t skip = with_unk && found.size() >= unk_length_ ? unk_length_ : 0;
      ids.insert(ids.end(), found.begin() + static_cast<std::ptrdiff_t>(skip), found.end());
      return;
    }
    sentencepiece::ImmutableSentencePieceText found;
    check(pieces_.Encode(whole, found.mutable_proto()));
    const size_t count = found.pieces_size(), skip = with_unk && count >= unk_length_ ? unk_length_ : 0;
    const size_t shift = with_unk ? unk_token_.size() : 0;
    for (size_t i = skip; i < count; ++i) {
      const auto piece = found.pieces(static_cast<int>(i));
      ids.push_back(piece.id());
      const size_t from = piece.begin() > shift ? piece.begin() - shift : 0, to = piece.end() > shift ? piece.end() - shift : 0;
      spans->push_back(place(all, start + from, start + to));
    }
  }

  static void check(const sentencepiece::util::Status& status) {
    if (!status.ok()) throw Error("SentencePiece cannot encode a text", status.ToString(), "", ExitCode::kBadData);
  }

  sentencepiece::SentencePieceProcessor pieces_;
  std::unique_ptr<AddedTokens> added_;
  std::unordered_map<std::string, size_t> by_content_;
  std::unordered_map<int64_t, size_t> by_id_;
  std::string unk_token_ = "<unk>";
  size_t unk_length_ = 0;
  int64_t vocabulary_size_ = 0;
  bool t5_ = false, legacy_ = true, prefix_space_ = true, add_bos_ = true, add_eos_ = false;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(std::string model, std::string config_text, const std::string& name) {
  return std::make_unique<SentencePieceTokenizer>(std::move(model), std::move(config_text), name);
}

#endif

}  // namespace mso
