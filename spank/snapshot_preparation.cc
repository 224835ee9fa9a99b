// The snapshot directory as a preparation: made by the first step of a job, found by later ones, shown in
// each task.
#include "base/error.h"
#include "spank/preparation.h"
#include "spank/snapshot_mount.h"

namespace mso {

namespace {

// Longer ones are left alone.
constexpr size_t kMaxBindPath = 32 << 10;

class SnapshotPreparation : public Preparation {
 public:
  const char* name() const override { return "snapshot"; }

  void prepare(StepContext& step) override {
    SnapshotOrder order;
    order.job = step.facts.job;
    order.first_step = step.facts.step == kBatchStep;
    order.uid = step.facts.uid;
    order.gid = step.facts.gid;
    order.node = step.facts.node;
    order.asked = step.request.snapshot_bytes;
    order.job_memory = step.facts.job_memory;
    snapshot_ = prepare_snapshot(step.run, order, step.arguments);
    step.facts.job = snapshot_.job;
    if (!snapshot_.note.empty()) {
      if (step.request.check == CheckMode::kProd)
        throw Error(snapshot_.note, "", "--mso-check=prod refuses what staging does without",
                    ExitCode::kFailure);
      step.notes.push_back(snapshot_.note + "; going on without one");
    }
    step.log.push_back({"snapshot_bytes", std::to_string(snapshot_.bytes)});
    if (snapshot_.folder.empty()) {
      step.variables.unset("MSO_SNAPSHOT_DIR");
      step.variables.unset("MSO_SNAPSHOT_BYTES");
      return;
    }
    step.log.push_back({"snapshot", snapshot_.reused ? snapshot_.grown ? "grown" : "reused" : "made"});
    step.variables.set("MSO_SNAPSHOT_DIR", snapshot_.folder.string());
    step.variables.set("MSO_SNAPSHOT_BYTES", std::to_string(snapshot_.bytes));
    // Apptainer and Singularity show a job's program only what is named; pyxis and enroot: see the admin's
    // guide.
    for (const char* name : {"APPTAINER_BINDPATH", "SINGULARITY_BINDPATH"}) {
      const auto present = step.variables.get(name);
      const std::string folder = snapshot_.folder.string();
      if (present && present->size() > kMaxBindPath) continue;  // it came cut
      if (!present || present->empty())
        step.variables.set(name, folder);
      else if (("," + *present + ",").find("," + folder + ",") == std::string::npos)
        step.variables.set(name, *present + "," + folder);
    }
  }

  void enter_task_privileged(TaskContext&) override { attach_snapshot(snapshot_); }

 private:
  Snapshot snapshot_;
};

}  // namespace

std::unique_ptr<Preparation> make_snapshot_preparation() {
  return std::make_unique<SnapshotPreparation>();
}

}  // namespace mso
