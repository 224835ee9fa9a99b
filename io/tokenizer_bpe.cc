#include "io/tokenizer_bpe.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <memory>
#include <queue>
#include <stdexcept>

#include "base/error.h"
#include "base/hash.h"
#include "io/tokenizer_bytes.h"
#include "io/utf8.h"

namespace mso {

namespace {
constexpr uint64_t kNoKey = std::numeric_limits<uint64_t>::max();
constexpr std::string_view kMarker = "\u2581";  // SentencePiece's letter for a space
constexpr size_t kShortWord = 40;               // symbols up to which looking for the least rank beats a heap

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Ids of short words seen lately by this thread, for all models; a full slot is simply overwritten.
struct WordCache {
  static constexpr size_t kSlots = 8192, kBytes = 37, kIds = 12;
  struct Entry {
    uint64_t serial = 0;
    uint8_t bytes = 0, count = 0;
    char word[kBytes];
    int32_t ids[kIds];
  };
  std::unique_ptr<Entry[]> entries = std::make_unique<Entry[]>(kSlots);
};
}  // namespace

void MergeTable::reserve(size_t merges) {
  size_t slots = 16;
  shift_ = 60;
  while (slots < 2 * merges) slots *= 2, --shift_;
  keys_.assign(slots, kNoKey);
  values_.resize(slots);
}

void MergeTable::insert(int32_t left, int32_t right, Merge merge) {
  uint64_t key = pair_key(left, right);
  size_t i = slot(key);
  while (keys_[i] != kNoKey && keys_[i] != key) i = (i + 1) & (keys_.size() - 1);
  keys_[i] = key;
  values_[i] = merge;
}

const MergeTable::Merge* MergeTable::find(int32_t left, int32_t right) const {
  uint64_t key = pair_key(left, right);
  for (size_t i = slot(key);; i = (i + 1) & (keys_.size() - 1)) {
    if (keys_[i] == key) return &values_[i];
    if (keys_[i] == kNoKey) return nullptr;
  }
}

BpeModel::BpeModel(std::unordered_map<std::string, int32_t> vocabulary,
                   const std::vector<std::pair<std::string, std::string>>& merges, Options options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  static std::atomic<uint64_t> serials{0};
  serial_ = ++serials;

  tokens_.reserve(vocabulary_.size());
  for (const auto& [token, id] : vocabulary_) {
    if (!tokens_.emplace(id, &token).second)
      throw std::invalid_argument("two tokens have the id " + std::to_string(id));
    max_id_ = std::max<int64_t>(max_id_, id);
  }
  if (options_.unk_token) unk_id_ = id(*options_.unk_token);

  merges_.reserve(merges.size());
  cut_before_marker_ = !options_.byte_level && vocabulary_.contains(std::string(kMarker));
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    std::string joined = left + right;
    for (const std::string* token : {&left, &right, static_cast<const std::string*>(&joined)})
      if (!vocabulary_.contains(*token))
        throw std::invalid_argument("merge " + std::to_string(rank) + ": the token '" +
                                    token->substr(0, 100) + "' is not in the vocabulary");
    merges_.insert(vocabulary_.at(left), vocabulary_.at(right),
                   {static_cast<int32_t>(rank), vocabulary_.at(joined)});
    for (size_t at = 0; (at = joined.find(kMarker, at)) != std::string::npos; at += kMarker.size())
      if (at > 0 && !std::string_view(joined).substr(0, at).ends_with(kMarker)) cut_before_marker_ = false;
  }

  if (options_.byte_level) {
    std::unordered_map<std::string, char> bytes;
    for (int byte = 0; byte < 256; ++byte) {
      std::string letter = byte_letter(static_cast<uint8_t>(byte));
      bytes[letter] = static_cast<char>(byte);
      bytes_.push_back(symbol_of(letter));
      last_bytes_.push_back(symbol_of(letter + options_.end_of_word_suffix));
    }
    if (options_.ignore_merges) {
      for (const auto& [token, id] : vocabulary_) {
        std::string word;
        bool mapped = true;
        for (size_t i = 0; i < token.size() && mapped; i += utf8_length(token[i])) {
          auto byte = bytes.find(token.substr(i, utf8_length(token[i])));
          mapped = byte != bytes.end();
          if (mapped) word += byte->second;
        }
        if (mapped) words_[word] = id;
      }
    }
  } else {
    for (const auto& [token, id] : vocabulary_)
      if (!token.empty() && token.size() == utf8_length(token[0])) {
        size_t at = 0;
        characters_[next_code_point(token, at)] = id;
      }
  }
}

std::optional<int32_t> BpeModel::id(std::string_view token) const {
  auto it = vocabulary_.find(std::string(token));
  if (it == vocabulary_.end()) return std::nullopt;
  return it->second;
}

const std::string* BpeModel::token(int64_t id) const {
  auto it = tokens_.find(id);
  return it == tokens_.end() ? nullptr : it->second;
}

BpeModel::Symbol BpeModel::symbol_of(std::string_view character) const {
  if (auto known = id(character)) return {Symbol::kIds, {*known}, false};
  if (options_.byte_fallback) {
    Symbol symbol{Symbol::kIds, {}, true};
    for (char c : character) {
      auto byte = static_cast<unsigned char>(c);
      auto part =
          id(std::string("<0x") + "0123456789ABCDEF"[byte >> 4] + "0123456789ABCDEF"[byte & 15] + ">");
      if (!part) break;
      symbol.ids.push_back(*part);
    }
    if (symbol.ids.size() == character.size()) return symbol;
  }
  return {options_.unk_token ? Symbol::kUnk : Symbol::kNothing, {}, false};
}

void BpeModel::symbols_of(std::string_view word, std::vector<int32_t>& symbols) const {
  // An unknown token waits, because following ones may fuse with it. As in `tokenizers`, bytes of a fallback
  // do not end the wait.
  bool unknown = false;
  auto add = [&](const Symbol& symbol) {
    if (symbol.kind == Symbol::kIds) {
      if (unknown && !symbol.fallback) symbols.push_back(*unk_id_), unknown = false;
      symbols.insert(symbols.end(), symbol.ids.begin(), symbol.ids.end());
    } else if (symbol.kind == Symbol::kUnk) {
      if (!unk_id_)
        throw Error("the tokenizer's unk_token is not in its vocabulary", "'" + *options_.unk_token + "'",
                    "mend model.unk_token or model.vocab of the tokenizer.json", ExitCode::kBadData);
      if (unknown && !options_.fuse_unk) symbols.push_back(*unk_id_);
      unknown = true;
    }
  };
  if (options_.byte_level) {
    for (size_t i = 0; i < word.size(); ++i) {
      const Symbol& symbol = (i + 1 < word.size() ? bytes_ : last_bytes_)[static_cast<unsigned char>(word[i])];
      if (symbol.kind == Symbol::kIds && symbol.ids.size() == 1 && !unknown)
        symbols.push_back(symbol.ids[0]);
      else
        add(symbol);
    }
  } else {
    for (size_t i = 0; i < word.size();) {
      size_t start = i;
      auto known = characters_.find(next_code_point(word, i));
      if (i == word.size() && !options_.end_of_word_suffix.empty())
        add(symbol_of(std::string(word.substr(start)) + options_.end_of_word_suffix));
      else if (known != characters_.end() && !unknown)
        symbols.push_back(known->second);
      else
        add(symbol_of(word.substr(start, i - start)));
    }
  }
  if (unknown) symbols.push_back(*unk_id_);
}

void BpeModel::encode(std::string_view word, std::vector<int64_t>& ids) const {
  if (word.empty()) return;
  if (options_.ignore_merges) {
    const auto& words = options_.byte_level ? words_ : vocabulary_;
    auto it = words.find(std::string(word));
    if (it != words.end()) {
      ids.push_back(it->second);
      return;
    }
  }
  if (!cut_before_marker_) return encode_part(word, ids);
  // Llama-2 has no pre-tokenizer: a whole text is one word. Cut where no merge can reach over, the parts are
  // short.
  size_t start = 0;
  for (size_t at = 0; (at = word.find(kMarker, at)) != std::string_view::npos; at += kMarker.size()) {
    if (at == start || word.substr(0, at).ends_with(kMarker)) continue;
    encode_part(word.substr(start, at - start), ids);
    start = at;
  }
  encode_part(word.substr(start), ids);
}

void BpeModel::encode_part(std::string_view part, std::vector<int64_t>& ids) const {
  thread_local WordCache cache;
  WordCache::Entry* entry = nullptr;
  if (part.size() <= WordCache::kBytes) {
    entry = &cache.entries[hash64(part, serial_) % WordCache::kSlots];
    if (entry->serial == serial_ && part == std::string_view(entry->word, entry->bytes)) {
      ids.insert(ids.end(), entry->ids, entry->ids + entry->count);
      return;
    }
  }
  thread_local std::vector<int32_t> symbols;
  symbols.clear();
  symbols_of(part, symbols);
  symbols.size() <= kShortWord ? merge_short(symbols) : merge_long(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  if (entry && symbols.size() <= WordCache::kIds) {
    entry->serial = serial_;
    entry->bytes = static_cast<uint8_t>(part.size());
    entry->count = static_cast<uint8_t>(symbols.size());
    std::memcpy(entry->word, part.data(), part.size());
    std::copy(symbols.begin(), symbols.end(), entry->ids);
  }
  if (symbols.capacity() > (1 << 16)) symbols = {};  // after a huge word
}

void BpeModel::lengths(std::string_view word, const int64_t* ids, size_t count, std::vector<size_t>& lengths) const {
  size_t at = 0;
  auto character = [&](size_t from) { return options_.byte_level ? size_t{1} : utf8_length(word[from]); };
  auto kind = [&](size_t from) {
    const bool last = from + character(from) >= word.size();
    if (options_.byte_level) return (last ? last_bytes_ : bytes_)[static_cast<unsigned char>(word[from])].kind;
    std::string text(word.substr(from, character(from)));
    return symbol_of(last ? text + options_.end_of_word_suffix : text).kind;
  };
  for (size_t i = 0; i < count; ++i) {
    const size_t start = at;
    const std::string* text = token(ids[i]);
    if (unk_id_ && ids[i] == *unk_id_ && at < word.size() && kind(at) == Symbol::kUnk) {
      do at += character(at);
      while (options_.fuse_unk && at < word.size() && kind(at) == Symbol::kUnk);
    } else if (text) {
      std::string_view shown = *text;
      if (!options_.end_of_word_suffix.empty() && i + 1 == count && shown.ends_with(options_.end_of_word_suffix))
        shown.remove_suffix(options_.end_of_word_suffix.size());
      size_t bytes = shown.size();
      if (options_.byte_level) {
        bytes = 0;
        for (size_t k = 0; k < shown.size(); k += utf8_length(shown[k])) ++bytes;
      } else if (options_.byte_fallback && shown.size() == 6 && shown.starts_with("<0x") && !word.substr(at).starts_with(shown)) {
        bytes = 1;
      } else {
        // Characters that stand for nothing are passed over.
        while (at < word.size() && !word.substr(at).starts_with(shown) && kind(at) == Symbol::kNothing) at += character(at);
      }
      at = std::min(word.size(), at + bytes);
    }
    lengths.push_back(at - start);
  }
}

void BpeModel::merge_short(std::vector<int32_t>& symbols) const {
  constexpr MergeTable::Merge kNone = {std::numeric_limits<int32_t>::max(), 0};
  std::array<MergeTable::Merge, kShortWord> merges;  // [i]: of symbols i and i + 1
  size_t n = symbols.size();
  auto look_up = [&](size_t i) {
    const auto* merge = merges_.find(symbols[i], symbols[i + 1]);
    merges[i] = merge ? *merge : kNone;
  };
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (merges[i].rank < merges[best].rank) best = i;
    if (merges[best].rank == kNone.rank) break;
    symbols[best] = merges[best].id;
    for (size_t i = best + 1; i + 1 < n; ++i) symbols[i] = symbols[i + 1];
    for (size_t i = best + 1; i + 2 < n; ++i) merges[i] = merges[i + 1];
    --n;
    if (best > 0) look_up(best - 1);
    if (best + 1 < n) look_up(best);
  }
  symbols.resize(n);
}

void BpeModel::merge_long(std::vector<int32_t>& symbols) const {
  struct Candidate {
    int32_t rank;
    size_t at;
    int32_t id;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  constexpr size_t kEnd = std::numeric_limits<size_t>::max();
  constexpr int32_t kGone = -1;
  size_t n = symbols.size();
  std::vector<size_t> previous(n), next(n);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  auto propose = [&](size_t at) {
    if (const auto* merge = merges_.find(symbols[at], symbols[next[at]]))
      queue.push({merge->rank, at, merge->id});
  };
  for (size_t i = 0; i < n; ++i) previous[i] = i ? i - 1 : kEnd, next[i] = i + 1 < n ? i + 1 : kEnd;
  for (size_t i = 0; i + 1 < n; ++i) propose(i);
  while (!queue.empty()) {
    Candidate top = queue.top();
    queue.pop();
    size_t right = next[top.at];
    if (symbols[top.at] == kGone || right == kEnd) continue;
    const auto* merge = merges_.find(symbols[top.at], symbols[right]);
    if (!merge || merge->id != top.id) continue;  // one of the two has become something else
    symbols[top.at] = top.id;
    symbols[right] = kGone;
    next[top.at] = next[right];
    if (next[right] != kEnd) previous[next[right]] = top.at, propose(top.at);
    if (previous[top.at] != kEnd) propose(previous[top.at]);
  }
  std::erase(symbols, kGone);
}

}  // namespace mso
