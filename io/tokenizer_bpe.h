// Byte-pair encoding of one word: a vocabulary, ranked merges, and what stands for characters outside the
// vocabulary. Gives the ids of `tokenizers`' BPE model (models/bpe/model.rs, word.rs).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace mso {

// (left id, right id) → (rank, id of the joined token): open addressing, at most half full.
class MergeTable {
 public:
  struct Merge {
    int32_t rank, id;
  };
  void reserve(size_t merges);
  void insert(int32_t left, int32_t right, Merge merge);  // a later one replaces an earlier one
  const Merge* find(int32_t left, int32_t right) const;

 private:
  size_t slot(uint64_t key) const { return key * 0x9e3779b97f4a7c15u >> shift_; }
  std::vector<uint64_t> keys_;
  std::vector<Merge> values_;
  int shift_ = 64;
};

class BpeModel {
 public:
  static constexpr int64_t kMaxId = (1 << 24) - 1;  // embedding tables have as many rows

  struct Options {
    std::optional<std::string> unk_token;
    bool fuse_unk = false;
    bool byte_fallback = false;  // a character outside the vocabulary becomes its bytes "<0x..>"
    bool ignore_merges = false;  // a word that is in the vocabulary is taken as it is
    bool byte_level = false;     // words come as bytes, the vocabulary writes them in GPT-2's letters
    std::string end_of_word_suffix;  // behind the last character of each word ("</w>", CLIP)
  };

  // `merges`: pairs of tokens in order of rank. Throws std::invalid_argument for a merge of tokens which, or
  // whose joined token, are not in the vocabulary, and for an id given to two tokens; the caller knows the
  // path.
  BpeModel(std::unordered_map<std::string, int32_t> vocabulary,
           const std::vector<std::pair<std::string, std::string>>& merges, Options options);

  // Appends the ids of a word (any length, valid UTF-8). O(n log n) in its length.
  void encode(std::string_view word, std::vector<int64_t>& ids) const;

  // How many bytes of the word each of `ids`, which encode() gave for it, stands for.
  void lengths(std::string_view word, const int64_t* ids, size_t count, std::vector<size_t>& lengths) const;

  std::optional<int32_t> id(std::string_view token) const;
  const std::string* token(int64_t id) const;  // null for an id without one
  size_t size() const { return vocabulary_.size(); }
  int64_t max_id() const { return max_id_; }  // -1 for an empty vocabulary

  BpeModel(BpeModel&&) = default;
  BpeModel(const BpeModel&) = delete;  // tokens_ points into vocabulary_

 private:
  // What a character starts as. kind kIds: ids (one, or those of its bytes); kUnk; kNothing: left out.
  struct Symbol {
    enum Kind { kIds, kUnk, kNothing } kind = kNothing;
    std::vector<int32_t> ids;
    bool fallback = false;
  };
  Symbol symbol_of(std::string_view character) const;
  void symbols_of(std::string_view word, std::vector<int32_t>& symbols) const;
  void encode_part(std::string_view part, std::vector<int64_t>& ids) const;
  void merge_short(std::vector<int32_t>& symbols) const;
  void merge_long(std::vector<int32_t>& symbols) const;

  std::unordered_map<std::string, int32_t> vocabulary_;
  std::unordered_map<int64_t, const std::string*> tokens_;  // by id
  int64_t max_id_ = -1;
  MergeTable merges_;
  Options options_;
  std::optional<int32_t> unk_id_;
  std::unordered_map<std::string, int32_t> words_;  // with byte_level: vocabulary by the bytes it stands for
  std::vector<Symbol> bytes_;                       // with byte_level: of each byte
  std::vector<Symbol> last_bytes_;                  // the same at the end of a word, with a suffix
  std::unordered_map<uint32_t, int32_t> characters_;  // else: tokens of one character
  bool cut_before_marker_ = false;  // no merge reaches over the place between a letter and "▁"
  uint64_t serial_;                 // names this model in the threads' caches
};

}  // namespace mso
