// The plain byte tokenizer, written as files of Hugging Face: a byte-level BPE without merges, so that
// exports load.
#pragma once

#include <cstdint>
#include <string>

namespace mso {

std::string byte_tokenizer_json();    // its tokenizer.json
std::string byte_tokenizer_config();  // its tokenizer_config.json

// GPT-2's map from bytes to printable letters, as UTF-8: how byte-level vocabularies write a byte.
// Source: bytes_to_unicode() of openai/gpt-2, encoder.py.
std::string byte_letter(uint8_t byte);

}  // namespace mso
