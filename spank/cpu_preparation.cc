// CPU sets as a preparation: each task is told which of its CPUs decode pictures, which decode video and which compute, and
// starts on the last. By affinity alone, or, where the admin wants it, with cgroup children for decoder threads.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "base/error.h"
#include "node/cgroup.h"
#include "node/cpu_sets.h"
#include "node/cpu_sysfs.h"
#include "node/nvme_lanes.h"
#include "node/request_text.h"
#include "node/thread_place.h"
#include "spank/gpu_indices.h"
#include "spank/log_line.h"
#include "spank/preparation.h"

namespace mso {

namespace {

// All tasks of a step together.
constexpr double kRemoveBudgetS = 0.5;

class CpuPreparation : public Preparation {
 public:
  const char* name() const override { return "cpus"; }

  void prepare(StepContext& step) override {
    for (const char* variable : {kImageCpusVariable, kVideoCpusVariable, kComputeCpusVariable, kImageCgroupVariable,
                                 kVideoCgroupVariable, kIoPriorityVariable})
      step.variables.unset(variable);  // of an outer step
    if (!step.request.cpus || !is_task_step(step.facts.step)) return;
    on_ = true;
    prod_ = step.request.check == CheckMode::kProd;
    request_ = *step.request.cpus;
    use_cgroups_ = step.arguments.decoder_cgroups;
    io_priority_ = step.arguments.io_priority;
    decoder_nice_ = step.arguments.decoder_nice;
    const std::optional<NodeFacts> facts = load_node_facts(step.run.path() / "node-facts");
    cpus_ = facts ? facts->cpus : read_cpus_sysfs();
    if (facts) gpu_numa_ = numa_of_gpus(facts->gpus, step_gpu_indices(step.variables));
    if (const auto holds = parse_nvme_holds(step.variables.get("MSO_NVME").value_or("")); holds && facts) {
      place_.image = numa_of_holds(facts->nvme, *holds, "image");
      place_.video = numa_of_holds(facts->nvme, *holds, "video");
    }
    step_cores_ = static_cast<int>(parse_cpu_list(step.facts.step_cores).value_or(CpuSet{}).size());
    step.log.push_back({"cpus", format_cpu_request(request_)});
    if (decoder_nice_) step.log.push_back({"decoder_nice", std::to_string(*decoder_nice_)});
    // What can be seen before the tasks are there is refused before they are.
    const int needed = request_.image + request_.video + static_cast<int>(step.facts.local_tasks);
    if (prod_ && step_cores_ > 0 && needed > step_cores_)
      throw Error("too few CPUs", format_cpu_request(request_) + " and " + std::to_string(step.facts.local_tasks) +
                  " tasks need " + std::to_string(needed) + " cores on node " + step.facts.node + ", the step has " + std::to_string(step_cores_),
                  "ask for more CPUs, for less in --mso-cpus, or --mso-check=staging", ExitCode::kBadUsage);
  }

  // The children are made where Slurm put the task, and the sets are dealt over the whole cpuset there.
  void after_fork(const StepFacts& facts, uint32_t local_id, pid_t pid) override {
    if (!on_ || !use_cgroups_) return;
    const CgroupMounts mounts = find_cgroup_mounts();
    const auto parent = task_cgroup(mounts, facts, pid);
    if (!parent) throw Error("no cgroup for decoder threads", "task " + std::to_string(local_id), "ProctrackType=proctrack/cgroup, TaskPlugin=task/cgroup and ConstrainCores=yes in cgroup.conf");
    const TaskCpus mine = plan_for(facts, local_id, cpuset_of(*parent), true).tasks.at(local_id);
    make_decoder_cgroups(mounts, *parent, child_name(local_id), mine.image, mine.video, facts.uid,
                         static_cast<int>(facts.local_tasks));
  }

  // Still as root: the user's threads may then do it themselves. How far is the admin's word alone.
  void enter_task_privileged(TaskContext& task) override {
    if (on_ && decoder_nice_ && !permit_nice(*decoder_nice_))
      task.notes.push_back("decoder threads keep their priority: RLIMIT_NICE for nice " + std::to_string(*decoder_nice_) + ": " + std::strerror(errno));
  }

  void enter_task(TaskContext& task) override {
    if (!on_) return;
    CpuSet allowed = current_cpus();
    bool held = false;
    if (use_cgroups_) {
      const CgroupMounts mounts = find_cgroup_mounts();
      const auto parent = task_cgroup(mounts, task.facts, ::getpid());
      const std::string name = parent ? (*parent / child_name(task.local_id)).string() : "";
      std::error_code failed;
      held = parent && std::filesystem::exists(name + ".image", failed) && std::filesystem::exists(name + ".video", failed);
      if (held) {
        allowed = cpuset_of(*parent);
        task.variables.set(kImageCgroupVariable, name + ".image");
        task.variables.set(kVideoCgroupVariable, name + ".video");
      } else {
        complain(task, "decoder threads are not held by cgroups, see slurmd's log", "decoder-cgroups in plugstack.conf");
      }
    }
    // Slurm bound this task to a part of the step's cores: that part is divided. Otherwise all tasks share the step's.
    const bool bound = !held && step_cores_ > 0 && core_count(allowed) < step_cores_;
    const CpuSetPlan plan = plan_for(task.facts, task.local_id, allowed, !bound);
    const TaskCpus& mine = plan.tasks.at(bound ? 0 : task.local_id);
    if (!plan.note.empty()) complain(task, plan.note, "ask for more CPUs, or for less in --mso-cpus");
    task.variables.set(kImageCpusVariable, format_cpu_list(mine.image));
    task.variables.set(kVideoCpusVariable, format_cpu_list(mine.video));
    task.variables.set(kComputeCpusVariable, format_cpu_list(mine.compute));
    if (!io_priority_.empty()) task.variables.set(kIoPriorityVariable, io_priority_);
    if (!set_current_cpus(mine.compute))
      complain(task, "cannot run on the compute CPUs " + format_cpu_list(mine.compute), "");
  }

  void leave_task(const StepFacts& facts, uint32_t local_id) override {
    if (on_ && use_cgroups_) remove_children(facts, child_name(local_id));
  }
  void undo(const StepFacts& facts) override {
    if (on_ && use_cgroups_)
      for (uint32_t task = 0; task < facts.local_tasks; ++task) remove_children(facts, child_name(task));
  }

 private:
  static std::string child_name(uint32_t local_id) { return "mso_" + std::to_string(local_id); }

  static CpuSet cpuset_of(const std::filesystem::path& group) {
    for (const char* name : {"cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"}) {
      FILE* in = std::fopen((group / name).c_str(), "re");
      if (!in) continue;
      char text[4096] = "";
      const bool read = std::fgets(text, sizeof text, in) != nullptr;
      std::fclose(in);
      if (const auto cpus = parse_cpu_list(text); read && cpus && !cpus->empty()) return *cpus;
    }
    return {};
  }

  int core_count(const CpuSet& cpus) const {
    std::set<int> cores;
    for (int cpu : cpus) {
      const auto fact = std::ranges::find(cpus_, cpu, &CpuFact::cpu);
      cores.insert(fact == cpus_.end() ? 100000 + cpu : fact->core);
    }
    return static_cast<int>(cores.size());
  }

  CpuSetPlan plan_for(const StepFacts& facts, uint32_t local_id, const CpuSet& allowed, bool all_tasks) const {
    CpuSetInput input;
    input.allocated = allowed;
    input.cpus = cpus_;
    const int tasks = static_cast<int>(std::max(facts.local_tasks, local_id + 1));
    for (int t = 0; t < (all_tasks ? tasks : 1); ++t) {
      TaskPlace place = place_;
      const size_t k = all_tasks ? static_cast<size_t>(t) : local_id;
      if (!gpu_numa_.empty()) place.compute = gpu_numa_[k % gpu_numa_.size()];
      input.tasks.push_back(place);
    }
    input.request = request_;
    if (!all_tasks) input.request = {(request_.image + tasks - 1) / tasks, (request_.video + tasks - 1) / tasks};
    return plan_cpu_sets(input);
  }

  // Where a task's decoder threads can be held: v1: the step's cpuset, v2: the task's own cgroup. None where Slurm made
  // none for the task: what it is in then is not the job's.
  static std::optional<std::filesystem::path> task_cgroup(const CgroupMounts& mounts, const StepFacts& facts, pid_t pid) {
    if (mounts.version == 2) {
      const auto group = cgroup_of(mounts, pid);
      if (!group) return std::nullopt;
      const std::string below = group->string().substr(std::min(mounts.unified.string().size(), group->string().size()));
      return is_task_cgroup(below, facts.job.job, facts.step, facts.node) ? group : std::nullopt;
    }
    const auto found = step_cgroups(mounts, facts.job.job, facts.step, facts.node);
    return found.empty() ? std::nullopt : std::optional(found.front());
  }

  void complain(TaskContext& task, const std::string& what, const std::string& hint) const {
    if (prod_) throw Error("CPU sets refused", what, hint.empty() ? "--mso-check=staging" : hint + ", or --mso-check=staging", ExitCode::kBadUsage);
    task.notes.push_back(what);
  }

  void remove_children(const StepFacts& facts, const std::string& name) {
    const CgroupMounts mounts = find_cgroup_mounts();
    for (const auto& parent : step_cgroups(mounts, facts.job.job, facts.step, facts.node))
      for (const std::string& left : remove_decoder_cgroups(parent, name, remove_budget_s_))
        log_line(LogLine("cgroup").add("job", facts.job.job).add("left", left), true);
  }

  bool on_ = false, prod_ = false, use_cgroups_ = false;
  double remove_budget_s_ = kRemoveBudgetS;
  CpuRequest request_;
  std::string io_priority_;
  std::optional<int> decoder_nice_;
  std::vector<CpuFact> cpus_;
  std::vector<int> gpu_numa_;  // of the step's GPUs, in their order
  TaskPlace place_;
  int step_cores_ = 0;
};

}  // namespace

std::unique_ptr<Preparation> make_cpu_preparation() {
  return std::make_unique<CpuPreparation>();
}

}  // namespace mso
