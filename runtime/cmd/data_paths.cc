#include "base/config.h"
#include "base/error.h"
#include "cmd/data_tools.h"
#include "io/storage_options.h"

namespace mso {

void DataPaths::add_to(CLI::App& command) {
  command.add_option("PATH", paths, "folders of shards, or .tar files; bare, file:// or nvme://NAME/FOLDER")->required();
  command.add_option("--set", settings, "a key of the configuration's mdp section, such as mdp.nvme.fast=/mnt/nvme0")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);  // one for each --set, so that PATH may follow
}

std::shared_ptr<const Dataset> DataPaths::open() const {
  for (const std::string& setting : settings)
    if (!setting.starts_with("mdp."))
      throw Error("not a key of mdp", "--set " + setting, "such as mdp.cache.path=/tmp/cache", ExitCode::kBadUsage);
  return Dataset::open(paths, std::make_shared<Storage>(storage_options(parse_config("", "", settings).config)));
}

}  // namespace mso
