// The plain byte tokenizer: one id per byte, and its equivalent as a Hugging Face tokenizer.json.
#pragma once

#include <memory>
#include <string>

#include "io/tokenizer.h"

namespace mso {

std::unique_ptr<Tokenizer> make_byte_tokenizer();

// GPT-2's map from bytes to printable letters, as UTF-8: how byte-level vocabularies write a byte.
// Source: bytes_to_unicode() of openai/gpt-2, encoder.py.
std::string byte_letter(uint8_t byte);

}  // namespace mso
