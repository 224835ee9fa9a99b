// Older folders that hold vocab.json and merges.txt instead of a tokenizer.json.
#pragma once

#include <string>

namespace mso {

// The tokenizer.json that transformers makes of the two: of a CLIPTokenizer (lower case, "</w>" at the end of words) where
// the vocabulary is CLIP's, else of a GPT2Tokenizer. `name` stands for the folder in messages. Error (kBadUsage).
std::string tokenizer_json_of_vocabulary(const std::string& vocab, const std::string& merges, const std::string& name);

}  // namespace mso
