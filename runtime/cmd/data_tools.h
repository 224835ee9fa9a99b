// Subcommands of `mso data` that have a file of their own. Each adds its options and returns through *chosen what runs.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/dataset.h"

namespace mso {

using ChosenCommand = std::shared_ptr<std::function<int()>>;

void add_data_bench(CLI::App& data, const ChosenCommand& chosen);   // data_bench.cc
void add_data_index(CLI::App& data, const ChosenCommand& chosen);   // data_index.cc
void add_data_stat(CLI::App& data, const ChosenCommand& chosen);    // data_stat.cc
void add_data_verify(CLI::App& data, const ChosenCommand& chosen);  // data_verify.cc
void add_data_report(CLI::App& data, const ChosenCommand& chosen);  // data_report.cc

// Where data is, and how it is read.
struct DataPaths {
  std::vector<std::string> paths, settings;

  void add_to(CLI::App& command);  // PATH …, --set
  // Error (kBadUsage) for a setting that is no key of mdp.
  std::shared_ptr<const Dataset> open() const;
};

inline constexpr int kMostThreads = 1024;

}  // namespace mso
