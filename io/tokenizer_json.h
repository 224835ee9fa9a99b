// Reads a Hugging Face tokenizer.json with a BPE model.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "io/tokenizer.h"

namespace mso {

// `source_text`: the file's content; `name` stands for the file in messages. `config_of` gives the text of
// its tokenizer_config.json, or nothing; it may ask the tokenizer for tokens. The file's truncation and
// padding are not applied (transformers switches them off, too). Error (ExitCode::kBadUsage) naming the JSON
// path.
std::unique_ptr<Tokenizer> make_json_tokenizer(std::string source_text, const std::string& name,
                                               const std::function<std::string(const Tokenizer&)>& config_of);

}  // namespace mso
