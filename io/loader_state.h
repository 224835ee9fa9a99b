// What the two sides of the loader share: the slots of this rank's samples. Workers (io/loader_workers.cc) decode into
// them; steps (io/data_loader.cc) take from them. For these files and io/loader_records.cc alone.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "io/buffer_pool.h"
#include "io/data_loader.h"
#include "io/prefetch_depth.h"

namespace mso {

using LoaderClock = std::chrono::steady_clock;
inline double seconds_since(LoaderClock::time_point start) { return std::chrono::duration<double>(LoaderClock::now() - start).count(); }

// A sample of this rank, from planning to packing.
struct SampleSlot {
  BatchItem item;
  enum { kWaiting, kInWork, kDone } state = kWaiting;
  uint8_t code = 0;        // when done: fate_code()
  AssembledSample sample;  // when done, unless it is left out; of the stand-in where one replaces it
  uint64_t sample_id = 0;  // whose sample that is
  std::string reason, detail;  // of a bad one
  uint64_t bytes = 0;      // counted against the memory limit
};

struct DataLoader::Impl {
  enum class Worker { kOrdinary, kVideo };

  Impl(std::shared_ptr<const SampleAssembler> a, DataLoaderOptions o)
      : assembler(std::move(a)), options(std::move(o)), order(make_order()),
        pool(std::make_shared<BufferPool>(options.memory_bytes, options.memory_shares)) {}

  SampleOrder make_order() const;
  bool has_recipe() const { return std::ranges::any_of(options.recipe, [](uint64_t n) { return n > 0; }); }
  bool defers() const { return options.defer_after_s >= 0 && order.endless(); }
  uint64_t stand_in_steps() const { return defers() || !known_deferrals.empty() ? kStandInSteps : 0; }
  uint64_t steps() const { return (order.size() + options.batch_samples - 1) / options.batch_samples; }
  NominalBatch nominal_batch(uint64_t step) const;

  // All below with the lock held.
  const NominalBatch& nominal(uint64_t step);
  void add_slot(const BatchItem& item);
  void plan_next_step();
  void start_threads(Worker kind, int count);
  bool take(Worker kind, uint64_t* position);
  bool is_due(const SampleSlot& slot) const { return slot.item.position < (state.step + 1) * options.batch_samples; }
  std::vector<uint8_t> told_codes(uint64_t step) const;
  bool is_replayed(uint64_t step) const { return step < replayed_until || known_deferrals.contains(step); }
  std::string place_of(const SampleSlot& slot) const;
  [[noreturn]] void give_up_on(const SampleSlot* slot) const;
  template <typename Ready>
  bool wait_for(std::unique_lock<std::mutex>& lock, LoaderClock::time_point deadline, Ready ready);
  OrderState state_at(uint64_t step);
  nlohmann::ordered_json cursor() const;

  void work(Worker kind);
  // Without the lock. `replaced`: what the ledger says of it.
  void decode(SampleSlot* slot, const std::optional<LedgerEntry>& replaced) const;

  std::weak_ptr<Impl> self;  // for the threads
  const std::shared_ptr<const SampleAssembler> assembler;
  const DataLoaderOptions options;
  const SampleOrder order;

  // Of start().
  std::unordered_map<uint64_t, LedgerEntry> known_fates;  // by position
  std::map<uint64_t, std::map<uint64_t, std::optional<uint64_t>>> known_deferrals;  // step → position → stand-in
  uint64_t replayed_until = 0;

  mutable std::mutex mutex;
  std::condition_variable work_or_stop, sample_ready, thread_left;
  OrderState state;                          // before the step that is open or comes next
  std::map<uint64_t, NominalBatch> batches;  // by step
  uint64_t planned = 0;                      // steps before this one have their slots
  std::map<uint64_t, SampleSlot> slots;            // this rank's, by position
  PerModality<std::deque<uint64_t>> waiting; // positions nobody works on
  PerModality<uint64_t> in_flight;           // started and not taken yet
  PerModality<uint64_t> ready;               // decoded and not taken yet
  PerModality<uint64_t> per_step;            // most own samples of a step so far
  PerModality<BufferDepth> depth;
  uint64_t generation = 0;                   // of start() calls; results of older ones are dropped
  bool first_step = true;                    // after start()
  const std::shared_ptr<BufferPool> pool;
  uint64_t bytes = 0;                        // decoded or being decoded
  bool stop = false;
  int live = 0, ordinary_threads = 0, video_threads = 0;
  std::exception_ptr failure;
  Counters counters;

  // Of the open step.
  StepCandidates candidates;
  std::vector<uint8_t> codes;  // agreed
  StepDecision decision;
  SettledStep settled;
  PerModality<char> waited;
  double wait_s = 0;
};

}  // namespace mso
