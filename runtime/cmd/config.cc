// mso config: effective values, the list of keys, and the files made from the table of keys.
#include <iostream>
#include <memory>

#include "base/config_schema.h"
#include "cmd/command.h"

namespace mso {

Command config_command() {
  Command command;
  command.name = "config";
  command.summary = "check a configuration; list keys and effective values";
  command.setup = [](CLI::App& app) -> std::function<int()> {
    struct Options : ConfigOptions {
      bool keys = false, man = false, sample = false, yaml = false, json = false;
    };
    auto options = std::make_shared<Options>();
    options->add_to(app);
    app.add_flag("--keys", options->keys, "list every key with type, default and help");
    app.add_flag("--yaml", options->yaml, "write the effective configuration as YAML");
    app.add_flag("--json", options->json, "write the effective configuration as JSON");
    app.add_flag("--sample", options->sample, "write a file with every key, default and help");
    app.add_flag("--man", options->man, "write the manual page megascale_config.yaml(5)");
    app.footer(
        "\nExamples:\n"
        "  mso config -c demo.yaml train.seed=7      every value and where it comes from\n"
        "  mso config --keys | less                  what can be set\n"
        "  mso config --sample > megascale_config.yaml\n");
    return [options]() -> int {
      if (options->keys) {
        std::cout << format_config_keys();
      } else if (options->man) {
        std::cout << config_man_page();
      } else if (options->sample) {
        std::cout << sample_config();
      } else {
        const LoadedConfig loaded = options->load();
        if (options->yaml)
          std::cout << to_yaml(loaded.config);
        else if (options->json)
          std::cout << to_json(loaded.config).dump(2) << "\n";
        else
          std::cout << format_effective_values(loaded);
      }
      return 0;
    };
  };
  return command;
}

}  // namespace mso
