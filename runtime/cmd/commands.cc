// The list of subcommands, and what this build leaves out.
#include <config.h>

#include "base/log.h"
#include "cmd/command.h"

namespace mso {

std::vector<Command> all_commands() {
  std::vector<Command> commands;
#if defined(MSO_HAVE_TRAIN) && defined(MSO_WITH_TRAIN_COMMAND)
  commands.push_back(train_command());
#else
  commands.push_back(
      missing_command("train", "train a model, or go on with a run",
                      "training: configure with --with-torch and the libraries it lists as missing"));
#endif
  commands.push_back(run_command());
  commands.push_back(plan_command());
  commands.push_back(check_command());
  commands.push_back(config_command());
#if defined(MSO_HAVE_IO) && defined(MSO_WITH_DATA_COMMAND)
  commands.push_back(data_command());
#else
  commands.push_back(missing_command("data", "pack, index and check training data",
                                     "data pipeline: configure with the libraries it lists as missing"));
#endif
#if defined(MSO_HAVE_CKPT) && defined(MSO_WITH_CKPT_COMMAND)
  commands.push_back(ckpt_command());
#else
  commands.push_back(missing_command("ckpt", "list, show, verify, compare and export checkpoints",
                                     "checkpoints: configure with --with-hdf5"));
#endif
#if defined(MSO_WITH_REPORT_COMMAND)
  commands.push_back(report_command());
#endif
  return commands;
}

Command missing_command(const std::string& name, const std::string& summary, const std::string& needs) {
  Command command;
  command.name = name;
  command.summary = summary + " (not in this build)";
  command.setup = [name, needs](CLI::App& app) -> std::function<int()> {
    app.allow_extras();
    return [name, needs]() -> int {
      throw Error("mso " + name + " is not available", "this build has no " + needs, "", ExitCode::kBadUsage);
    };
  };
  return command;
}

void ConfigOptions::add_to(CLI::App& app) {
  app.add_option("-c,--config", file,
                 std::string("configuration file (default: ./") + kDefaultConfigName + ")")
      ->type_name("FILE");
  app.add_option("overrides", overrides, "values that win over the file, such as train.steps=300")
      ->type_name("KEY=VALUE");
}

LoadedConfig ConfigOptions::load() const {
  LoadedConfig loaded = load_config(file, overrides);
  for (const std::string& note : loaded.notes) log_info("{}", note);
  return loaded;
}

}  // namespace mso
