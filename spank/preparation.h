// What is done on a node for a step: a list of preparations, each with a part as root before the tasks, a
// part in each task, and a part when the step is over. Knows nothing of Slurm.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "node/job_request.h"
#include "spank/job_state.h"
#include "spank/plugin_arguments.h"

namespace mso {

// Slurm's numbers of steps that are none of the user's sruns.
inline constexpr uint32_t kExternStep = 0xfffffffc, kBatchStep = 0xfffffffb, kInteractiveStep = 0xfffffffa;

struct StepFacts {
  JobName job;
  uint32_t step = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  uint32_t nodes = 0, node_index = 0, local_tasks = 0;
  uint64_t job_memory = 0, step_memory = 0;  // bytes on this node; 0: not limited
  std::string job_cores, step_cores;         // of this node, as Slurm numbers them; empty: not told
  std::string node;                          // Slurm's name of it
};

// Reads and changes the environment the tasks will have.
struct StepVariables {
  std::function<std::optional<std::string>(const std::string& name)> get;
  std::function<void(const std::string& name, const std::string& value)> set;
  std::function<void(const std::string& name)> unset;
};

struct StepContext {
  StepFacts& facts;  // the first preparation settles under which restart the job is kept
  const JobRequest& request;
  const PluginArguments& arguments;
  const RunDirectory& run;
  StepVariables variables;
  std::vector<std::string>& notes;  // one line each, shown to the user when the step starts
  std::vector<std::pair<std::string, std::string>>&
      log;  // names and values for the set-up's line in slurmd's log
};

struct TaskContext {
  const StepFacts& facts;
  const JobRequest& request;
  uint32_t local_id = 0, global_id = 0;
  StepVariables variables;
  std::vector<std::string>& notes;
};

class Preparation {
 public:
  virtual ~Preparation() = default;
  virtual const char* name() const = 0;
  // As root, once for a step, before its tasks. An Error fails the step with its exit code and message.
  virtual void prepare(StepContext& step) = 0;
  // In each task's process: as root, then as the user just before the program starts.
  virtual void enter_task_privileged(TaskContext&) {}
  virtual void enter_task(TaskContext&) {}
  // As root in slurmstepd, when Slurm has put a task where it belongs and the task still waits.
  virtual void after_fork(const StepFacts&, uint32_t /*local_id*/, pid_t /*pid*/) {}
  // As root in slurmstepd, when a task has ended and before Slurm removes what it made for it.
  virtual void leave_task(const StepFacts&, uint32_t /*local_id*/) {}
  // As root when the step's tasks are over, or where a later preparation failed; also after prepare() threw.
  virtual void undo(const StepFacts&) {}
};

// All of them, in the order in which they are made; undone in reverse.
std::vector<std::unique_ptr<Preparation>> make_preparations();

std::unique_ptr<Preparation> make_snapshot_preparation();  // snapshot_preparation.cc
std::unique_ptr<Preparation> make_nvme_preparation();      // nvme_preparation.cc
std::unique_ptr<Preparation> make_slice_preparation();     // slice_preparation.cc
std::unique_ptr<Preparation> make_cpu_preparation();       // cpu_preparation.cc
std::unique_ptr<Preparation> make_io_preparation();        // io_preparation.cc

// Steps whose tasks are the user's ranks; not the batch script's or an interactive shell's, which start steps
// themselves.
inline bool is_task_step(uint32_t step) {
  return step < 0xfffffff0;
}

}  // namespace mso
