// Fuzz target: any bytes as tokenizer.json, then a fixed text there and back. Only mso::Error may come out.
// Sources: io/tokenizer.cc io/tokenizer_added.cc io/tokenizer_bpe.cc io/tokenizer_bytes.cc io/tokenizer_decode.cc
// Sources: io/tokenizer_json.cc io/tokenizer_pattern.cc io/tokenizer_steps.cc io/utf8.cc
// Sources: runtime/base/error.cc runtime/base/file.cc runtime/base/hash.cc runtime/base/log.cc
// Packages: libpcre2-8 libutf8proc libxxhash spdlog
#include <spdlog/spdlog.h>

#include "base/error.h"
#include "io/tokenizer.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  spdlog::set_level(spdlog::level::off);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string kText =
      "The <image> 12345 b\xc3\xa4r's  e\xcc\x81 \r\n\t \xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x90\xbb\xe2\x80\x8d \xe2\x96\x81x <s></s> aaaa"
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab    \xff [x]abcde";
  try {
    auto tokenizer = mso::parse_tokenizer(std::string(reinterpret_cast<const char*>(data), size), "", "fuzz");
    std::vector<int64_t> ids = tokenizer->encode(kText, true);
    ids.insert(ids.end(), {-1, 0, 1, 2, 3, 255, 256, int64_t{1} << 40});
    tokenizer->decode(ids, false);
    tokenizer->decode(ids, true);
    for (int64_t id : ids)
      if (auto token = tokenizer->token(id)) tokenizer->token_id(*token);
  } catch (const mso::Error&) {
  }
  return 0;
}
