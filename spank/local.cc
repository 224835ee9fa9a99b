// Context of srun: checks the request before the allocation or step is asked for, and when the step is over,
// that every node was prepared.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/file.h"
#include "base/subprocess.h"
#include "spank/confirmation.h"
#include "spank/hooks.h"
#include "spank/log_line.h"
#include "spank/options.h"
#include "spank/user_request.h"

namespace mso {

namespace {

// More than the kernel keeps waiting for us.
constexpr size_t kMostConfirmed = 4000;
constexpr double kCollectDeadlineS = 2;

struct StepOfSrun {
  std::optional<ConfirmationBox> box;
  size_t expected = 0;  // nodes, over all components of a heterogeneous step
  uint32_t job = 0;
  std::filesystem::path squeue;
  int exit_status = 0;
};

StepOfSrun& step_of_srun() {
  static StepOfSrun* step = new StepOfSrun;  // never destroyed: see options.cc
  return *step;
}

void keep_exit_status(int status, void*) {
  step_of_srun().exit_status = status;
}

std::pair<uint16_t, uint16_t> allowed_ports() {
  const char* file = std::getenv("SLURM_CONF");
  try {
    return srun_ports(read_file(file && *file ? file : "/etc/slurm/slurm.conf", 4 << 20));
  } catch (const Error&) {
    return {0, 0};  // configless: the range, if any, is not known here
  }
}

// "n2", or "1 of 2 nodes" where names cannot be had. Slurm does not tell srun's plugins its nodes; squeue
// does.
std::string missing_nodes(const StepOfSrun& step, const std::set<NodeOfStep>& confirmed) {
  const std::string count =
      std::to_string(step.expected - confirmed.size()) + " of " + std::to_string(step.expected) + " nodes";
  const Outcome answer = run_program({step.squeue.string(), "--noheader", "--states=all",
                                      "--jobs=" + std::to_string(step.job), "--format=%N"},
                                     5, 64 << 10);
  std::vector<std::string> missing = expand_host_list(answer.output.substr(0, answer.output.find('\n')));
  std::erase_if(missing, [&confirmed](const std::string& name) {
    return std::any_of(confirmed.begin(), confirmed.end(),
                       [&name](const NodeOfStep& node) { return node.name == name; });
  });
  // A step on a part of the job's nodes: which part is not known.
  if (missing.size() != step.expected - confirmed.size() || missing.size() > 10) return count;
  std::string text;
  for (const std::string& name : missing) text += (text.empty() ? "" : ", ") + printable(name, 64);
  return text + " (" + count + ")";
}

}  // namespace

void srun_init(const HookCall& call) {
  register_options(call.spank);
}

void srun_init_post_opt(const HookCall& call) {
  // Inside an allocation the job's request holds for its steps; an srun that makes a job of its own starts
  // afresh.
  submit_request(call, std::getenv("SLURM_JOB_ID") != nullptr, "SLURM_MEM_PER_NODE");
}

// The allocation is there, the step is about to be launched. Called for each component of a heterogeneous
// step.
void srun_local_user_init(const HookCall& call) {
  if (!std::getenv(kRequestVariable)) return;
  const PluginArguments arguments = arguments_of(call);
  if (!arguments.confirm) return;
  StepOfSrun& step = step_of_srun();
  step.squeue = arguments.squeue;
  const auto job = spank_item_of<uint32_t>(call.spank, S_JOB_ID),
             nodes = spank_item_of<uint32_t>(call.spank, S_JOB_NNODES);
  if (!job || !nodes || *nodes > kMostConfirmed) return;
  if (!step.box) {
    step.box = ConfirmationBox::open(allowed_ports());
    if (!step.box) return;
    ::on_exit(keep_exit_status, nullptr);
    ::setenv(kConfirmVariable, step.box->ticket().c_str(), 1);
  }
  step.expected += *nodes;
  step.job = *job;
}

// Runs while srun exits, when static objects of the plugin may be gone already: uses none.
void srun_exit(const HookCall&) {
  StepOfSrun& step = step_of_srun();
  // Where srun fails anyway, it has said why.
  if (!step.box || step.exit_status != 0) return;
  const auto [confirmed, strangers] = step.box->collect(step.expected, kCollectDeadlineS);
  if (confirmed.size() >= step.expected) return;
  if (strangers > 0) {
    // Whoever can make srun's port busy must not decide how srun ends.
    slurm_error(
        "mso: warning: not known whether the plugin ran on %s: %zu connections that are not of this step came to "
        "srun's port and may have kept a node's from it (confirm= in spank_mso(8))",
        missing_nodes(step, confirmed).c_str(), strangers);
    return;
  }
  slurm_error(
      "mso: the plugin did not run on %s: the step was not prepared there (is spank_mso.so in plugstack.conf "
      "on every node? "
      "can nodes reach srun? see confirm= in spank_mso(8))",
      missing_nodes(step, confirmed).c_str());
  std::fflush(nullptr);
  // Slurm is through with everything but unloading its plugins; there is no other way to change srun's exit
  // code here.
  ::_exit(static_cast<int>(ExitCode::kFailure));
}

}  // namespace mso
