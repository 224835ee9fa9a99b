// A subcommand of `mso`: one file each, listed in commands.cc.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "base/config.h"

namespace mso {

struct Command {
  std::string name;
  std::string summary;  // one line for `mso --help`
  // Adds options and examples (footer) to the subcommand's parser; returns what runs after parsing. That
  // returns the exit code; main() prints what it throws.
  std::function<std::function<int()>(CLI::App&)> setup;
};

// Every subcommand in the order of `mso --help`; one whose part is not built says so when it is called.
std::vector<Command> all_commands();

Command train_command();   // train.cc
Command run_command();     // run.cc
Command plan_command();    // plan.cc
Command check_command();   // check.cc
Command config_command();  // config.cc
Command data_command();    // data.cc
Command ckpt_command();    // ckpt.cc
Command report_command();  // report.cc
// Stands for a command whose part of the program is missing from this build: any use of it is an Error.
Command missing_command(const std::string& name, const std::string& summary, const std::string& needs);

// -c FILE and positional KEY=VALUE, for commands that read a configuration. Keep it alive until load().
struct ConfigOptions {
  std::string file;
  std::vector<std::string> overrides;

  void add_to(CLI::App& app);
  // Parses and logs the notes. ConfigError with all mistakes.
  LoadedConfig load() const;
};

}  // namespace mso
