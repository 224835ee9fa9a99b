// Context of slurmstepd: prepares the node for a step, as root, and lets each task in. What goes wrong before
// the tasks is kept and told by each task just before its program would start: Slurm itself would let srun
// end with 0.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>

#include "node/request_text.h"
#include "spank/confirmation.h"
#include "spank/fault.h"
#include "spank/hooks.h"
#include "spank/log_line.h"
#include "spank/options.h"
#include "spank/preparation.h"
#include "spank/snapshot_mount.h"
#include "spank/user_request.h"

namespace mso {

namespace {

constexpr double kConfirmDeadlineS = 1;
// Larger than any node: how Slurm says that memory is not limited.
constexpr uint64_t kMaxMemoryMiB = uint64_t{1} << 34;

// This process's step. Lives until slurmstepd ends; tasks inherit a copy.
struct Step {
  bool asked = false;
  JobRequest request;
  PluginArguments arguments;
  StepFacts facts;
  Fault fault;
  std::vector<std::unique_ptr<Preparation>> preparations;
  size_t prepared = 0;  // how many of them have begun
  std::vector<std::string> notes;
  std::string failure;  // what the tasks will say instead of running
  ExitCode failure_code = ExitCode::kFailure;
};

Step& step() {
  static Step* the_step = new Step;  // never destroyed: see options.cc
  return *the_step;
}

uint64_t memory_item(spank_t spank, spank_item_t item) {
  const uint64_t mebibytes = spank_item_of<uint64_t>(spank, item).value_or(0);
  return mebibytes > kMaxMemoryMiB ? 0 : mebibytes << 20;
}

std::string text_item(spank_t spank, spank_item_t item) {
  const auto text = spank_item_of<char*>(spank, item);
  return text && *text ? *text : "";
}

std::string node_name() {
  // Not the step's own variable, which is that of the batch node in a batch job.
  const char* name = std::getenv("SLURMD_NODENAME");
  if (name && *name) return printable(name, 200);
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return printable(host, 200);
}

// Slurm 22.05 does not tell it by the item, and srun's steps alone by the variable, which is the user's to change:
// see settle_name in snapshot_mount.cc.
uint32_t restart_count(spank_t spank) {
  const uint32_t count = spank_item_of<uint32_t>(spank, S_SLURM_RESTART_COUNT).value_or(0);
  const auto text = step_variable(spank, "SLURM_RESTART_COUNT", 16);
  if (count > 0 || !text) return count;
  return static_cast<uint32_t>(parse_small_number(*text, 0, 1000000).value_or(0));
}

StepFacts read_facts(spank_t spank) {
  StepFacts facts;
  const auto job = spank_item_of<uint32_t>(spank, S_JOB_ID);
  const auto uid = spank_item_of<uid_t>(spank, S_JOB_UID);
  const auto gid = spank_item_of<gid_t>(spank, S_JOB_GID);
  if (!job || !uid || !gid) throw Error("Slurm does not tell the job or its user", "");
  facts.job = {*job, restart_count(spank)};
  facts.uid = *uid;
  facts.gid = *gid;
  facts.step = spank_item_of<uint32_t>(spank, S_JOB_STEPID).value_or(0);
  facts.nodes = spank_item_of<uint32_t>(spank, S_JOB_NNODES).value_or(0);
  facts.node_index = spank_item_of<uint32_t>(spank, S_JOB_NODEID).value_or(0);
  facts.local_tasks = spank_item_of<uint32_t>(spank, S_JOB_LOCAL_TASK_COUNT).value_or(0);
  facts.job_memory = memory_item(spank, S_JOB_ALLOC_MEM);
  facts.step_memory = memory_item(spank, S_STEP_ALLOC_MEM);
  facts.job_cores = text_item(spank, S_JOB_ALLOC_CORES);
  facts.step_cores = text_item(spank, S_STEP_ALLOC_CORES);
  facts.node = node_name();
  return facts;
}

StepVariables variables_of(spank_t spank) {
  return {
      [spank](const std::string& name) { return step_variable(spank, name.c_str(), 32 << 10); },
      [spank](const std::string& name, const std::string& value) { set_step_variable(spank, name, value); },
      [spank](const std::string& name) { spank_unsetenv(spank, name.c_str()); }};
}

std::string step_text(uint32_t step) {
  if (step == kBatchStep) return "batch";
  if (step == kInteractiveStep) return "interactive";
  return std::to_string(step);
}

void undo_preparations() {
  Step& s = step();
  for (; s.prepared > 0; --s.prepared) {
    try {
      s.preparations[s.prepared - 1]->undo(s.facts);
    } catch (const std::exception& error) {
      log_line(LogLine("undo")
                   .add("job", s.facts.job.job)
                   .add("preparation", s.preparations[s.prepared - 1]->name())
                   .add("error", error.what()),
               true);
    }
  }
}

// As the user, in the first task of the node.
void confirm_to_srun(spank_t spank) {
  const auto ticket = step_variable(spank, kConfirmVariable, 64),
             address = step_variable(spank, "SLURM_LAUNCH_NODE_IPADDR", 64);
  const Step& s = step();
  if (!ticket || !address || !is_task_step(s.facts.step)) return;
  if (!send_confirmation(*address, *ticket, {s.facts.job.job, s.facts.node_index, s.facts.node},
                         kConfirmDeadlineS))
    slurm_debug("mso: srun at %s does not answer", printable(*address, 64).c_str());
}

// The failures that fault injection makes must not depend on what they break.
bool needs_nothing(const HookCall& call) {
  return !step().asked || !step().failure.empty() || call.spank == nullptr;
}

}  // namespace

void step_init(const HookCall& call) {
  register_options(call.spank);
}

void step_init_post_opt(const HookCall& call) {
  auto text = step_variable(call.spank, kRequestVariable, kMaxRequestLength);
  const uint32_t step_id = spank_item_of<uint32_t>(call.spank, S_JOB_STEPID).value_or(0);
  const bool kept = !text && (typed_options().asked || step_id == kBatchStep) &&
                    (text = step_variable(call.spank, kKeptRequestVariable, kMaxRequestLength));
  if (!text && !typed_options().asked) return;
  if (step_id == kExternStep) return;
  const auto start = std::chrono::steady_clock::now();
  Step& s = step();
  s.asked = true;
  s.arguments = arguments_of(call);
  if (s.arguments.allow_faults)
    if (const auto fault = step_variable(call.spank, "MSO_SPANK_FAIL")) s.fault = parse_fault(*fault);
  raise_fault(s.fault, "init");
  raise_fault(s.fault, call.hook);

  s.facts = read_facts(call.spank);
  if (kept) set_step_variable(call.spank, kRequestVariable, *text);  // for the steps inside
  if (!text)
    throw Error("--mso was asked for, but what exactly did not reach this node", "",
                std::string(kRequestVariable) + " must stay in the environment", ExitCode::kBadUsage);
  std::string why;
  const auto request = parse_request(*text, why);
  if (!request) throw Error("the request was refused", why, "", ExitCode::kBadUsage);
  s.request = *request;
  if (!s.arguments.mistakes.empty())
    throw Error("plugstack.conf has a mistake in the line of spank_mso.so", s.arguments.mistakes.front(),
                "tell the administrator");

  const auto run = RunDirectory::open(s.arguments.run_dir, true);
  std::vector<std::pair<std::string, std::string>> log;
  StepContext context{s.facts, s.request, s.arguments, *run, variables_of(call.spank), s.notes, log};
  s.preparations = make_preparations();
  for (const auto& preparation : s.preparations) {
    ++s.prepared;
    preparation->prepare(context);
  }
  set_step_variable(call.spank, kPreparedVariable, s.facts.node + ":" + step_text(s.facts.step));

  LogLine line("setup");
  line.add("job", s.facts.job.job).add("restart", s.facts.job.restart).add("step", step_text(s.facts.step));
  line.add("node", s.facts.node).add("user", s.facts.uid);
  for (const auto& [name, value] : log) line.add(name, value);
  line.add("ms", static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                           std::chrono::steady_clock::now() - start)
                                           .count()));
  log_line(line.add("result", "ok"));
}

void step_user_init(const HookCall& call) {
  if (needs_nothing(call)) return;
  raise_fault(step().fault, call.hook);
}

void step_task_init_privileged(const HookCall& call) {
  if (needs_nothing(call)) return;
  Step& s = step();
  raise_fault(s.fault, call.hook);
  TaskContext task{s.facts,
                   s.request,
                   static_cast<uint32_t>(spank_item_of<int>(call.spank, S_TASK_ID).value_or(0)),
                   spank_item_of<uint32_t>(call.spank, S_TASK_GLOBAL_ID).value_or(0),
                   variables_of(call.spank),
                   s.notes};
  for (const auto& preparation : s.preparations) preparation->enter_task_privileged(task);
}

void step_task_init(const HookCall& call) {
  Step& s = step();
  if (!s.asked) return;
  const int local_id = spank_item_of<int>(call.spank, S_TASK_ID).value_or(0);
  if (s.failure.empty()) {
    raise_fault(s.fault, call.hook);
    TaskContext task{s.facts,
                     s.request,
                     static_cast<uint32_t>(local_id),
                     spank_item_of<uint32_t>(call.spank, S_TASK_GLOBAL_ID).value_or(0),
                     variables_of(call.spank),
                     s.notes};
    for (const auto& preparation : s.preparations) preparation->enter_task(task);
    if (local_id == 0) {
      for (const std::string& note : s.notes)
        slurm_error("mso: node %s: %s", s.facts.node.c_str(), printable(note, 500).c_str());
      confirm_to_srun(call.spank);
    }
    return;
  }
  if (local_id == 0)
    slurm_error("mso: step not started on node %s: %s", node_name().c_str(),
                printable(s.failure, 800).c_str());
  // Not by the return value: Slurm overlooks that of a plugin that is `optional` in plugstack.conf. This is
  // the task's own process, just before its program.
  ::_exit(static_cast<int>(s.failure_code));
}

void step_task_post_fork(const HookCall& call) {
  if (needs_nothing(call)) return;
  raise_fault(step().fault, call.hook);
  const auto local_id = static_cast<uint32_t>(spank_item_of<int>(call.spank, S_TASK_ID).value_or(0));
  if (const auto pid = spank_item_of<pid_t>(call.spank, S_TASK_PID))
    for (const auto& preparation : step().preparations) preparation->after_fork(step().facts, local_id, *pid);
}

void step_task_exit(const HookCall& call) {
  if (needs_nothing(call)) return;
  const auto local_id = static_cast<uint32_t>(spank_item_of<int>(call.spank, S_TASK_ID).value_or(0));
  for (const auto& preparation : step().preparations) preparation->leave_task(step().facts, local_id);
  raise_fault(step().fault, call.hook);
}

void step_exit(const HookCall& call) {
  Step& s = step();
  if (!s.asked) return;
  undo_preparations();
  raise_fault(s.fault, call.hook);
}

void failed_in_step(const HookCall& call, const Error& error) {
  Step& s = step();
  const std::string hook = call.hook;
  if (!s.asked) {
    // Nothing of ours may stand in the way of a job that did not ask.
    slurm_debug("mso: %s: %s", call.hook, error.what());
    return;
  }
  log_line(LogLine("failure")
               .add("hook", hook)
               .add("job", s.facts.job.job)
               .add("node", s.facts.node.empty() ? node_name() : s.facts.node)
               .add("user", s.facts.uid)
               .add("result", "refused")
               .add("error", error.what()));
  if (hook == "task_post_fork" || hook == "task_exit" || hook == "exit") return;
  if (s.failure.empty()) {
    s.failure = error.what();
    s.failure_code = error.exit_code();
  }
  if (hook == "init_post_opt") undo_preparations();
  // In task_init there is no later hook that could tell.
  if (hook == "task_init") step_task_init(call);
}

}  // namespace mso
