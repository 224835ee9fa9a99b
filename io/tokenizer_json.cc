#include "io/tokenizer_json.h"

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "io/json_node.h"
#include "io/tokenizer_added.h"
#include "io/tokenizer_bpe.h"
#include "io/tokenizer_decode.h"
#include "io/tokenizer_steps.h"
#include "io/utf8.h"

namespace mso {

namespace {
using nlohmann::json;

constexpr int kMaxDepth = 8;

json parse_json(const std::string& text, const std::string& name) {
  try {
    return parse_shallow_json(text);
  } catch (const json::exception& error) {
    throw Error("not valid JSON", name + ": " + error.what(),
                "the file is damaged or no JSON: take it again from where the model came from", ExitCode::kBadUsage);
  }
}

JsonNode member_or_null(const JsonNode& root, const std::string& key, const JsonNode& null) {
  return root.has(key) ? root[key] : null;
}

BpeModel parse_model(const JsonNode& model, bool byte_level) {
  if (model.has("type") && model["type"].string() != "BPE")
    model["type"].fail("the model '" + model["type"].string() + "' is not supported", "only BPE is");
  if (model.has("continuing_subword_prefix") && !model["continuing_subword_prefix"].string().empty())
    model["continuing_subword_prefix"].fail("this kind of BPE is not supported");
  if (model.has("dropout") && !(model["dropout"].value().is_number() && model["dropout"].value() == 0))
    model["dropout"].fail("dropout is not supported", "set it to null");

  BpeModel::Options options;
  options.byte_level = byte_level;
  if (model.has("end_of_word_suffix")) options.end_of_word_suffix = model["end_of_word_suffix"].string();
  if (model.has("unk_token")) options.unk_token = model["unk_token"].string();
  options.fuse_unk = model.boolean("fuse_unk", false);
  options.byte_fallback = model.boolean("byte_fallback", false);
  options.ignore_merges = model.boolean("ignore_merges", false);

  JsonNode vocab = model["vocab"], merges = model["merges"];
  if (!vocab.value().is_object()) vocab.fail("not a JSON object");
  std::unordered_map<std::string, int32_t> vocabulary;
  vocabulary.reserve(vocab.value().size());
  for (const auto& [token, id] : vocab.value().items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(BpeModel::kMaxId))
      vocab[token].fail("not an id of 0 to " + std::to_string(BpeModel::kMaxId));
    vocabulary[token] = id.get<int32_t>();
  }
  std::vector<std::pair<std::string, std::string>> pairs;
  pairs.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const json& merge = merges.value()[i];
    if (merge.is_string()) {  // "a b"
      const auto& text = merge.get_ref<const std::string&>();
      if (i == 0 && text.starts_with("#version")) continue;
      size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
        merges[i].fail("not two tokens with a space between");
      pairs.emplace_back(text.substr(0, space), text.substr(space + 1));
    } else {
      if (merges[i].size() != 2) merges[i].fail("not two tokens");
      pairs.emplace_back(merges[i][0].string(), merges[i][1].string());
    }
  }
  try {
    return BpeModel(std::move(vocabulary), pairs, options);
  } catch (const std::invalid_argument& error) {
    model.fail(error.what());
  }
}

// Ids are given as `tokenizers` gives them: the model's where it knows the content, else one after the other.
AddedTokens parse_added_tokens(const JsonNode& node, const BpeModel& model,
                               const TextNormalizer& normalizer) {
  std::vector<AddedToken> tokens;
  std::unordered_map<std::string, size_t> seen;
  int64_t next = static_cast<int64_t>(model.size());
  for (size_t i = 0; !node.is_null() && i < node.size(); ++i) {
    AddedToken token;
    token.content = node[i]["content"].string();
    if (token.content.empty()) continue;
    token.single_word = node[i].boolean("single_word", false);
    token.lstrip = node[i].boolean("lstrip", false);
    token.rstrip = node[i].boolean("rstrip", false);
    token.special = node[i].boolean("special", false);
    token.normalized = node[i].boolean("normalized", !token.special);
    std::string storage;
    if (token.normalized) token.normalized_content = normalizer.apply(token.content, storage);
    auto known = model.id(token.content);
    auto earlier = seen.find(token.content);
    token.id = known ? *known : earlier != seen.end() ? tokens[earlier->second].id : next++;
    int64_t stated = node[i]["id"].integer(BpeModel::kMaxId);
    if (stated != token.id)
      log_warn("{} says id {} for the added token '{}'; it gets {}, as in `tokenizers`", node[i].path(),
               stated, token.content, token.id);
    if (earlier != seen.end()) {
      tokens[earlier->second] = std::move(token);
    } else {
      seen[token.content] = tokens.size();
      tokens.push_back(std::move(token));
    }
  }
  try {
    return AddedTokens(std::move(tokens));
  } catch (const std::invalid_argument& error) {
    node.fail(error.what());
  }
}

// What add_special_tokens puts around the ids of a text, and whether spaces at a token's ends count as its own.
struct Frame {
  std::vector<int64_t> before, after;
  bool trim_spans = false, prefix_space = false;
};

void parse_post_processor(const JsonNode& node, Frame& frame, int depth) {
  if (node.is_null()) return;
  const std::string& type = node["type"].string();
  if (type == "Sequence") {
    if (depth == kMaxDepth) node.fail("sequences are nested too deeply");
    JsonNode parts = node["processors"];
    for (size_t i = 0; i < parts.size(); ++i) parse_post_processor(parts[i], frame, depth + 1);
  } else if (type == "TemplateProcessing") {
    JsonNode single = node["single"];
    std::vector<int64_t> before, after;
    bool text_seen = false;
    for (size_t i = 0; i < single.size(); ++i) {
      if (single[i].value().is_object() && single[i].has("Sequence")) {
        if (text_seen || single[i]["Sequence"]["id"].string() != "A")
          single[i].fail("the text has to stand in a template once, as A");
        text_seen = true;
        continue;
      }
      JsonNode ids = node["special_tokens"][single[i]["SpecialToken"]["id"].string()]["ids"];
      for (size_t k = 0; k < ids.size(); ++k)
        (text_seen ? after : before).push_back(ids[k].integer(BpeModel::kMaxId));
    }
    if (!text_seen) single.fail("the template does not hold the text A");
    frame.before.insert(frame.before.begin(), before.begin(), before.end());
    frame.after.insert(frame.after.end(), after.begin(), after.end());
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    frame.before.insert(frame.before.begin(), node["cls"][size_t{1}].integer(BpeModel::kMaxId));
    frame.after.push_back(node["sep"][size_t{1}].integer(BpeModel::kMaxId));
    if (type == "RobertaProcessing") {
      frame.trim_spans |= node.boolean("trim_offsets", true);
      frame.prefix_space = node.boolean("add_prefix_space", true);
    }
  } else if (type == "ByteLevel") {
    frame.trim_spans |= node.boolean("trim_offsets", true);
    frame.prefix_space = node.boolean("add_prefix_space", true);
  } else {
    node["type"].fail(
        "the post-processor '" + type + "' is not supported",
        "supported: TemplateProcessing, ByteLevel, RobertaProcessing, BertProcessing, Sequence");
  }
}

class JsonTokenizer final : public Tokenizer {
 public:
  JsonTokenizer(const JsonNode& root, const JsonNode& null)
      : normalizer_(member_or_null(root, "normalizer", null)),
        pre_tokenizer_(member_or_null(root, "pre_tokenizer", null)),
        model_(parse_model(root["model"], pre_tokenizer_.byte_level())),
        added_(parse_added_tokens(member_or_null(root, "added_tokens", null), model_, normalizer_)),
        decoder_(member_or_null(root, "decoder", null)) {
    parse_post_processor(member_or_null(root, "post_processor", null), frame_, 0);
    vocabulary_size_ = model_.max_id() + 1;
    for (size_t i = 0; i < added_.tokens().size(); ++i) {
      const AddedToken& token = added_.tokens()[i];
      added_by_content_[token.content] = i;
      added_by_id_[token.id] = i;
      if (token.special) specials_.insert(token.content);
      vocabulary_size_ = std::max(vocabulary_size_, token.id + 1);
    }
  }

  void set_texts(std::string source_text, std::string config_text) {
    source_text_ = std::move(source_text);
    config_text_ = std::move(config_text);
  }
  // bos_token and so on: a string, or an object with its "content".
  void set_special_ids(const JsonNode& config) {
    auto look_up = [&](const char* key) -> std::optional<int64_t> {
      if (!config.value().is_object() || !config.has(key)) return std::nullopt;
      JsonNode token = config[key];
      return token_id(token.value().is_object() ? token["content"].string() : token.string());
    };
    bos_id_ = look_up("bos_token");
    eos_id_ = look_up("eos_token");
    pad_id_ = look_up("pad_token");
  }

  std::vector<int64_t> encode(std::string_view utf8, bool add_special_tokens) const override {
    std::string repaired;
    std::string_view text = valid_utf8(utf8, repaired);
    std::vector<int64_t> ids;
    ids.reserve(text.size() / 3 + 8);
    if (add_special_tokens) ids = frame_.before;
    std::vector<AddedTokens::Segment> raw;
    added_.split(text, false, raw);
    for (const auto& segment : raw) {
      if (segment.id >= 0)
        ids.push_back(segment.id);
      else
        encode_text(segment.text, segment.text.data() == text.data(), ids);
    }
    if (add_special_tokens) ids.insert(ids.end(), frame_.after.begin(), frame_.after.end());
    return ids;
  }

  std::vector<int64_t> encode_with_spans(std::string_view utf8, std::vector<TokenSpan>& spans) const override {
    std::string repaired;
    std::string_view text = valid_utf8(utf8, repaired);
    std::vector<int64_t> ids;
    spans.clear();
    std::vector<AddedTokens::Segment> raw;
    added_.split(text, false, raw);
    for (const auto& segment : raw) {
      const auto start = static_cast<size_t>(segment.text.data() - text.data());
      if (segment.id < 0) {
        encode_text_with_spans(segment.text, start, ids, spans);
      } else {
        ids.push_back(segment.id);
        spans.push_back({start, start + segment.text.size()});
      }
    }
    for (size_t i = 0; frame_.trim_spans && i < ids.size(); ++i) trim(ids[i], i == 0, spans[i]);
    return ids;
  }

  std::string decode(std::span<const int64_t> ids, bool skip_special) const override {
    std::vector<std::string> tokens;
    tokens.reserve(ids.size());
    for (int64_t id : ids) {
      auto added = added_by_id_.find(id);
      const std::string* token = nullptr;
      if (added != added_by_id_.end()) {
        const AddedToken& found = added_.tokens()[added->second];
        // A token looked for in normalised text is decoded from that, so that the decoder can undo it.
        token = found.normalized ? &found.normalized_content : &found.content;
      } else {
        token = model_.token(id);
      }
      if (token && !(skip_special && specials_.contains(*token))) tokens.push_back(*token);
    }
    return decoder_.decode(std::move(tokens));
  }

  int64_t vocabulary_size() const override { return vocabulary_size_; }

  std::optional<int64_t> token_id(std::string_view token) const override {
    auto added = added_by_content_.find(std::string(token));
    if (added != added_by_content_.end()) return added_.tokens()[added->second].id;
    return model_.id(token);
  }

  bool is_special(int64_t id) const override {
    auto added = added_by_id_.find(id);
    return added != added_by_id_.end() && added_.tokens()[added->second].special;
  }

  std::optional<std::string> token(int64_t id) const override {
    auto added = added_by_id_.find(id);
    if (added != added_by_id_.end()) return added_.tokens()[added->second].content;
    const std::string* token = model_.token(id);
    return token ? std::optional(*token) : std::nullopt;
  }

 private:
  // Text between added tokens that are looked for before normalising.
  void encode_text(std::string_view text, bool at_start, std::vector<int64_t>& ids) const {
    std::string storage;
    std::string_view normal = normalizer_.apply(text, storage);
    std::vector<std::string_view> words;
    std::deque<std::string> changed;
    auto encode_words = [&](std::string_view part) {
      words.clear();
      pre_tokenizer_.split(part, at_start && part.data() == normal.data(), words, changed);
      for (std::string_view word : words) model_.encode(word, ids);
    };
    if (!added_.any(true)) return encode_words(normal);
    std::vector<AddedTokens::Segment> segments;
    added_.split(normal, true, segments);
    for (const auto& segment : segments) {
      if (segment.id >= 0)
        ids.push_back(segment.id);
      else
        encode_words(segment.text);
    }
  }

  // The same, `start` bytes into the whole text.
  void encode_text_with_spans(std::string_view text, size_t start, std::vector<int64_t>& ids,
                              std::vector<TokenSpan>& spans) const {
    TextOrigin origin;
    origin.reserve(text.size());
    for (size_t at = 0; at < text.size(); at += utf8_length(text[at]))
      origin.insert(origin.end(), utf8_length(text[at]), {start + at, start + at + utf8_length(text[at])});
    std::string storage;
    const std::string_view normal = normalizer_.apply(text, storage, origin);
    std::vector<std::string_view> words;
    std::vector<size_t> lengths;
    auto encode_words = [&](std::string_view part) {
      std::deque<std::string> changed;
      PreTokenizer::Tracker tracker{origin.data() + (part.data() - normal.data()), {}, {}};
      words.clear();
      pre_tokenizer_.split(part, start == 0 && part.data() == normal.data(), words, changed, &tracker);
      for (size_t i = 0; i < words.size(); ++i) {
        const size_t first = ids.size();
        model_.encode(words[i], ids);
        lengths.clear();
        model_.lengths(words[i], ids.data() + first, ids.size() - first, lengths);
        size_t at = 0;
        for (size_t length : lengths) {
          const TextRange* from = tracker.of_words[i] + at;
          if (length == 0) {
            const size_t place = at < words[i].size() ? from->start : words[i].empty() ? start : from[-1].end;
            spans.push_back({place, place});
          } else {
            spans.push_back({from->start, from[length - 1].end});
          }
          at += length;
        }
      }
    };
    if (normal.empty()) return;
    if (!added_.any(true)) return encode_words(normal);
    std::vector<AddedTokens::Segment> segments;
    added_.split(normal, true, segments);
    for (const auto& segment : segments) {
      if (segment.id < 0) {
        encode_words(segment.text);
        continue;
      }
      const TextRange* from = origin.data() + (segment.text.data() - normal.data());
      ids.push_back(segment.id);
      spans.push_back({from->start, from[segment.text.size() - 1].end});
    }
  }

  // Spaces at a token's ends do not count as its own. Source: process_offsets() of pre_tokenizers/byte_level.rs.
  void trim(int64_t id, bool first, TokenSpan& span) const {
    const std::optional<std::string> text = token(id);
    if (!text) return;
    auto spaces = [](std::string_view rest, bool at_end) {
      size_t count = 0;
      for (;; ++count) {
        const std::string_view letter = at_end ? (rest.ends_with(' ') ? " " : rest.ends_with("\u0120") ? "\u0120" : "")
                                               : (rest.starts_with(' ') ? " " : rest.starts_with("\u0120") ? "\u0120" : "");
        if (letter.empty()) return count;
        at_end ? rest.remove_suffix(letter.size()) : rest.remove_prefix(letter.size());
      }
    };
    size_t leading = spaces(*text, false);
    const size_t trailing = spaces(*text, true);
    if (leading > 0 && (first || span.start == 0) && frame_.prefix_space) --leading;
    span.start = std::min(span.start + leading, span.end);
    if (trailing > 0 && span.end >= trailing) span.end = std::max(span.end - trailing, span.start);
  }

  TextNormalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  BpeModel model_;
  AddedTokens added_;
  TokenDecoder decoder_;
  Frame frame_;
  std::unordered_map<std::string, size_t> added_by_content_;
  std::unordered_map<int64_t, size_t> added_by_id_;
  std::unordered_set<std::string> specials_;
  int64_t vocabulary_size_ = 0;
};
}  // namespace

namespace {
std::unique_ptr<Tokenizer> make_unexplained(std::string source_text, const std::string& name,
                                            const std::function<std::string(const Tokenizer&)>& config_of) {
  const json root = parse_json(source_text, name);
  const json null;
  auto tokenizer = std::make_unique<JsonTokenizer>(JsonNode(root, name), JsonNode(null, name));
  std::string config_text = config_of(*tokenizer);
  if (!config_text.empty()) {
    const std::string config_name = name + " (its tokenizer_config.json)";
    const json config = parse_json(config_text, config_name);
    tokenizer->set_special_ids(JsonNode(config, config_name));
  }
  tokenizer->set_texts(std::move(source_text), std::move(config_text));
  return tokenizer;
}
}  // namespace

std::unique_ptr<Tokenizer> make_json_tokenizer(std::string source_text, const std::string& name,
                                               const std::function<std::string(const Tokenizer&)>& config_of) {
  try {
    return make_unexplained(std::move(source_text), name, config_of);
  } catch (const Error& error) {
    if (!error.hint().empty()) throw;
    throw Error(error.what_failed(), error.on(),
                "a BPE tokenizer.json is wanted, as the Python package tokenizers writes it; model.tokenizer names it",
                error.exit_code());
  }
}

}  // namespace mso
