#include "io/data_loader.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <unordered_map>

#include "base/error.h"
#include "base/hash.h"
#include "base/kill_point.h"
#include "base/log.h"
#include "io/prefetch_depth.h"
#include "node/cpu_list.h"
#include "node/thread_place.h"

namespace mso {
namespace {

using Clock = std::chrono::steady_clock;

// Nominal batches are planned at most so far ahead, however deep the buffers are.
constexpr uint64_t kMostStepsAhead = 64;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A sample of this rank, from planning to packing.
struct Slot {
  BatchItem item;
  enum { kWaiting, kInWork, kDone } state = kWaiting;
  uint8_t code = 0;        // when done: fate_code()
  AssembledSample sample;  // when done, unless it is left out; of the stand-in where one replaces it
  uint64_t sample_id = 0;  // whose sample that is
  std::string reason, detail;  // of a bad one
  uint64_t bytes = 0;      // counted against the memory limit
};

enum class Worker { kOrdinary, kVideo };
Worker worker_of(Modality m) { return m == Modality::kVideo ? Worker::kVideo : Worker::kOrdinary; }

}  // namespace

std::vector<uint64_t> SettledStep::trained_ids() const {
  std::vector<uint64_t> ids;
  for (size_t i = 0; i < batch.ids.size(); ++i) {
    if (fates[i] == 0)
      ids.push_back(batch.ids[i]);
    else if (replacement_of_fate(fates[i]) > 0)
      ids.push_back(stand_ins[i].id);
  }
  return ids;
}

struct DataLoader::Impl {
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
  bool is_due(const Slot& slot) const { return slot.item.position < (state.step + 1) * options.batch_samples; }
  std::vector<uint8_t> told_codes(uint64_t step) const;
  bool is_replayed(uint64_t step) const { return step < replayed_until || known_deferrals.contains(step); }
  std::string place_of(const Slot& slot) const;
  [[noreturn]] void give_up_on(const Slot* slot) const;
  template <typename Ready>
  bool wait_for(std::unique_lock<std::mutex>& lock, Clock::time_point deadline, Ready ready);
  OrderState state_at(uint64_t step);
  nlohmann::ordered_json cursor() const;

  void work(Worker kind);
  // Without the lock. `replaced`: what the ledger says of it.
  void decode(Slot* slot, const std::optional<LedgerEntry>& replaced) const;

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
  std::map<uint64_t, Slot> slots;            // this rank's, by position
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

SampleOrder DataLoader::Impl::make_order() const {
  const uint64_t n = assembler->dataset().size();
  if (options.sequential) return SampleOrder::sequential(options.max_samples > 0 ? std::min(n, options.max_samples) : n);
  if (has_recipe() && !options.mixture.empty())
    throw Error("a recipe and a mixture at the same time", "mdp.batch_recipe and data.mixture",
                "one of them: a recipe counts by modality, a mixture by data set", ExitCode::kBadUsage);
  if (has_recipe()) {
    uint64_t sum = 0;
    for (uint64_t q : options.recipe) sum += q;
    if (sum != options.batch_samples)
      throw Error("the recipe does not make up the batch",
                  std::to_string(sum) + " samples instead of " + std::to_string(options.batch_samples), "mdp.batch_recipe",
                  ExitCode::kBadUsage);
    auto index = std::make_shared<const ModalityIndex>(assembler->modality_blocks(),
                                                       [a = assembler](uint64_t id) { return a->modality(id); });
    return SampleOrder::recipe(std::move(index), options.recipe, options.seed);
  }
  if (!options.mixture.empty()) return SampleOrder::mixture(options.mixture, options.seed);
  return SampleOrder::shuffled(n, options.seed);
}

// Pure: the batch as if nothing was ever late, and who decodes what.
NominalBatch DataLoader::Impl::nominal_batch(uint64_t step) const {
  const GlobalBatch global = order.global_batch(step, options.batch_samples);
  NominalBatch batch;
  std::vector<SampleCost> costs;
  for (size_t i = 0; i < global.ids.size(); ++i) {
    batch.push_back({global.positions[i], global.ids[i], global.epochs[i], assembler->modality(global.ids[i]), 0});
    costs.push_back(assembler->cost(global.ids[i]));
  }
  const auto dealt = deal_to_ranks(costs, options.ranks);
  for (size_t rank = 0; rank < dealt.size(); ++rank)
    for (size_t i : dealt[rank]) batch[i].owner = static_cast<int>(rank);
  return batch;
}

const NominalBatch& DataLoader::Impl::nominal(uint64_t step) {
  auto found = batches.find(step);
  if (found == batches.end()) found = batches.emplace(step, nominal_batch(step)).first;
  return found->second;
}

// A sample of this rank that is to be decoded, or that the ledger says was left out before a restart.
void DataLoader::Impl::add_slot(const BatchItem& item) {
  Slot slot;
  slot.item = item;
  slot.sample_id = item.id;
  auto known = known_fates.find(item.position);
  if (known != known_fates.end()) {
    if (known->second.id != item.id)
      throw Error("the ledger does not fit the data",
                  "position " + std::to_string(item.position) + ": sample " + std::to_string(known->second.id) +
                      " in the ledger, " + std::to_string(item.id) + " by the order",
                  "data, seed or batch size have changed", ExitCode::kBadData);
    if (known->second.event == LedgerEvent::kSkipped) {
      slot.state = Slot::kDone;
      slot.code = fate_code(reason_code(known->second.reason), 0);
      slot.reason = known->second.reason;
      slot.detail = known->second.detail;
      ++ready[item.modality];
    }
  }
  if (slot.state == Slot::kWaiting) waiting[item.modality].push_back(item.position);
  slots.emplace(item.position, std::move(slot));
}

void DataLoader::Impl::plan_next_step() {
  const uint64_t step = planned++;
  PerModality<uint64_t> own;
  for (const BatchItem& item : nominal(step)) {
    if (item.owner != options.rank) continue;
    ++own[item.modality];
    if (std::ranges::binary_search(state.ahead, item.position) || slots.contains(item.position)) continue;
    add_slot(item);
  }
  for (Modality m : kAllModalities) {
    if (own[m] <= per_step[m]) continue;
    per_step[m] = own[m];
    depth[m].set_bounds(prefetch_bounds(options.prefetch_depth[m], own[m]));
    if (m == Modality::kVideo) start_threads(Worker::kVideo, std::max(2, options.video_threads));
  }
}

void DataLoader::Impl::start_threads(Worker kind, int count) {
  int& running = kind == Worker::kVideo ? video_threads : ordinary_threads;
  // Detached, each with a share in what it works on: the destructor waits by `live`.
  for (; running < count; ++running, ++live) std::thread([shared = self.lock(), kind] { shared->work(kind); }).detach();
}

// The next sample to work on: the one that is needed first. Beyond the step that is due only as far as the buffer of its
// modality is deep and the memory lasts.
bool DataLoader::Impl::take(Worker kind, uint64_t* position) {
  // Wider while storage is slow.
  const auto wider = static_cast<uint64_t>(assembler->dataset().storage().prefetch_factor());
  auto deep = [&](Modality m) { return wider * depth[m].depth(); };
  for (;;) {
    Slot* best = nullptr;
    bool wants_more = false;
    for (Modality m : kAllModalities) {
      if (worker_of(m) != kind) continue;
      if (in_flight[m] < deep(m) && per_step[m] > 0 && waiting[m].empty()) wants_more = true;
      if (waiting[m].empty()) continue;
      Slot& slot = slots.at(waiting[m].front());
      if (best && best->item.position < slot.item.position) continue;
      if (!is_due(slot) && in_flight[m] >= deep(m)) continue;
      best = &slot;
    }
    if (best) {
      const Modality m = best->item.modality;
      const uint64_t need = assembler->decoded_bytes(best->item.id);
      if (!is_due(*best) && bytes + need > options.memory_bytes) return false;
      waiting[m].pop_front();
      best->state = Slot::kInWork;
      best->bytes = need;
      bytes += need;
      ++in_flight[m];
      *position = best->item.position;
      return true;
    }
    if (!wants_more || planned > state.step + kMostStepsAhead || (!order.endless() && planned >= steps())) return false;
    plan_next_step();
    sample_ready.notify_all();  // known fates need no work
  }
}

// Fills everything of a done slot but its state.
void DataLoader::Impl::decode(Slot* slot, const std::optional<LedgerEntry>& replaced) const {
  const BatchItem& item = slot->item;
  if (replaced) {
    const LedgerEntry& entry = *replaced;
    slot->reason = entry.reason;
    slot->detail = entry.detail;
    slot->code = fate_code(reason_code(entry.reason), 1);
    slot->sample_id = entry.by_id;
    try {
      slot->sample = assembler->assemble(entry.by_id, pool.get());
    } catch (const BadSampleError& error) {
      log_warn("{}, which stood in for {} before, cannot be used any more: {}", assembler->dataset().describe(entry.by_id),
               assembler->dataset().describe(item.id), error.detail());
      slot->code = fate_code(reason_code(entry.reason), 0);
    }
    return;
  }
  try {
    auto listed = options.known_bad.find(item.id);
    if (listed != options.known_bad.end()) throw BadSampleError(listed->second, "in the list of data.known_bad");
    slot->sample = assembler->assemble(item.id, pool.get());
    return;
  } catch (const BadSampleError& error) {
    slot->reason = error.reason();
    slot->detail = error.detail();
  }
  int replacement = 0;
  const std::vector<StandIn> stand_ins = options.find_stand_ins ? options.find_stand_ins(item.id) : std::vector<StandIn>();
  for (size_t k = 0; k < std::min<size_t>(3, stand_ins.size()) && replacement == 0; ++k) {
    if (options.known_bad.contains(stand_ins[k].id)) continue;
    kill_point("replacement_before_decode");
    try {
      slot->sample = assembler->assemble(stand_ins[k].id, pool.get());
      slot->sample_id = stand_ins[k].id;
      replacement = static_cast<int>(k) + 1;
    } catch (const BadSampleError&) {  // the next similar one
    }
  }
  slot->code = fate_code(reason_code(slot->reason), replacement);
  long suppressed = 0;
  if (log_allowed("bad_sample_" + slot->reason, &suppressed))
    log_warn("{} {}: {}: {}{}",
             replacement ? "replaced by " + assembler->dataset().describe(slot->sample_id) + ":" : std::string("left out"),
             assembler->dataset().describe(item.id), slot->reason, slot->detail,
             suppressed > 0 ? " (and " + std::to_string(suppressed) + " more like it)" : "");
}

void DataLoader::Impl::work(Worker kind) {
  pthread_setname_np(pthread_self(), kind == Worker::kVideo ? "mso-video" : "mso-decode");
  const ThreadClass place = kind == Worker::kVideo ? ThreadClass::kVideo : ThreadClass::kImage;
  if (const std::string problem = place_this_thread(place); !problem.empty() && log_allowed("decoder_place"))
    log_warn("decoder threads are not where the job's CPU sets put them: {}", problem);
  std::unique_lock lock(mutex);
  try {
    while (!stop) {
      uint64_t position = 0;
      if (!take(kind, &position)) {
        work_or_stop.wait(lock);
        continue;
      }
      const uint64_t mine = generation;
      Slot made = std::move(slots.at(position));
      slots.at(position).item = made.item;  // stays, in work
      slots.at(position).state = Slot::kInWork;
      slots.at(position).bytes = made.bytes;
      std::optional<LedgerEntry> replaced;  // before a restart
      if (auto known = known_fates.find(position); known != known_fates.end()) replaced = known->second;
      lock.unlock();
      const auto begin = Clock::now();
      decode(&made, replaced);
      const double seconds = seconds_since(begin);
      lock.lock();
      if (mine != generation) continue;  // started anew meanwhile
      made.state = Slot::kDone;
      counters.samples += 1;
      counters.bad_samples += made.code != 0;
      counters.pictures += made.sample.counts[Modality::kImage];
      counters.cut_samples += made.sample.cut;
      counters.bytes_read += made.sample.bytes_read;
      counters.of[made.item.modality].samples += 1;
      counters.of[made.item.modality].decode_s += seconds;
      ++ready[made.item.modality];
      slots.at(position) = std::move(made);
      sample_ready.notify_all();
    }
  } catch (...) {  // nothing a shard holds comes here; the trainer's thread throws it
    if (!lock.owns_lock()) lock.lock();
    failure = std::current_exception();
    sample_ready.notify_all();
  }
  --live;
  thread_left.notify_all();
}

RankBatch& RankBatch::operator=(RankBatch&& other) noexcept {
  if (this == &other) return *this;
  release();
  step = other.step;
  micro_batches = std::move(other.micro_batches);
  bad_samples = std::move(other.bad_samples);
  samples = other.samples;
  wait_s = other.wait_s;
  pool_ = std::move(other.pool_);
  return *this;
}

void RankBatch::release() noexcept {
  if (pool_) {
    try {
      for (MicroBatch& batch : micro_batches)
        for (auto& [name, tensor] : batch.media) pool_->give_back(std::move(tensor));
      pool_->step_boundary();
    } catch (const std::exception&) {  // no memory for the list of buffers: they are freed
    }
  }
  micro_batches.clear();
  pool_.reset();
}

DataLoader::DataLoader(std::shared_ptr<const SampleAssembler> assembler, DataLoaderOptions options) {
  auto refuse = [](const std::string& what, const std::string& key) {
    return Error(what, key, "", ExitCode::kBadUsage);
  };
  if (options.batch_samples == 0) throw refuse("must be at least 1", "train.global_batch_samples");
  if (options.micro_batch.positions <= 0) throw refuse("must be at least 1", "data.micro_batch_tokens");
  if (options.ranks < 1 || options.rank < 0 || options.rank >= options.ranks)
    throw refuse("no such rank", std::to_string(options.rank) + " of " + std::to_string(options.ranks));
  if (options.threads <= 0) options.threads = std::max(1, usable_cores() / std::max(1, options.ranks_on_node));
  impl_ = std::make_shared<Impl>(std::move(assembler), std::move(options));
  impl_->self = impl_;
}

DataLoader::~DataLoader() {
  std::unique_lock lock(impl_->mutex);
  impl_->stop = true;
  ++impl_->generation;
  impl_->work_or_stop.notify_all();
  if (!impl_->thread_left.wait_for(lock, std::chrono::seconds(5), [&] { return impl_->live == 0; }))
    log_warn("{} decoder threads still wait for storage; they are left behind", impl_->live);
}

// The order before `step`, from the deferrals of the ledger: steps without any and without a debt change nothing.
OrderState DataLoader::Impl::state_at(uint64_t step) {
  OrderState at;
  const NominalBatches batch_of = [this](uint64_t s) -> const NominalBatch& { return nominal(s); };
  while (at.step < step) {
    if (at.deferred.empty() && at.ahead.empty()) {
      auto next = known_deferrals.lower_bound(at.step);
      at.step = next == known_deferrals.end() ? step : std::min(step, next->first);
      if (at.step == step) break;
    }
    state = at;
    candidates = candidates_of(at, batch_of, options.batch_samples, stand_in_steps());
    at = after(at, candidates, mso::decide(candidates, told_codes(at.step)), options.batch_samples);
  }
  return at;
}

// The codes that lead to the decision of the ledger: see the test of io/step_plan.h.
std::vector<uint8_t> DataLoader::Impl::told_codes(uint64_t step) const {
  std::vector<uint8_t> told(candidates.items.size(), 0);
  std::fill(told.begin() + static_cast<std::ptrdiff_t>(candidates.due), told.end(), kLate);
  auto known = known_deferrals.find(step);
  if (known == known_deferrals.end()) return told;
  size_t left = known->second.size();
  std::vector<uint64_t> stand_ins;
  for (size_t i = 0; i < candidates.due; ++i) {
    auto deferral = known->second.find(candidates.items[i].position);
    if (deferral == known->second.end()) continue;
    told[i] = kLate;
    --left;
    if (deferral->second) stand_ins.push_back(*deferral->second);
  }
  for (size_t i = candidates.due; i < told.size(); ++i)
    if (std::ranges::find(stand_ins, candidates.items[i].position) != stand_ins.end()) told[i] = 0;
  if (left > 0)
    throw Error("the ledger does not fit the order of samples",
                "step " + std::to_string(step) + " deferred samples that it could not have taken",
                "the data, the seed, the batch size or the recipe have changed; start with --fresh", ExitCode::kBadData);
  return told;
}

void DataLoader::start(uint64_t first_step, std::vector<LedgerEntry> known) {
  LoaderPlace place;
  place.step = first_step;
  place.known = std::move(known);
  start(std::move(place));
}

void DataLoader::start(LoaderPlace place) {
  Impl& impl = *impl_;
  std::lock_guard lock(impl.mutex);
  ++impl.generation;
  for (PerModality<uint64_t>* values : {&impl.in_flight, &impl.per_step, &impl.ready}) *values = {};
  impl.batches.clear();
  impl.slots.clear();
  impl.waiting = {};
  impl.bytes = 0;
  impl.failure = nullptr;
  impl.known_fates.clear();
  impl.known_deferrals.clear();
  for (const LedgerEntry& entry : place.known) {
    if (entry.event == LedgerEvent::kDeferred)
      impl.known_deferrals[entry.step].emplace(entry.position, entry.stand_in);
    else if (entry.step >= place.step)
      impl.known_fates.emplace(entry.position, entry);
  }
  impl.replayed_until = place.replayed_until;
  impl.state = place.order ? *place.order : impl.state_at(place.step);
  if (impl.state.step != place.step)
    throw Error("the loader's place is of another step", std::to_string(impl.state.step) + " instead of " + std::to_string(place.step),
                "", ExitCode::kBadData);
  impl.candidates = {};
  impl.settled = {};
  impl.first_step = true;
  // What was deferred is decoded first; its nominal batches are planned for this rank's share of them alone.
  impl.planned = place.step;
  for (uint64_t position : impl.state.deferred) {
    const BatchItem& item = impl.nominal(position / impl.options.batch_samples).at(position % impl.options.batch_samples);
    if (item.owner != impl.options.rank) continue;
    impl.add_slot(item);
    if (item.modality == Modality::kVideo) impl.start_threads(Worker::kVideo, std::max(2, impl.options.video_threads));
  }
  if (!impl.options.sequential) {  // storage reads ahead in the order of the steps
    Dataset::follow(impl.assembler->shared_dataset(), [weak = impl.self](uint64_t step) {
      std::vector<uint64_t> ids;
      if (const auto shared = weak.lock())
        for (const BatchItem& item : shared->nominal_batch(step))
          if (item.owner == shared->options.rank) ids.push_back(item.id);
      return ids;
    });
    impl.assembler->dataset().storage().at_step(place.step);
  }
  impl.start_threads(Worker::kOrdinary, impl.options.threads);
  impl.work_or_stop.notify_all();
}

std::string DataLoader::Impl::place_of(const Slot& slot) const {
  const Dataset& data = assembler->dataset();
  return data.describe(slot.item.id) + " in " + data.shard_path(data.locate(slot.item.id).shard).string();
}

void DataLoader::Impl::give_up_on(const Slot* slot) const {
  throw Error("the next batch was not there within " + std::to_string(options.timeout_s) + " s",
              "step " + std::to_string(state.step) + (slot ? ", waiting for " + place_of(*slot) : ""),
              "is the storage slow or gone? parallel.timeout_s is the limit", ExitCode::kBadData);
}

template <typename Ready>
bool DataLoader::Impl::wait_for(std::unique_lock<std::mutex>& lock, Clock::time_point deadline, Ready ready) {
  const auto begin = Clock::now();
  const bool there = sample_ready.wait_until(lock, deadline, [&] { return failure || ready(); });
  wait_s += seconds_since(begin);
  if (failure) std::rethrow_exception(failure);
  return there;
}

std::vector<uint8_t> DataLoader::open() {
  Impl& impl = *impl_;
  const auto begin = Clock::now();
  std::unique_lock lock(impl.mutex);
  if (impl.failure) std::rethrow_exception(impl.failure);
  if (impl.live == 0) throw Error("open() before start()", "data loader");
  const uint64_t step = impl.state.step;
  const bool ended = !impl.order.endless() && step >= impl.steps();
  while (!ended && impl.planned <= step + impl.stand_in_steps()) impl.plan_next_step();
  impl.work_or_stop.notify_all();
  impl.wait_s = 0;
  impl.decision = {};
  impl.candidates = candidates_of(impl.state, [&impl](uint64_t s) -> const NominalBatch& { return impl.nominal(s); },
                                  impl.options.batch_samples, impl.stand_in_steps());
  const StepCandidates& c = impl.candidates;
  const bool replayed = impl.is_replayed(step);
  const std::vector<uint8_t> told = replayed ? impl.told_codes(step) : std::vector<uint8_t>();

  // This rank's samples, and those of them that the step needs.
  std::vector<std::pair<size_t, const Slot*>> own, needed;
  impl.waited = {};
  for (size_t i = 0; i < c.items.size(); ++i) {
    if (c.items[i].owner != impl.options.rank) continue;
    const Slot* slot = &impl.slots.at(c.items[i].position);
    own.emplace_back(i, slot);
    if (replayed ? told[i] == 0 : i < c.due) {
      needed.emplace_back(i, slot);
      if (slot->state != Slot::kDone) impl.waited[slot->item.modality] = 1;
    }
  }
  const bool may_defer = impl.defers() && !replayed && !impl.first_step;
  const double patience_s = may_defer ? std::min(impl.options.defer_after_s, impl.options.timeout_s) : impl.options.timeout_s;
  const auto deadline = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(patience_s));
  auto missing = [&]() -> const Slot* {
    for (auto [i, slot] : needed)
      if (slot->state != Slot::kDone) return slot;
    return nullptr;
  };
  if (!impl.wait_for(lock, deadline, [&] { return missing() == nullptr; }) && !may_defer) impl.give_up_on(missing());

  std::vector<uint8_t> codes(c.items.size(), 0);
  for (auto [i, slot] : own) {
    codes[i] = slot->state == Slot::kDone ? slot->code : kLate;
    if (replayed && told[i] == kLate) codes[i] = kLate;
  }
  impl.first_step = false;
  return codes;
}

bool DataLoader::decide(const std::vector<uint8_t>& agreed) {
  Impl& impl = *impl_;
  std::lock_guard lock(impl.mutex);
  if (agreed.size() != impl.candidates.items.size()) throw Error("decide() without open()", "data loader");
  impl.codes = agreed;
  impl.decision = mso::decide(impl.candidates, agreed);
  return !impl.decision.awaited.empty();
}

std::vector<uint8_t> DataLoader::await_late() {
  Impl& impl = *impl_;
  std::unique_lock lock(impl.mutex);
  std::vector<uint8_t> codes(impl.candidates.items.size(), 0);
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(impl.options.timeout_s));
  for (size_t i : impl.decision.awaited) {
    const BatchItem& item = impl.candidates.items[i];
    if (item.owner != impl.options.rank) continue;
    const Slot& slot = impl.slots.at(item.position);
    impl.waited[item.modality] = 1;
    if (!impl.wait_for(lock, deadline, [&] { return slot.state == Slot::kDone; })) impl.give_up_on(&slot);
    codes[i] = slot.code;
  }
  return codes;
}

const SettledStep& DataLoader::settle(const std::vector<uint8_t>& agreed_late) {
  Impl& impl = *impl_;
  std::lock_guard lock(impl.mutex);
  const StepCandidates& c = impl.candidates;
  for (size_t i : impl.decision.awaited) impl.codes[i] = agreed_late.at(i);
  SettledStep& settled = impl.settled;
  settled = {};
  settled.batch.step = c.step;
  for (size_t i : impl.decision.chosen) {
    const BatchItem& item = c.items[i];
    settled.batch.positions.push_back(item.position);
    settled.batch.ids.push_back(item.id);
    settled.batch.epochs.push_back(item.epoch);
    settled.fates.push_back(impl.codes[i]);
    StandIn stand_in;
    if (const int k = replacement_of_fate(impl.codes[i]); k > 0) {
      if (auto known = impl.known_fates.find(item.position); known != impl.known_fates.end())
        stand_in = {known->second.by_id, known->second.similarity};
      else
        stand_in = impl.options.find_stand_ins(item.id).at(static_cast<size_t>(k) - 1);
    }
    settled.stand_ins.push_back(stand_in);
  }
  for (const Deferral& deferral : impl.decision.deferred) {
    const BatchItem& item = c.items[deferral.item];
    std::optional<uint64_t> stand_in;
    if (deferral.stand_in) stand_in = c.items[*deferral.stand_in].position;
    settled.deferred.push_back({item, stand_in});
    if (item.owner == impl.options.rank) ++impl.counters.of[item.modality].deferred;
  }
  impl.state = after(impl.state, c, impl.decision, impl.options.batch_samples);
  if (!impl.options.sequential) impl.assembler->dataset().storage().at_step(impl.state.step);
  return settled;
}

const SettledStep& DataLoader::settled() const { return impl_->settled; }

RankBatch DataLoader::take() {
  Impl& impl = *impl_;
  RankBatch batch;
  std::vector<Slot> mine;
  std::vector<size_t> indices;
  PerModality<uint64_t> taken;
  {
    std::lock_guard lock(impl.mutex);
    batch.step = impl.settled.batch.step;
    batch.wait_s = impl.wait_s;
    batch.pool_ = impl.pool;
    for (size_t i = 0; i < impl.settled.batch.positions.size(); ++i) {
      auto found = impl.slots.find(impl.settled.batch.positions[i]);
      if (found == impl.slots.end()) continue;
      ++taken[found->second.item.modality];
      --impl.ready[found->second.item.modality];  // what a step takes is done
      if (found->second.bytes > 0) --impl.in_flight[found->second.item.modality];
      impl.bytes -= found->second.bytes;
      mine.push_back(std::move(found->second));
      indices.push_back(i);
      impl.slots.erase(found);
    }
    const uint64_t oldest = impl.state.deferred.empty() ? impl.state.step : impl.state.deferred.front() / impl.options.batch_samples;
    impl.batches.erase(impl.batches.begin(), impl.batches.lower_bound(oldest));
    for (Modality m : kAllModalities) {
      if (impl.per_step[m] == 0) continue;
      impl.depth[m].observe({impl.waited[m] != 0, impl.ready[m], taken[m]});
      impl.counters.of[m].waits += impl.waited[m] != 0;
      impl.counters.of[m].depth = impl.depth[m].depth();
      impl.counters.of[m].ready = impl.ready[m];
    }
    impl.counters.wait_s += impl.wait_s;
    impl.work_or_stop.notify_all();
  }
  std::vector<size_t> good;
  std::vector<PackedSample> packed;
  for (size_t k = 0; k < mine.size(); ++k) {
    const Slot& slot = mine[k];
    if (slot.code != 0) batch.bad_samples.push_back({slot.item.id, indices[k], slot.reason, slot.detail});
    if (slot.code != 0 && replacement_of_fate(slot.code) == 0) continue;
    good.push_back(k);
    packed.push_back({static_cast<int64_t>(slot.sample.tokens.size()), slot.item.modality});
  }
  batch.samples = good.size();
  for (const std::vector<size_t>& members : pack_micro_batches(packed, impl.options.micro_batch)) {
    std::vector<const AssembledSample*> samples;
    std::vector<uint64_t> ids;
    for (size_t m : members) {
      samples.push_back(&mine[good[m]].sample);
      ids.push_back(mine[good[m]].sample_id);
    }
    batch.micro_batches.push_back(join_samples(samples, ids, impl.pool.get()));
    for (size_t m : members) mine[good[m]].sample.give_back(*impl.pool);  // its pixels are now twice in memory
  }
  return batch;
}

RankBatch DataLoader::next() {
  const std::vector<uint8_t> codes = open();
  settle(decide(codes) ? await_late() : std::vector<uint8_t>());
  return take();
}

GlobalBatch DataLoader::global_batch(uint64_t step) const {
  return impl_->order.global_batch(step, impl_->options.batch_samples);
}

std::vector<size_t> DataLoader::samples_of_rank(uint64_t step, int rank) const {
  std::vector<size_t> own;
  const NominalBatch batch = impl_->nominal_batch(step);
  for (size_t i = 0; i < batch.size(); ++i)
    if (batch[i].owner == rank) own.push_back(i);
  return own;
}

std::vector<LedgerEntry> DataLoader::ledger_entries(const SettledStep& step, const std::vector<BadSample>& bad) const {
  const Dataset& data = impl_->assembler->dataset();
  auto shard_of = [&](uint64_t id) { return data.shard_path(data.locate(id).shard).filename().string(); };
  std::vector<LedgerEntry> entries;
  auto entry_of = [&](uint64_t position, uint64_t id, uint64_t epoch) {
    LedgerEntry entry;
    entry.step = step.batch.step;
    entry.position = position;
    entry.id = id;
    entry.epoch = epoch;
    entry.key = data.sample(id).key;
    entry.shard = shard_of(id);
    return entry;
  };
  for (const SettledStep::Deferred& deferred : step.deferred) {
    LedgerEntry entry = entry_of(deferred.item.position, deferred.item.id, deferred.item.epoch);
    entry.event = LedgerEvent::kDeferred;
    entry.reason = "late";
    entry.detail = std::string("a ") + name_of(deferred.item.modality) + " that was not decoded in time";
    entry.stand_in = deferred.stand_in;
    entries.push_back(std::move(entry));
  }
  for (size_t i = 0; i < step.fates.size(); ++i) {
    if (step.fates[i] == 0) continue;
    LedgerEntry entry = entry_of(step.batch.positions[i], step.batch.ids[i], step.batch.epochs[i]);
    entry.reason = reason_name(reason_of_fate(step.fates[i]));
    for (const BadSample& sample : bad)
      if (sample.index == i) entry.detail = sample.detail;
    if (replacement_of_fate(step.fates[i]) > 0) {
      entry.event = LedgerEvent::kReplaced;
      entry.by_id = step.stand_ins[i].id;
      entry.by_key = data.sample(entry.by_id).key;
      entry.by_shard = shard_of(entry.by_id);
      entry.similarity = step.stand_ins[i].similarity;
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

uint64_t DataLoader::steps_per_epoch() const { return impl_->steps(); }
const SampleAssembler& DataLoader::assembler() const { return *impl_->assembler; }
const DataLoaderOptions& DataLoader::options() const { return impl_->options; }

BatchMemoryUse DataLoader::memory_use() const { return impl_->pool->use(); }

DataLoader::Counters DataLoader::counters() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->counters;
}

nlohmann::ordered_json DataLoader::Impl::cursor() const {
  nlohmann::ordered_json json{{"step", state.step},
                              {"position", state.step * options.batch_samples},
                              {"samples", order.size()},
                              {"batch_samples", options.batch_samples},
                              {"seed", options.seed},
                              {"data", hex64(assembler->dataset().fingerprint())}};
  if (has_recipe()) json["recipe"] = std::vector<uint64_t>(options.recipe.begin(), options.recipe.end());
  for (const MixturePart& part : options.mixture) json["mixture"].push_back({part.first, part.size, part.weight});
  if (const auto& chat = assembler->options().conversations; chat && assembler->dataset().has_conversations())
    json["chat_template"] = hex64(hash64(chat->chat_template().source()));
  if (!state.deferred.empty()) json["deferred"] = state.deferred;
  if (!state.ahead.empty()) json["ahead"] = state.ahead;
  return json;
}

std::string DataLoader::cursor() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->cursor().dump();
}

OrderState DataLoader::order_of_cursor(const std::string& cursor) {
  try {
    const auto json = nlohmann::json::parse(cursor);
    OrderState state;
    json.at("step").get_to(state.step);
    if (json.contains("deferred")) json.at("deferred").get_to(state.deferred);
    if (json.contains("ahead")) json.at("ahead").get_to(state.ahead);
    return state;
  } catch (const nlohmann::json::exception& error) {
    throw Error("damaged loader cursor", error.what(), "", ExitCode::kBadData);
  }
}

uint64_t DataLoader::step_of_cursor(const std::string& cursor) { return order_of_cursor(cursor).step; }

std::vector<std::string> DataLoader::differences(const std::string& cursor) const {
  (void)step_of_cursor(cursor);
  const auto then = nlohmann::json::parse(cursor), now = nlohmann::json::parse(this->cursor());
  std::vector<std::string> found;
  const std::pair<const char*, const char*> fields[] = {{"samples", "number of samples"},
                                                        {"batch_samples", "train.global_batch_samples"},
                                                        {"seed", "train.seed"},
                                                        {"data", "content of the shards"},
                                                        {"recipe", "mdp.batch_recipe"},
                                                        {"mixture", "data.mixture"},
                                                        {"chat_template", "the text of data.chat_template"}};
  for (auto [field, words] : fields) {
    const auto was = then.value(field, nlohmann::json()), is = now.value(field, nlohmann::json());
    if (was != is) found.push_back(std::string(words) + ": was " + was.dump() + ", is " + is.dump());
  }
  return found;
}

}  // namespace mso
