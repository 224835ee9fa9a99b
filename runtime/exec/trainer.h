// The training loop: one step after another, with everything the ranks must agree on, until the steps are done or a
// signal asks for an end. The step boundary is the one place where snapshots start and a plan may change.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "ckpt/checkpoint_manager.h"
#include "ckpt/delta.h"
#include "ckpt/run_attempt.h"
#include "comm/gradient_reducer.h"
#include "comm/world.h"
#include "exec/learning_rate.h"
#include "exec/run_directory.h"
#include "exec/sharded_optimizer.h"
#include "exec/step_agreement.h"
#include "exec/healing_setup.h"
#include "io/data_loader.h"
#include "memory/slice_reservation.h"
#include "model/training_graph.h"
#include "plan/plan.h"
#include "record/metrics.h"
#include "record/progress.h"
#include "record/tensorboard.h"

namespace mso {

// What a run is made of; built by exec/training_setup.h.
struct TrainingParts {
  Config config;
  Plan plan;
  RunDirectory directory;
  std::unique_ptr<RunAttempt> attempt;  // holds the lock on the run folder
  CheckpointSettings checkpoint_settings;
  std::unique_ptr<TrainingGraph> graph;       // its weights are zero until fill_weights or a snapshot
  std::function<void(bool trainable)> fill_weights;  // initial values: of what is frozen, and of what trains where asked
  std::shared_ptr<Storage> storage;
  std::unique_ptr<DataLoader> loader;
  std::shared_ptr<const Healing> healing;  // null: broken samples are left out
  std::shared_ptr<const SampleAssembler> held_out;  // null: no evaluation
  int decoder_threads = 1;
  int gradient_buffers = 1;           // of the optimizer
  SliceReservation optimizer_memory;  // what the optimizer will allocate, in the job's memory slices
  std::map<std::string, std::string> records;  // in every snapshot: config, plan, tokenizer, …
  uint64_t total_steps = 0;
};

class Trainer {
 public:
  Trainer(World& world, TrainingParts parts);
  ~Trainer();

  // Resumes from the best state there is, trains to the end, and says so. kSuccess or kStoppedBySignal; every other
  // end is an Error.
  ExitCode run();
  // For the end of a run by an Error: the diary's last line. Never throws.
  void record_failure(const Error& error) noexcept;

 private:
  // False: the run is finished already, there is nothing to train.
  bool resume();
  void check_nothing_was_lost(bool found);
  void check_what_changed(const std::optional<FoundState>& found);
  bool is_finished(const FoundState& found);
  ExitCode leave_finished(uint64_t steps);
  LoadReport load(const FoundState& found, Communicator& group);
  // One step; true when a rank was asked to end.
  bool train_step();
  void enter_in_ledger(const RankBatch& batch, const SettledStep& settled);
  uint64_t steps_trained_before(const std::vector<LedgerEntry>& ledger);
  void evaluate();
  StateView state_view() const;
  void record_checkpoint_events();
  // What became of the sources of data: changes at once, counters every few seconds and at the end.
  void record_storage(bool end = false);
  void record_data(bool end = false);
  void record_incident(const std::string& kind, const std::string& message);
  ExitCode end(ExitCode code, const std::string& message);
  bool is_recorder() const { return world_.rank() == 0; }
  std::string state_hash();
  void remove_level0();
  void write_report() noexcept;  // report.html in the run folder

  World& world_;
  TrainingParts parts_;
  const Config& config_;
  const double timeout_s_;
  const int64_t attempt_;
  std::unique_ptr<Communicator> data_parallel_;
  std::unique_ptr<ShardedOptimizer> optimizer_;
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<CheckpointManager> checkpoints_;
  LearningRateSchedule schedule_;
  std::vector<LedgerEntry> ledger_;  // the same on every rank; only grows
  Healing::Losses losses_;           // of ledger_
  uint64_t step_ = 0;                // finished steps
  bool begun_ = false;               // this start is counted, and has changed something
  StepUpdate last_update_;           // of the step that was finished last; for deltas
  uint64_t empty_steps_ = 0;         // in a row, of which no sample could be used
  uint64_t skipped_updates_ = 0;     // in a row, for gradients that are not finite

  std::unique_ptr<LogsAboveLine> other_ranks_logs_;  // not rank 0: keeps warnings off its live line

  // Rank 0 alone:
  std::unique_ptr<MetricsWriter> metrics_;
  std::unique_ptr<TensorBoardWriter> tensorboard_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Ledger> ledger_file_;
  double storage_recorded_ = 0, data_recorded_ = 0;  // Unix seconds
};

}  // namespace mso
