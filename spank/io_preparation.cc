// Limits of I/O as a preparation, where the admin turned them on: what a job may read and write on the drives it holds lanes
// of, and its weight beside others, in the job's own cgroup (v2), which Slurm removes with the job.
#include <exception>

#include "base/error.h"
#include "node/cgroup.h"
#include "node/io_limits.h"
#include "node/nvme_sysfs.h"
#include "spank/log_line.h"
#include "spank/preparation.h"

namespace mso {

namespace {

class IoPreparation : public Preparation {
 public:
  const char* name() const override { return "io"; }

  void prepare(StepContext& step) override {
    weight_ = step.arguments.io_weight;
    if (step.arguments.nvme_lane_rate > 0)
      if (const auto holds = parse_nvme_holds(step.variables.get("MSO_NVME").value_or("")); holds && !holds->empty())
        limits_ = plan_io_limits(read_nvme(), *holds, step.arguments.nvme_lane_rate,
                                 [](const std::string& device) { return device_number_of(device); });
    for (const IoLimit& limit : limits_) step.log.push_back({"io_max", limit.device + "=" + std::to_string(limit.bytes_per_s)});
    if (weight_ > 0) step.log.push_back({"io_weight", std::to_string(weight_)});
  }

  // Slurm has made the job's cgroup by now. It is the site's limit, not what the user asked for: where it cannot be set, the
  // job runs and slurmd's log says so.
  void after_fork(const StepFacts& facts, uint32_t local_id, pid_t pid) override {
    if (local_id != 0 || (limits_.empty() && weight_ == 0)) return;
    LogLine line("io_limit");
    line.add("job", facts.job.job);
    try {
      const CgroupMounts mounts = find_cgroup_mounts();
      const auto task = mounts.version == 2 ? cgroup_of(mounts, pid) : std::nullopt;
      const auto job = task ? job_cgroup_above(*task, facts.job.job, mounts.unified) : std::nullopt;
      if (!job) throw Error("the task is in no cgroup (version 2) of its job", "", "proctrack/cgroup with cgroup/v2");
      set_job_io(*job, limits_, weight_);
    } catch (const std::exception& error) {
      log_line(line.add("error", error.what()), true);
    }
  }

 private:
  std::vector<IoLimit> limits_;
  int weight_ = 0;
};

}  // namespace

std::unique_ptr<Preparation> make_io_preparation() {
  return std::make_unique<IoPreparation>();
}

}  // namespace mso
