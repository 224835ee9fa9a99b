// Tokenizers: text to ids and back, from a Hugging Face tokenizer.json (BPE, byte-level or byte-fallback), giving the same
// ids as the `tokenizers` package, from a SentencePiece model (io/tokenizer_sentencepiece.h), or one id per byte.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mso {

// Bytes [start, end) of the text that a token stands for.
struct TokenSpan {
  size_t start = 0, end = 0;
  bool operator==(const TokenSpan&) const = default;
};

// Immutable once made; every method may be called from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids of a text. Added and special tokens written out in the text ("<image>") become their id. With
  // `add_special_tokens` the file's post-processor adds what it adds (for Llama the bos token in front).
  // Invalid UTF-8 is no error: each ill-formed part becomes U+FFFD, as Python's
  // bytes.decode(errors="replace") does before the text reaches `tokenizers`. Error when a pattern of the
  // tokenizer needs more work than the limits allow.
  virtual std::vector<int64_t> encode(std::string_view utf8, bool add_special_tokens = false) const = 0;

  // The ids of encode(utf8, false), and for each what it covers of the text, which must be valid UTF-8 (else spans count
  // in the repaired text). As `tokenizers`' offsets, in bytes: a space that only the tokenizer adds counts as part of the
  // character behind it, tokens of single bytes may cover part of a character.
  virtual std::vector<int64_t> encode_with_spans(std::string_view utf8, std::vector<TokenSpan>& spans) const = 0;

  // Text of ids; always valid UTF-8 (U+FFFD for bytes that make no character). Ids without a token are left
  // out; with `skip_special` so are special tokens.
  virtual std::string decode(std::span<const int64_t> ids, bool skip_special = false) const = 0;

  // Largest id + 1: rows that an embedding table needs at least.
  virtual int64_t vocabulary_size() const = 0;
  virtual std::optional<int64_t> token_id(std::string_view token) const = 0;
  // The token as the file writes it (byte-level tokens in their mapped letters), nothing for an id without
  // one.
  virtual std::optional<std::string> token(int64_t id) const = 0;
  // Whether decode(…, skip_special) leaves the id out.
  virtual bool is_special(int64_t id) const = 0;

  // From tokenizer_config.json, else special_tokens_map.json, else (generation_)config.json, beside the file.
  std::optional<int64_t> bos_id() const { return bos_id_; }
  std::optional<int64_t> eos_id() const { return eos_id_; }
  std::optional<int64_t> pad_id() const { return pad_id_; }

  // The whole tokenizer.json or SentencePiece model, and the tokenizer_config.json that goes with it: what checkpoints keep and
  // exports write; parse_tokenizer() of the two makes an equal tokenizer.
  const std::string& source_text() const { return source_text_; }
  const std::string& config_text() const { return config_text_; }
  // 16 hexadecimal digits, a hash of source_text() and config_text().
  std::string fingerprint() const;

 protected:
  std::optional<int64_t> bos_id_, eos_id_, pad_id_;
  std::string source_text_, config_text_;
};

// `where`: a tokenizer.json, a SentencePiece model, a folder holding one (tokenizer.json, else tokenizer.model or
// spiece.model, else vocab.json and merges.txt of CLIP or GPT-2), or "bytes": ids 0–255 are the bytes of the text, then
// <pad> 256, <bos> 257, <eos> 258, <image> 259, <video> 260, <audio> 261 and two reserved ids, 264 in all; add_special_tokens puts
// <bos> in front. Error (ExitCode::kBadUsage) for what is missing, malformed or not supported, naming file
// and JSON path.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& where);

// The same from the texts; `name` stands for the file in messages, `config_text` may be empty.
std::unique_ptr<Tokenizer> parse_tokenizer(std::string source_text, std::string config_text,
                                           const std::string& name);

}  // namespace mso
