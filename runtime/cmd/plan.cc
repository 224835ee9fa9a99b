// mso plan: what a run would need, before it starts.
#include "cmd/command.h"

namespace mso {

Command plan_command() {
  Command command;
  command.name = "plan";
  command.summary = "show stages, ranks, memory and snapshot sizes before training";
  command.setup = [](CLI::App& app) -> std::function<int()> { return [] { return 0; }; };
  return command;
}

}  // namespace mso
