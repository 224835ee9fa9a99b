// Runs other programs with a deadline and collects what they say. No shell, no thread.
#pragma once

#include <string>
#include <vector>

namespace mso {

struct Outcome {
  int not_started = 0;  // errno, where the program could not be started
  bool timed_out = false;
  int exit_code = -1;  // 128 + signal where one ended it; -1: not known
  std::string output, errors;
};

// Output and errors are cut at `limit` bytes each. argv[0] without a slash is looked for in this process's
// PATH. Standard input is /dev/null, signals are as in a shell. `environment` null: this process's.
// When `deadline_s` is over, the program and its process group are killed, whatever it does; returns at most
// about a second later.
Outcome run_program(const std::vector<std::string>& argv, double deadline_s, size_t limit,
                    const std::vector<std::string>* environment = nullptr);

// The same for several programs at the same time; outcomes in their order. The deadline is that of all of them.
std::vector<Outcome> run_programs(const std::vector<std::vector<std::string>>& commands, double deadline_s,
                                  size_t limit, const std::vector<std::string>* environment = nullptr);

}  // namespace mso
