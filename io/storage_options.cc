#include "io/storage_options.h"

#include "base/error.h"

namespace mso {

namespace {

std::string text_of(const nlohmann::json& value, const std::string& key) {
  if (value.is_string() && !value.get_ref<const std::string&>().empty()) return value.get<std::string>();
  throw Error("a text is wanted", key + ": " + value.dump(), "a path or URL", ExitCode::kBadUsage);
}

}  // namespace

StorageOptions storage_options(const Config& config) {
  const MdpConfig& mdp = config.mdp;
  StorageOptions options;
  for (const auto& [name, place] : mdp.nvme.items()) options.nvme[name] = text_of(place, "mdp.nvme." + name);
  for (const auto& [modality, folders] : mdp.sources.items()) {
    std::vector<std::string>& urls = options.sources[modality];
    const std::string key = "mdp.sources." + modality;
    if (folders.is_array())
      for (const auto& folder : folders) urls.push_back(text_of(folder, key));
    else
      urls.push_back(text_of(folders, key));
  }
  options.latency_limit_s = static_cast<double>(mdp.latency_limit_ms) * 1e-3;
  options.read_deadline_s = static_cast<double>(mdp.read_deadline_ms) * 1e-3;
  options.read_ahead_bytes = static_cast<uint64_t>(mdp.read_ahead_bytes);
  options.cache_path = mdp.cache.path;
  options.cache_bytes = static_cast<uint64_t>(mdp.cache.max_bytes);
  options.cache_always = mdp.cache.fill == "always";
  check_storage_options(options);
  for (const auto& [modality, urls] : options.sources)
    for (const std::string& url : urls) (void)local_path(url, options.nvme);
  return options;
}

}  // namespace mso
