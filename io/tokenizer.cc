#include "io/tokenizer.h"

#include "base/error.h"
#include "base/hash.h"
#include "io/tokenizer_bytes.h"

namespace mso {

std::string Tokenizer::fingerprint() const {
  return hex64(hash64(config_text_, hash64(source_text_)));
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& where) {
  if (where == "bytes") return make_byte_tokenizer();
  throw Error("cannot load the tokenizer", where, "only \"bytes\" so far", ExitCode::kBadUsage);
}

std::unique_ptr<Tokenizer> parse_tokenizer(std::string source_text, std::string config_text,
                                           const std::string& name) {
  auto bytes = make_byte_tokenizer();
  if (source_text == bytes->source_text() && config_text == bytes->config_text()) return bytes;
  throw Error("cannot load the tokenizer", name, "only \"bytes\" so far", ExitCode::kBadUsage);
}

}  // namespace mso
