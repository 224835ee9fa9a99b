// Reads SentencePiece models (tokenizer.model, spiece.model) and gives the ids of transformers' slow LlamaTokenizer and
// T5Tokenizer.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "io/tokenizer.h"

namespace mso {

// Whether bytes look like a SentencePiece model rather than like JSON; also for what source_text() of one gives.
bool is_sentencepiece_model(std::string_view bytes);

// `model`: the file's content, or the source_text() of such a tokenizer: {"sentencepiece_model": "its bytes in base64"}, so
// that it can stand where texts stand. `config_text`: tokenizer_config.json, from which come tokenizer_class ("T5Tokenizer", else
// Llama's rules), legacy, add_prefix_space, add_bos_token, add_eos_token, the special tokens and added_tokens_decoder.
// Decoding gives SentencePiece's text between added tokens. Error (kBadUsage), also where this build has no SentencePiece.
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(std::string model, std::string config_text, const std::string& name);

}  // namespace mso
