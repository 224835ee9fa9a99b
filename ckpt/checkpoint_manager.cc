#include "ckpt/checkpoint_manager.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/kill_point.h"
#include "base/log.h"
#include "ckpt/background.h"
#include "ckpt/delta.h"
#include "ckpt/level0_store.h"
#include "ckpt/partner.h"
#include "ckpt/run_attempt.h"
#include "ckpt/shard_writer.h"
#include "ckpt/shared_store.h"
#include "ckpt/snapshot_policy.h"
#include "ckpt/staging.h"
#include "ckpt/state_choice.h"

namespace mso {

namespace {

double seconds_now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}
double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}
int index_of(SnapshotLevel level) {
  return static_cast<int>(level);
}

// One snapshot on its way, the same one on all ranks. L0 and L1-or-L2 have one each.
struct Flight {
  bool active = false;
  SnapshotLevel level = SnapshotLevel::kL0;
  uint64_t step = 0;
  int delta = 0;  // L0: see next_delta(); a delta reads the step's gradient, everything else the state
  double begun_s = 0;
  bool reading = false;    // the live buffers
  bool abandoned = false;  // fence() could not wait: what was read is worthless
  bool finished = false, failed = false;
  bool committing = false;  // L1/L2: all ranks have finished, rank 0 makes it visible
  bool commit_finished = false, commit_failed = false;
  double write_s = 0;
  uint64_t bytes = 0;
  std::string error, partner_error, plan;
};

}  // namespace

class CheckpointManager::Implementation : public std::enable_shared_from_this<Implementation> {
 public:
  Implementation(CheckpointSettings settings, std::unique_ptr<Communicator> group,
                 std::optional<ResumedFrom> resumed)
      : settings_(std::move(settings)),
        group_(std::move(group)),
        rank_(group_->rank()),
        ranks_(group_->size()),
        resumed_(resumed),
        level0_(settings_.level0_path, settings_.run_id, settings_.attempt, rank_),
        shared_(settings_) {
    if (resumed_ && resumed_->level == SnapshotLevel::kL0)
      protect_ = GenerationName{resumed_->step, resumed_->attempt, resumed_->delta}.base();
    set_kill_point_rank(rank_);
    const double intervals[3] = {settings_.level0_interval_s, settings_.level1_interval_s,
                                 settings_.level2_interval_s};
    for (int level = 0; level < 3; ++level)
      clocks_[level] = {intervals[level], seconds_now(), 0, 0, settings_.retry_s};
    // Trouble here shows again at the first snapshot, which then degrades the level.
    quietly("RAM disk", [&] {
      if (settings_.level0_interval_s >= 0) level0_.prepare();
    });
    if (rank_ == 0)
      quietly("shared storage", [&] {
        for (SnapshotLevel level : {SnapshotLevel::kL1, SnapshotLevel::kL2}) shared_.clean(level);
      });
    nodes_ = all_gather_text(*group_, settings_.node, settings_.timeout_s);
    const bool many_nodes =
        std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& n) { return n != nodes_[0]; });
    if (settings_.level0_partner && many_nodes && settings_.level0_interval_s >= 0) {
      partners_ = choose_partners(nodes_);
      exchange_group_ = group_->split(0, rank_, "snapshot partners");
    }
  }

  // Ends the threads, or leaves one behind that hangs; jobs keep *this alive.
  void stop() {
    cancelled_ = true;
    l0_worker_.reset();
    shared_worker_.reset();
  }

  ProgressFlags flags() {
    std::lock_guard<std::mutex> lock(mutex_);
    ProgressFlags flags;
    const double now = seconds_now();
    if (!attempt_lost_ && !closing_) {
      // What this rank has finished may be settled by the very sums this goes into, and the next one start at
      // once.
      flags.wish[0] = is_due(clocks_[0], now, l0_.active && !l0_.finished);
      for (int level : {1, 2})
        flags.wish[level] =
            is_due(clocks_[level], now, shared_flight_.active && !shared_flight_.commit_finished);
    }
    flags.l0_finished = l0_.active && l0_.finished;
    flags.l0_failed = l0_.active && l0_.failed;
    flags.shared_finished = shared_flight_.active && shared_flight_.finished;
    flags.shared_failed = shared_flight_.active && shared_flight_.failed;
    flags.commit_finished = shared_flight_.active && shared_flight_.commit_finished;
    flags.commit_failed = shared_flight_.active && shared_flight_.commit_failed;
    flags.attempt_lost = attempt_lost_;
    if (shared_flight_.active && now - shared_flight_.begun_s > 600 && log_allowed("shared snapshot late"))
      log_warn("{} snapshot of step {} has not ended after {:.0f} s: shared storage is slow or hangs",
               name_of(shared_flight_.level), shared_flight_.step, now - shared_flight_.begun_s);
    return flags;
  }

  SnapshotDecision on_agreed(const SummedFlags& sums) {
    std::lock_guard<std::mutex> lock(mutex_);
    SnapshotDecision decision;
    decision.attempt_lost = sums.attempt_lost > 0;
    const int failures[3] = {clocks_[0].failures, clocks_[1].failures, clocks_[2].failures};
    if (l0_.active) settle_level0(verdict(sums.l0_finished, sums.l0_failed, ranks_), sums);
    if (shared_flight_.active) settle_shared(sums);
    if (decision.attempt_lost) return decision;
    // A wish made before this failure was known does not count: the level backs off first.
    auto starts = [&](int level, const Flight& flight) {
      return sums.wish[level] > 0 && !flight.active && clocks_[level].failures <= failures[level];
    };
    if (starts(0, l0_)) decision.levels |= kLevel0Bit;
    // L2 holds all that L1 does: where both are due, one L2 is written.
    if (starts(2, shared_flight_))
      decision.levels |= kLevel2Bit;
    else if (starts(1, shared_flight_))
      decision.levels |= kLevel1Bit;
    return decision;
  }

  double fence(Deadline deadline) {
    return wait_for_readers(deadline, [](const Flight& flight) { return flight.delta == 0; });
  }

  double fence_gradient(uint64_t step, Deadline deadline) {
    return wait_for_readers(deadline,
                            [step](const Flight& flight) { return flight.delta > 0 && flight.step <= step; });
  }

  template <typename Concerned>
  double wait_for_readers(Deadline deadline, Concerned concerned) {
    const auto begin = Clock::now();
    std::unique_lock<std::mutex> lock(mutex_);
    auto reads = [&](const Flight& flight) { return flight.reading && concerned(flight); };
    auto still = [&] { return !reads(l0_) && !reads(shared_flight_); };
    if (still()) return 0;
    if (!changed_.wait_until(lock, deadline, still))
      for (Flight* flight : {&l0_, &shared_flight_})
        if (reads(*flight)) {
          flight->abandoned = true;
          log_warn("{} snapshot of step {} is given up: its storage takes too long", name_of(flight->level),
                   flight->step);
        }
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  void begin(LevelBits levels, StateView view) {
    std::lock_guard<std::mutex> lock(mutex_);
    if ((levels & kLevel0Bit) && !l0_.active) {
      start(l0_, SnapshotLevel::kL0, view);
      // The same on all ranks: the chain holds only what all agreed on.
      std::optional<StateView> part;
      if (const int delta = next_delta(chain_, view.step); delta > 0 && (part = view_for_delta(view)))
        l0_.delta = delta;
      else
        part = view_for_level(view, SnapshotLevel::kL0, true);
      l0_worker_->post([self = shared_from_this(), delta = l0_.delta, part = std::move(*part)] {
        self->write_level0(part, delta);
      });
    }
    if ((levels & (kLevel1Bit | kLevel2Bit)) && !shared_flight_.active) {
      const SnapshotLevel level = (levels & kLevel2Bit) ? SnapshotLevel::kL2 : SnapshotLevel::kL1;
      start(shared_flight_, level, view);
      if (level == SnapshotLevel::kL2) clocks_[1].last_start_s = clocks_[2].last_start_s;
      shared_worker_->post([self = shared_from_this(), level,
                            part = view_for_level(view, level, settings_.level1_optimizer)]() mutable {
        self->write_shared(level, std::move(part));
      });
    }
  }

  // See CheckpointManager::finish. Every rank goes round the loop equally often: what ends it is in the sums.
  bool finish(Deadline deadline) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closing_ = true;
    }
    try {
      for (;;) {
        {
          std::unique_lock<std::mutex> lock(mutex_);
          changed_.wait_until(lock, deadline,
                              [&] { return settled_here(l0_) && settled_here(shared_flight_); });
        }
        auto sums = encode_flags(flags());
        double values[kProgressFlagCount + 1];
        std::copy(sums.begin(), sums.end(), values);
        values[kProgressFlagCount] = Clock::now() >= deadline ? 1 : 0;
        all_reduce_now(*group_, values, kProgressFlagCount + 1, DType::kF64, ReduceOp::kSum,
                       settings_.timeout_s +
                           std::max(0.0, std::chrono::duration<double>(deadline - Clock::now()).count()));
        on_agreed(decode_flags(std::span<const double, kProgressFlagCount>(values, kProgressFlagCount)));
        std::lock_guard<std::mutex> lock(mutex_);
        if (!l0_.active && !shared_flight_.active) break;
        if (values[kProgressFlagCount] > 0) {
          log_warn("a snapshot has not ended in time and is given up");
          closing_ = false;
          return false;
        }
      }
    } catch (const std::exception& e) {
      log_warn("cannot agree on the last snapshots: {}", e.what());
      return false;
    }
    bool idle = shared_worker_->wait_idle(deadline) && l0_worker_->wait_idle(deadline);
    std::lock_guard<std::mutex> lock(mutex_);
    closing_ = false;
    return idle;
  }

  SnapshotEvent write_final(StateView view, Deadline deadline) {
    const uint64_t step = view.step;
    SnapshotEvent result;
    result.level = SnapshotLevel::kL2;
    result.step = step;
    if (!finish(deadline)) {
      result.error = "an earlier snapshot has not ended in time";
      return result;
    }
    begin(kLevel2Bit, std::move(view));
    const bool finished = finish(deadline);
    std::lock_guard<std::mutex> lock(mutex_);
    for (const SnapshotEvent& event : events_)
      if (event.kind == SnapshotEvent::Kind::kSnapshot && event.level == SnapshotLevel::kL2 &&
          event.step == step)
        result = event;
    if (!result.ok && result.error.empty()) result.error = finished ? "not written" : "not written in time";
    return result;
  }

  std::optional<uint64_t> last_whole_step() {
    std::lock_guard<std::mutex> lock(mutex_);
    return last_whole_;
  }

  std::vector<SnapshotEvent> drain_events() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(events_, {});
  }

 private:
  template <typename Work>
  void quietly(const char* what, Work work) {
    try {
      work();
    } catch (const std::exception& e) {
      log_warn("{} for snapshots: {}", what, e.what());
    }
  }

  // Whether nothing more will come from this rank's threads until the others have spoken.
  bool settled_here(const Flight& f) const {
    if (!f.active) return true;
    if (f.committing) return rank_ != 0 || f.commit_finished || f.commit_failed;
    return f.finished || f.failed;
  }

  void start(Flight& flight, SnapshotLevel level, const StateView& view) {
    flight = Flight();
    flight.active = flight.reading = true;
    flight.level = level;
    flight.step = view.step;
    flight.begun_s = seconds_now();
    if (auto it = view.records.find("plan"); it != view.records.end()) flight.plan = it->second;
    clocks_[index_of(level)].last_start_s = flight.begun_s;
  }

  // ---- verdicts, on the trainer's thread, mutex held ---------------------------------

  void settle_level0(Verdict verdict, const SummedFlags& sums) {
    if (verdict == Verdict::kWait) return;
    const bool ok = verdict == Verdict::kCommit;
    if (ok) {
      kill_point("_agreed", l0_prefix(l0_.delta));
      const bool first = !protect_ || protect_->attempt != settings_.attempt;
      protect_ = GenerationName{l0_.step, settings_.attempt, l0_.delta}.base();
      chain_ = extended(chain_, l0_.step, l0_.delta);
      if (first && is_node_leader())
        l0_worker_->post([self = shared_from_this()] { self->remove_stale_level0(); });
      became_whole(l0_.step);
    } else {
      chain_ = interrupted(chain_, l0_.step, l0_.delta);
    }
    conclude(l0_, ok, sums.l0_failed);
  }

  void settle_shared(const SummedFlags& sums) {
    Flight& f = shared_flight_;
    if (f.committing) {
      if (sums.commit_finished + sums.commit_failed == 0) return;
      const bool ok = sums.commit_finished > 0;
      if (ok) {
        kill_point("_agreed", f.level == SnapshotLevel::kL1 ? "l1" : "l2");
        became_whole(f.step);
      } else if (rank_ == 0) {
        post_drop(f);
      }
      conclude(f, ok, sums.commit_failed);
      return;
    }
    switch (verdict(sums.shared_finished, sums.shared_failed, ranks_)) {
      case Verdict::kWait:
        return;
      case Verdict::kDrop:
        if (rank_ == 0) post_drop(f);
        conclude(f, false, sums.shared_failed);
        return;
      case Verdict::kCommit:
        f.committing = true;
        if (rank_ == 0)
          shared_worker_->post([self = shared_from_this(), level = f.level, step = f.step, plan = f.plan] {
            self->commit_shared(level, step, plan);
          });
    }
  }

  void post_drop(const Flight& f) {
    shared_worker_->post([self = shared_from_this(), level = f.level, step = f.step] {
      self->quietly("shared storage", [&] { self->shared_.drop(level, step); });
    });
  }

  // The snapshot has ended the same way on all ranks: health, clock, events.
  void conclude(Flight& f, bool ok, int64_t failed_ranks) {
    LevelClock& clock = clocks_[index_of(f.level)];
    bool& degraded = degraded_[index_of(f.level)];
    SnapshotEvent event;
    event.level = f.level;
    event.step = f.step;
    event.write_s = f.write_s;
    event.bytes = f.bytes;
    event.ok = ok;
    event.error = !f.error.empty() ? f.error
                  : ok             ? f.partner_error
                                   : "failed on " + std::to_string(failed_ranks) + " other rank(s)";
    if (ok) clock.last_write_s = f.write_s;
    clock.failures = ok ? 0 : clock.failures + 1;
    event.degraded = !ok || !f.partner_error.empty();
    events_.push_back(event);
    if (degraded != !ok) {
      degraded = !ok;
      event.kind = ok ? SnapshotEvent::Kind::kRecovered : SnapshotEvent::Kind::kDegraded;
      events_.push_back(event);
      if (ok)
        log_info("{} snapshots work again (step {})", name_of(f.level), f.step);
      else
        log_warn("{} snapshots are degraded, training goes on: {} (next try in {:.0f} s)", name_of(f.level),
                 event.error, retry_delay(clock));
    } else if (!ok && log_allowed(std::string(name_of(f.level)) + event.error)) {
      log_warn("{} snapshot of step {} failed again: {}", name_of(f.level), f.step, event.error);
    }
    if (ok && !f.partner_error.empty() && log_allowed("partner" + f.partner_error))
      log_warn("partner copy of L0 is missing: {}", f.partner_error);
    f.active = false;
  }

  void became_whole(uint64_t step) {
    last_whole_ = std::max(last_whole_.value_or(0), step);
    if (marked_ || rank_ != 0) return;
    marked_ = true;
    shared_worker_->post([self = shared_from_this(), step] {
      try {
        self->shared_.mark_written(step);
      } catch (const std::exception& e) {
        std::lock_guard<std::mutex> lock(self->mutex_);
        self->marked_ = false;  // again with the next snapshot
      }
    });
  }

  bool is_node_leader() const {
    return std::find(nodes_.begin(), nodes_.end(), settings_.node) - nodes_.begin() == rank_;
  }

  // ---- the background threads ----------------------------------------------------------

  void release(Flight& flight) {
    std::lock_guard<std::mutex> lock(mutex_);
    flight.reading = false;
    changed_.notify_all();
  }

  void check_wanted(const Flight& flight) {
    if (cancelled_) throw Error("snapshot given up", "the run ends");
    std::lock_guard<std::mutex> lock(mutex_);
    if (flight.abandoned)
      throw Error("snapshot given up", "its storage took longer than training could wait");
  }

  std::string lose_attempt(const AttemptLost& e) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!attempt_lost_) log_error("{}", e.what());
    attempt_lost_ = true;
    return e.what();
  }

  ShardHeader header_for(SnapshotLevel level, uint64_t step) const {
    ShardHeader header;
    header.run_id = settings_.run_id;
    header.step = step;
    header.attempt = settings_.attempt;
    header.writer = rank_;
    header.writers = ranks_;
    header.level = level;
    header.exact = level != SnapshotLevel::kL1 || settings_.level1_optimizer;
    header.time = unix_now();
    return header;
  }

  static const char* l0_prefix(int delta) { return delta > 0 ? "l0_delta" : "l0"; }

  GenerationFile open_level0(Level0Store::Kind kind, int delta, std::optional<GenerationName> protect) {
    return delta > 0 ? level0_.open_delta(kind) : level0_.open_generation(kind, protect);
  }

  void write_level0(const StateView& view, int delta) {
    const GenerationName name{view.step, settings_.attempt, delta};
    const char* prefix = l0_prefix(delta);
    std::optional<GenerationName> protect;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      protect = protect_;
    }
    std::string error, partner_error;
    uint64_t bytes = 0;
    GenerationFile own;
    try {
      kill_point("_begin", prefix);
      own = open_level0(Level0Store::Kind::kOwn, delta, protect);
      kill_point("_after_reuse", prefix);
      ShardHeader header = header_for(SnapshotLevel::kL0, view.step);
      header.delta = delta;
      ShardImage image(view, header);
      image.write(own.fd(), own.path(), {[&](uint64_t) { check_wanted(l0_); }, prefix});
      bytes = image.size();
      release(l0_);
      kill_point("_before_rename", prefix);
      check_wanted(l0_);
      publish(own, name);
      kill_point("_after_rename", prefix);
    } catch (const AttemptLost& e) {
      error = lose_attempt(e);
      own = GenerationFile();
    } catch (const std::exception& e) {
      error = e.what();
      own = GenerationFile();
    }
    release(l0_);
    if (!partners_.empty()) partner_error = exchange(name, protect, own);
    std::lock_guard<std::mutex> lock(mutex_);
    l0_.write_s = seconds_now() - l0_.begun_s;
    l0_.bytes = bytes;
    l0_.error = error;
    l0_.partner_error = partner_error;
    (error.empty() ? l0_.finished : l0_.failed) = true;
    changed_.notify_all();
  }

  void publish(GenerationFile& file, const GenerationName& name) {
    if (!level0_.attempt_is_current()) throw AttemptLost(level0_.run_directory());
    file.publish(name);
  }

  std::string exchange(const GenerationName& name, std::optional<GenerationName> protect,
                       const GenerationFile& own) {
    try {
      ExchangeJob job;
      job.to = partners_[rank_];
      job.from = static_cast<int>(std::find(partners_.begin(), partners_.end(), rank_) - partners_.begin());
      job.tag = exchanges_++ % 16384;
      job.own_fd = own.fd();
      job.own_path = own.path();
      job.run_id = settings_.run_id;
      job.step = name.step;
      job.attempt = name.attempt;
      job.delta = name.delta;
      if (name.delta > 0) job.kill_prefix = "partner_delta";
      job.timeout_s = settings_.timeout_s;
      job.cancelled = [this] { return cancelled_.load(); };
      job.open_copy = [&] { return open_level0(Level0Store::Kind::kPartner, name.delta, protect); };
      job.publish_copy = [&](GenerationFile& file) { publish(file, name); };
      return exchange_copies(*exchange_group_, job);
    } catch (const std::exception& e) {
      return e.what();
    }
  }

  void remove_stale_level0() {
    quietly("RAM disk", [&] {
      level0_.remove_stale([&](int rank, Level0Store::Kind kind) {
        return rank < ranks_ && (kind == Level0Store::Kind::kOwn || !partners_.empty()) &&
               nodes_[rank] == settings_.node;
      });
    });
  }

  void write_shared(SnapshotLevel level, StateView view) {
    const char* prefix = level == SnapshotLevel::kL1 ? "l1" : "l2";
    const uint64_t step = view.step;
    Flight& flight = shared_flight_;
    std::string error;
    uint64_t bytes = 0;
    try {
      kill_point("_begin", prefix);
      StateView copy = staging_.copy(std::move(view), [&](uint64_t) { check_wanted(flight); });
      release(flight);
      check_wanted(flight);
      kill_point("_after_copy", prefix);
      const std::filesystem::path path = shared_.prepare_file(level, step, rank_, ranks_);
      kill_point("_after_directory", prefix);
      ShardImage image(copy, header_for(level, step));
      FileDescriptor file = open_file(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW);
      const double begun = seconds_now();
      uint64_t written = 0;
      auto after_piece = [&](uint64_t piece) {
        check_wanted(flight);
        written += piece;
        throttle(begun, written);
      };
      image.write(file.get(), path.string(), {after_piece, prefix});
      kill_point("_before_sync", prefix);
      if (::fsync(file.get()) != 0) throw system_error("cannot sync", path.string());
      sync_directory(path.parent_path());
      kill_point("_after_sync", prefix);
      bytes = image.size();
    } catch (const std::exception& e) {
      error = e.what();
    }
    release(flight);
    std::lock_guard<std::mutex> lock(mutex_);
    flight.write_s = seconds_now() - flight.begun_s;
    flight.bytes = bytes;
    flight.error = error;
    (error.empty() ? flight.finished : flight.failed) = true;
    changed_.notify_all();
  }

  // Sleeps so that this rank keeps to its share of ecm.max_write_bandwidth.
  void throttle(double begun_s, uint64_t written) {
    if (settings_.max_write_bandwidth <= 0) return;
    const double due_s = begun_s + static_cast<double>(written) * ranks_ / settings_.max_write_bandwidth;
    while (!cancelled_ && seconds_now() < due_s)
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(0.1, due_s - seconds_now() + 1e-4)));
  }

  void commit_shared(SnapshotLevel level, uint64_t step, const std::string& plan) {
    std::string error;
    try {
      shared_.commit(level, step, ranks_, plan);
      quietly("removing old snapshots", [&] {
        shared_.prune(level, settings_.keep, resumed_ ? std::optional(resumed_->step) : std::nullopt);
      });
    } catch (const AttemptLost& e) {
      error = lose_attempt(e);
    } catch (const std::exception& e) {
      error = e.what();
    }
    std::lock_guard<std::mutex> lock(mutex_);
    shared_flight_.error = error;
    (error.empty() ? shared_flight_.commit_finished : shared_flight_.commit_failed) = true;
    changed_.notify_all();
  }

  const CheckpointSettings settings_;
  std::unique_ptr<Communicator> group_, exchange_group_;
  const int rank_, ranks_;
  const std::optional<ResumedFrom> resumed_;
  std::vector<std::string> nodes_;
  std::vector<int> partners_;  // empty: no partner copies
  Level0Store level0_;
  SharedStore shared_;
  Staging staging_;    // of the shared worker
  int exchanges_ = 0;  // of the L0 worker
  std::atomic<bool> cancelled_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  Flight l0_, shared_flight_;
  LevelClock clocks_[3];
  bool degraded_[3] = {false, false, false};
  bool attempt_lost_ = false, closing_ = false, marked_ = false;
  std::optional<GenerationName> protect_;  // newest L0 full state that is whole on all ranks
  DeltaChain chain_;                       // of this start: its first L0 snapshot is a full state
  std::optional<uint64_t> last_whole_;
  std::vector<SnapshotEvent> events_;
  std::unique_ptr<BackgroundWorker> l0_worker_ = std::make_unique<BackgroundWorker>("mso-snapshot-l0");
  std::unique_ptr<BackgroundWorker> shared_worker_ = std::make_unique<BackgroundWorker>("mso-snapshot-fs");
};

CheckpointManager::CheckpointManager(CheckpointSettings settings, std::unique_ptr<Communicator> group,
                                     std::optional<ResumedFrom> resumed)
    : implementation_(std::make_shared<Implementation>(std::move(settings), std::move(group), resumed)) {}

CheckpointManager::~CheckpointManager() {
  implementation_->stop();
}

ProgressFlags CheckpointManager::flags() {
  return implementation_->flags();
}
SnapshotDecision CheckpointManager::on_agreed(const SummedFlags& sums) {
  return implementation_->on_agreed(sums);
}
double CheckpointManager::fence(Deadline deadline) {
  return implementation_->fence(deadline);
}
double CheckpointManager::fence_gradient(uint64_t step, Deadline deadline) {
  return implementation_->fence_gradient(step, deadline);
}
void CheckpointManager::begin(LevelBits levels, StateView view) {
  implementation_->begin(levels, std::move(view));
}
bool CheckpointManager::finish(Deadline deadline) {
  return implementation_->finish(deadline);
}
SnapshotEvent CheckpointManager::write_final(StateView view, Deadline deadline) {
  return implementation_->write_final(std::move(view), deadline);
}
std::optional<uint64_t> CheckpointManager::last_whole_step() const {
  return implementation_->last_whole_step();
}
std::vector<SnapshotEvent> CheckpointManager::drain_events() {
  return implementation_->drain_events();
}

}  // namespace mso
