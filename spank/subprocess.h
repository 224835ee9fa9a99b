// Runs another program with a deadline and collects what it says. No shell, no thread.
#pragma once

#include <string>
#include <vector>

namespace mso {

struct Outcome {
  int not_started = 0;  // errno, where the program could not be started
  bool timed_out = false;
  int exit_code = -1;  // 128 + signal where one ended it
  std::string output, errors;
};

// argv[0] is the program's path. Standard input is /dev/null; output and errors are cut at `limit` bytes
// each. After `deadline_s` the program is killed. `environment` null: this process's.
Outcome run_program(const std::vector<std::string>& argv, double deadline_s, size_t limit,
                    const std::vector<std::string>* environment = nullptr);

}  // namespace mso
