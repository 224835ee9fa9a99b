// mso config: effective values, the list of keys, and the files made from the table of keys.
#include <iostream>
#include <memory>

#include "base/config_schema.h"
#include "cmd/command.h"
#include "node/job_request.h"

namespace mso {

namespace {

// Lines "field<TAB>value<TAB>FILE:LINE" of the keys that are set, as the Slurm plugin reads them
// (spank/user_request.cc).
std::string node_request(const LoadedConfig& loaded) {
  const EroConfig& ero = loaded.config.ero;
  const auto cores = [&ero](size_t i) { return std::to_string(ero.cpu_reserve_cores.at(i)); };
  std::string text;
  for (const RequestFieldNames& names : request_fields()) {
    const auto source = loaded.sources.find(names.config_key);
    if (source == loaded.sources.end()) continue;
    std::string value;
    switch (names.field) {
      case RequestField::kSnapshot:
        value = loaded.config.ecm.level0_size;
        break;
      case RequestField::kGpuSlices:
        value = ero.gpu_slices;
        break;
      case RequestField::kCpus:
        value = "image:" + cores(0) + ",video:" + cores(1);
        break;
      case RequestField::kNvme:
        value = ero.nvme_lanes;
        break;
      case RequestField::kCheck:
        value = ero.check;
        break;
    }
    if (!value.empty()) text += std::string(names.key) + "\t" + value + "\t" + source->second + "\n";
  }
  return text;
}

}  // namespace

Command config_command() {
  Command command;
  command.name = "config";
  command.summary = "check a configuration; list keys and effective values";
  command.setup = [](CLI::App& app) -> std::function<int()> {
    struct Options : ConfigOptions {
      bool keys = false, man = false, sample = false, yaml = false, json = false, node_request = false;
    };
    auto options = std::make_shared<Options>();
    options->add_to(app);
    app.add_flag("--keys", options->keys, "list every key with type, default and help");
    app.add_flag("--yaml", options->yaml, "write the effective configuration as YAML");
    app.add_flag("--json", options->json, "write the effective configuration as JSON");
    app.add_flag("--sample", options->sample, "write a file with every key, default and help");
    app.add_flag("--man", options->man, "write the manual page megascale_config.yaml(5)");
    app.add_flag("--node-request", options->node_request, "write what srun --mso-config takes from the file");
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
        if (options->node_request)
          std::cout << node_request(loaded);
        else if (options->yaml)
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
