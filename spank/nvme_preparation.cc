// NVMe lanes as a preparation: reserved for the job on this node by the first step that asks, kept in the job's folder, free
// again when that is removed. Duplicate drives of this node are refused here; across nodes the runtime compares.
#include "base/error.h"
#include "base/file.h"
#include "node/nvme_lanes.h"
#include "node/nvme_sysfs.h"
#include "spank/gpu_indices.h"
#include "spank/preparation.h"

namespace mso {

namespace {

std::optional<std::vector<NvmeHold>> read_holds(const std::filesystem::path& file) {
  std::error_code failed;
  if (!std::filesystem::exists(file, failed)) return std::nullopt;
  try {
    return parse_nvme_holds(read_file(file, 16384));
  } catch (const Error&) {
    return std::nullopt;
  }
}

class NvmePreparation : public Preparation {
 public:
  const char* name() const override { return "nvme"; }

  void prepare(StepContext& step) override {
    step.variables.unset("MSO_NVME");
    // The runtime compares the drives of all nodes when it starts, and what it does then is the same choice.
    step.variables.set("MSO_CHECK", check_mode_name(step.request.check));
    if (step.request.nvme.empty() || !is_task_step(step.facts.step)) return;
    if (step.arguments.nvme_max > 0 && lanes_of(step.request.nvme) > step.arguments.nvme_max)
      throw Error("more NVMe lanes than the administrator allows a job",
                  format_nvme_request(step.request.nvme) + ": " + std::to_string(lanes_of(step.request.nvme)) + " of at most " +
                      std::to_string(step.arguments.nvme_max),
                  "lower --mso-nvme", ExitCode::kBadUsage);
    const auto refuse_or_note = [&](const std::string& what, const std::string& problem, const std::string& instead) {
      if (step.request.check == CheckMode::kProd)
        throw Error(what, problem, "ask for less, or --mso-check=staging", ExitCode::kBadUsage);
      step.notes.push_back(what + ": " + problem + instead);
    };
    const NvmeFacts drives = read_nvme();
    for (const std::string& duplicate : compare_drives({{step.facts.node, "", drives}}).duplicates) 
      refuse_or_note("NVMe drives have the same identifier", duplicate, "");

    const StateLock lock(step.run, step.arguments.lock_timeout_s, "nvme of job " + format_job_name(step.facts.job));
    const std::filesystem::path mine = step.run.of(step.facts.job) / "nvme";
    std::optional<std::vector<NvmeHold>> holds = read_holds(mine);
    if (!holds) {
      std::vector<NvmeHold> others;
      for (const JobName& job : step.run.jobs())
        if (job != step.facts.job)
          if (const auto theirs = read_holds(step.run.of(job) / "nvme")) others.insert(others.end(), theirs->begin(), theirs->end());
      const std::optional<NodeFacts> facts = load_node_facts(step.run.path() / "node-facts");
      const std::vector<int> near = facts ? numa_of_gpus(facts->gpus, step_gpu_indices(step.variables)) : std::vector<int>{};
      NvmePlan plan = plan_nvme_lanes(drives, others, step.request.nvme, near.empty() ? -1 : near.front());
      if (!plan.mistakes.empty()) {
        refuse_or_note("no NVMe lanes", plan.mistakes.front(), "; going on without reserved lanes");
        return;
      }
      holds = std::move(plan.holds);
      if (!step.run.read_state(step.facts.job)) {
        JobState state;
        state.uid = step.facts.uid;
        state.ready = true;
        state.node = step.facts.node;
        step.run.write_state(step.facts.job, state);
      }
      write_file_durably(mine, format_nvme_holds(*holds) + "\n");
    }
    step.variables.set("MSO_NVME", format_nvme_holds(*holds));
    step.log.push_back({"nvme", format_nvme_holds(*holds)});
  }
};

}  // namespace

std::unique_ptr<Preparation> make_nvme_preparation() {
  return std::make_unique<NvmePreparation>();
}

}  // namespace mso
