// GPU memory slices as a preparation: the sum is checked against the step's devices, and each task is told its device, who
// shares it, and the slices.
#include "base/error.h"
#include "node/gpu_slices.h"
#include "spank/gpu_indices.h"
#include "spank/preparation.h"
#include "spank/tmpfs.h"

namespace mso {

namespace {

// /tmp is everybody's: looks into the daemon's folder only where that is root's, and not at what a user put in its place.
bool mps_daemon_runs() {
  const auto folder = place_of("/tmp/nvidia-mps");
  if (!folder || !folder->folder || folder->owner != 0) return false;
  const auto control = place_of("/tmp/nvidia-mps/control");
  return control && control->owner == 0;
}

class SlicePreparation : public Preparation {
 public:
  const char* name() const override { return "gpu-slices"; }

  void prepare(StepContext& step) override {
    step.variables.unset("MSO_GPU_SLICES");
    if (step.request.gpu_slices.empty() || !is_task_step(step.facts.step) || step.facts.local_tasks == 0) return;
    const std::optional<NodeFacts> facts = load_node_facts(step.run.path() / "node-facts");
    std::vector<SliceDevice> devices;
    bool mig = false;
    const std::vector<int> indices = step_gpu_indices(step.variables);
    if (facts) devices = slice_devices(facts->gpus, indices);
    for (const SliceDevice& device : devices) mig = mig || device.id.starts_with("MIG-");
    if (!indices.empty() && devices.empty())
      step.notes.push_back("this node's facts do not list the step's GPUs: slices are checked against the host's memory (mso check --node)");
    const uint64_t memory = step.facts.step_memory ? step.facts.step_memory : step.facts.job_memory;
    SlicePlan plan = plan_slices(step.request.gpu_slices, devices, static_cast<int>(step.facts.local_tasks), memory);
    if (!plan.mistakes.empty()) {
      if (step.request.check == CheckMode::kProd)
        throw Error("GPU slices do not fit", plan.mistakes.front(), "smaller slices, or --mso-check=staging", ExitCode::kBadUsage);
      step.notes.push_back(plan.mistakes.front() + "; going on without slices");
      return;
    }
    tasks_ = std::move(plan.tasks);
    mps_.admin_wants = step.arguments.mps && !devices.empty();
    mps_.mig = mig;
    mps_.daemon_running = mps_.admin_wants && mps_daemon_runs();
    step.log.push_back({"slices", format_slices(step.request.gpu_slices)});
    step.log.push_back({"mps", decide_mps(mps_).set_limits ? "yes" : "no"});
  }

  void enter_task(TaskContext& task) override {
    if (task.local_id >= tasks_.size()) return;
    const TaskSlices& mine = tasks_[task.local_id];
    task.variables.set("MSO_GPU_SLICES", format_task_slices(mine));
    // Slurm's gres/mps sets its share when a task starts, so it is looked for here.
    MpsFacts mps = mps_;
    mps.gres_mps = task.variables.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").has_value();
    if (decide_mps(mps).set_limits) task.variables.set("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", mps_memory_limit(mine));
  }

 private:
  std::vector<TaskSlices> tasks_;
  MpsFacts mps_;
};

}  // namespace

std::unique_ptr<Preparation> make_slice_preparation() {
  return std::make_unique<SlicePreparation>();
}

}  // namespace mso
