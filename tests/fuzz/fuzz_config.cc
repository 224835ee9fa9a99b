// Fuzz target: configuration text and overrides. Whatever comes in is refused with an mso::Error or accepted,
// and what is accepted reads back equal from YAML and from JSON. Input: YAML, then after a line "%%" one
// override a line. Sources to link besides this file:
// runtime/base/{config_schema,config_tree,config_parse,config_text,config_listing,error,file,suggest,units}.cc,
// yaml-cpp.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> overrides;
  const size_t split = text.find("\n%%\n");
  if (split != std::string::npos) {
    std::string rest = text.substr(split + 4);
    text.resize(split + 1);
    for (size_t begin = 0; begin < rest.size();) {
      const size_t end = std::min(rest.find('\n', begin), rest.size());
      overrides.push_back(rest.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  try {
    const mso::LoadedConfig loaded = mso::parse_config(text, "fuzz.yaml", overrides);
    mso::format_effective_values(loaded);
    const std::string yaml = mso::to_yaml(loaded.config);
    if (mso::parse_config(yaml, "again.yaml").config != loaded.config) abort();
    const auto json = nlohmann::json::parse(mso::to_json(loaded.config).dump());
    if (mso::config_from_json(json, "again.json") != loaded.config) abort();
    if (!mso::diff_config(loaded.config, loaded.config).empty()) abort();
  } catch (const mso::Error&) {
  }
  return 0;
}
