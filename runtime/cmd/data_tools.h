// Subcommands of `mso data` that have a file of their own. Each adds its options and returns through *chosen what runs.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>

namespace mso {

using ChosenCommand = std::shared_ptr<std::function<int()>>;

void add_data_index(CLI::App& data, const ChosenCommand& chosen);   // data_index.cc
void add_data_stat(CLI::App& data, const ChosenCommand& chosen);    // data_stat.cc
void add_data_verify(CLI::App& data, const ChosenCommand& chosen);  // data_verify.cc
void add_data_report(CLI::App& data, const ChosenCommand& chosen);  // data_report.cc

inline constexpr int kMostThreads = 1024;

}  // namespace mso
