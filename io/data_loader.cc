#include "io/data_loader.h"

#include <pthread.h>
#include <sched.h>

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
#include "base/log.h"
#include "node/thread_place.h"

namespace mso {
namespace {

using Clock = std::chrono::steady_clock;

int cores_of_process() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

// One sample of this rank in a step.
struct Slot {
  uint64_t id = 0;
  uint64_t index = 0;  // in the global batch
  enum { kWaiting, kInWork, kDone } state = kWaiting;
  bool bad = false;
  AssembledSample sample;  // when done and not bad
  BadSample failure;       // when bad
  uint64_t bytes = 0;      // counted against the memory limit
};

struct StepWork {
  uint64_t step = 0;
  std::vector<Slot> slots;
  size_t next_slot = 0;  // first one no thread has taken
  size_t left = 0;       // not done
  uint64_t bytes = 0;
  bool ready = false;
  RankBatch batch;
};

}  // namespace

struct DataLoader::Impl {
  Impl(std::shared_ptr<const SampleAssembler> a, DataLoaderOptions o)
      : assembler(std::move(a)), options(std::move(o)), order(make_order()),
        pool(std::make_shared<BufferPool>(options.memory_bytes)) {}

  SampleOrder make_order() const {
    uint64_t n = assembler->dataset().size();
    if (!options.sequential) return SampleOrder::shuffled(n, options.seed);
    if (options.max_samples > 0) n = std::min(n, options.max_samples);
    return SampleOrder::sequential(n);
  }
  uint64_t steps() const { return (order.size() + options.batch_samples - 1) / options.batch_samples; }

  std::vector<size_t> samples_of_rank(const GlobalBatch& batch, int rank) const {
    std::vector<SampleCost> costs;
    costs.reserve(batch.ids.size());
    for (uint64_t id : batch.ids) costs.push_back(assembler->cost(id));
    return deal_to_ranks(costs, options.ranks).at(static_cast<size_t>(rank));
  }

  std::shared_ptr<StepWork> plan(uint64_t step) const;
  void pack(StepWork& work) const;
  bool take(std::shared_ptr<StepWork>* work, size_t* slot);
  void work();

  const std::shared_ptr<const SampleAssembler> assembler;
  const DataLoaderOptions options;
  const SampleOrder order;
  std::unordered_map<uint64_t, LedgerEntry> known_bad;  // by position; changed only by start()

  std::mutex mutex;
  std::condition_variable work_or_stop, step_ready, thread_left;
  std::deque<std::shared_ptr<StepWork>> window;  // steps due_step, due_step + 1, …
  uint64_t due_step = 0;                         // what next() returns next
  uint64_t generation = 0;                       // of start() calls; results of older ones are dropped
  const std::shared_ptr<BufferPool> pool;
  uint64_t bytes = 0;                            // decoded or being decoded
  bool stop = false;
  int live = 0;
  std::exception_ptr failure;
  Counters counters;
};

// Pure: which samples are this rank's, and which of them are known to be bad.
std::shared_ptr<StepWork> DataLoader::Impl::plan(uint64_t step) const {
  auto work = std::make_shared<StepWork>();
  work->step = step;
  const GlobalBatch batch = order.global_batch(step, options.batch_samples);
  for (size_t index : samples_of_rank(batch, options.rank)) {
    Slot slot;
    slot.id = batch.ids[index];
    slot.index = index;
    auto known = known_bad.find(batch.first_position + index);
    if (known != known_bad.end()) {
      if (known->second.id != slot.id)
        throw Error("the ledger does not fit the data",
                    "position " + std::to_string(known->first) + ": sample " + std::to_string(known->second.id) +
                        " in the ledger, " + std::to_string(slot.id) + " by the order",
                    "data, seed or batch size have changed", ExitCode::kBadData);
      slot.state = Slot::kDone;
      slot.bad = true;
      slot.failure = {slot.id, index, known->second.reason, known->second.detail};
    } else {
      ++work->left;
    }
    work->slots.push_back(std::move(slot));
  }
  return work;
}

void DataLoader::Impl::pack(StepWork& work) const {
  RankBatch& batch = work.batch;
  batch.step = work.step;
  batch.pool_ = pool;
  std::vector<Slot*> good;
  std::vector<int64_t> lengths;
  for (Slot& slot : work.slots) {
    if (slot.bad) {
      batch.bad_samples.push_back(std::move(slot.failure));
    } else {
      good.push_back(&slot);
      lengths.push_back(static_cast<int64_t>(slot.sample.tokens.size()));
    }
  }
  batch.samples = good.size();
  for (const std::vector<size_t>& members : pack_micro_batches(lengths, options.micro_batch_tokens)) {
    std::vector<const AssembledSample*> samples;
    std::vector<uint64_t> ids;
    for (size_t m : members) {
      samples.push_back(&good[m]->sample);
      ids.push_back(good[m]->id);
    }
    batch.micro_batches.push_back(join_samples(samples, ids, assembler->picture_decoder(), pool.get()));
    for (size_t m : members)  // its pixels are now twice in memory
      for (HostTensor& picture : good[m]->sample.pictures) pool->give_back(std::move(picture));
  }
}

// With the lock held: the next sample to work on. Steps are served in order, so the one that is due comes first.
bool DataLoader::Impl::take(std::shared_ptr<StepWork>* work, size_t* slot) {
  for (;;) {
    for (const auto& candidate : window) {
      while (candidate->next_slot < candidate->slots.size() &&
             candidate->slots[candidate->next_slot].state != Slot::kWaiting)
        ++candidate->next_slot;
      if (candidate->next_slot == candidate->slots.size()) continue;
      Slot& found = candidate->slots[candidate->next_slot];
      const uint64_t need = assembler->decoded_bytes(found.id);
      if (candidate->step != due_step && bytes + need > options.memory_bytes) return false;
      found.state = Slot::kInWork;
      found.bytes = need;
      candidate->bytes += need;
      bytes += need;
      *slot = candidate->next_slot++;
      *work = candidate;
      return true;
    }
    if (window.size() > options.prefetch_steps) return false;
    const uint64_t step = due_step + window.size();
    if (!order.endless() && step >= steps()) return false;
    window.push_back(plan(step));
    StepWork& planned = *window.back();
    if (planned.left == 0) {  // nothing to decode: no sample, or all known to be bad
      pack(planned);
      planned.ready = true;
      step_ready.notify_all();
    }
  }
}

void DataLoader::Impl::work() {
  pthread_setname_np(pthread_self(), "mso-decode");
  if (const std::string problem = place_this_thread(ThreadClass::kImage); !problem.empty() && log_allowed("decoder_place"))
    log_warn("decoder threads are not where the job's CPU sets put them: {}", problem);
  std::unique_lock lock(mutex);
  try {
    while (!stop) {
      std::shared_ptr<StepWork> step;
      size_t at = 0;
      if (!take(&step, &at)) {
        work_or_stop.wait(lock);
        continue;
      }
      const uint64_t mine = generation;
      Slot& slot = step->slots[at];
      const uint64_t id = slot.id, index = slot.index;
      lock.unlock();
      AssembledSample sample;
      BadSample bad;
      bool is_bad = false;
      try {
        sample = assembler->assemble(id, pool.get());
      } catch (const BadSampleError& error) {
        is_bad = true;
        bad = {id, index, error.reason(), error.detail()};
        long suppressed = 0;
        if (log_allowed("bad_sample_" + error.reason(), &suppressed))
          log_warn("left out {}: {}: {}{}", assembler->dataset().describe(id), error.reason(), error.detail(),
                   suppressed > 0 ? " (and " + std::to_string(suppressed) + " more like it)" : "");
      }
      lock.lock();
      if (mine != generation) continue;  // started anew meanwhile
      slot.bad = is_bad;
      slot.sample = std::move(sample);
      slot.failure = std::move(bad);
      slot.state = Slot::kDone;
      counters.samples += 1;
      counters.bad_samples += is_bad;
      counters.pictures += slot.sample.pictures.size();
      counters.cut_samples += slot.sample.cut;
      for (const ShardMember& member : assembler->dataset().sample(id).members)
        if (!is_bad && (is_picture_extension(member.extension) || member.extension == "txt"))
          counters.bytes_read += member.size;
      if (--step->left == 0) {
        lock.unlock();
        pack(*step);  // nobody else touches a step without work left
        lock.lock();
        if (mine != generation) continue;
        step->ready = true;
        step_ready.notify_all();
      }
    }
  } catch (...) {  // nothing a shard holds comes here; next() throws it
    if (!lock.owns_lock()) lock.lock();
    failure = std::current_exception();
    step_ready.notify_all();
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
  if (options.micro_batch_tokens <= 0) throw refuse("must be at least 1", "data.micro_batch_tokens");
  if (options.ranks < 1 || options.rank < 0 || options.rank >= options.ranks)
    throw refuse("no such rank", std::to_string(options.rank) + " of " + std::to_string(options.ranks));
  if (options.threads <= 0) options.threads = std::max(1, cores_of_process() / std::max(1, options.ranks_on_node));
  impl_ = std::make_shared<Impl>(std::move(assembler), std::move(options));
}

DataLoader::~DataLoader() {
  std::unique_lock lock(impl_->mutex);
  impl_->stop = true;
  ++impl_->generation;
  impl_->window.clear();
  impl_->work_or_stop.notify_all();
  if (!impl_->thread_left.wait_for(lock, std::chrono::seconds(5), [&] { return impl_->live == 0; }))
    log_warn("{} decoder threads still wait for storage; they are left behind", impl_->live);
}

void DataLoader::start(uint64_t first_step, const std::vector<LedgerEntry>& known_bad) {
  Impl& impl = *impl_;
  std::lock_guard lock(impl.mutex);
  ++impl.generation;
  impl.window.clear();
  impl.bytes = 0;
  impl.due_step = first_step;
  impl.failure = nullptr;
  impl.known_bad.clear();
  for (const LedgerEntry& entry : known_bad)
    if (entry.step >= first_step) impl.known_bad.emplace(entry.position, entry);
  for (; impl.live < impl.options.threads; ++impl.live)
    std::thread([self = impl_] { self->work(); }).detach();  // the destructor waits by `live`
  impl.work_or_stop.notify_all();
}

RankBatch DataLoader::next() {
  Impl& impl = *impl_;
  const auto begin = Clock::now();
  std::unique_lock lock(impl.mutex);
  if (impl.live == 0 && !impl.failure) throw Error("next() before start()", "data loader");
  if (!impl.order.endless() && impl.due_step >= impl.steps()) {
    RankBatch empty;
    empty.step = impl.due_step++;
    return empty;
  }
  const auto deadline = begin + std::chrono::duration<double>(impl.options.timeout_s);
  auto ready = [&] { return impl.failure || (!impl.window.empty() && impl.window.front()->ready); };
  if (!impl.step_ready.wait_until(lock, deadline, ready)) {
    std::string on = "step " + std::to_string(impl.due_step);
    if (!impl.window.empty())
      for (const Slot& slot : impl.window.front()->slots)
        if (slot.state != Slot::kDone) {
          on += ", waiting for " + impl.assembler->dataset().describe(slot.id) + " in " +
                impl.assembler->dataset().shard_path(impl.assembler->dataset().locate(slot.id).shard).string();
          break;
        }
    throw Error("the next batch was not there within " + std::to_string(impl.options.timeout_s) + " s", on,
                "is the storage slow or gone? parallel.timeout_s is the limit", ExitCode::kBadData);
  }
  if (impl.failure) std::rethrow_exception(impl.failure);
  std::shared_ptr<StepWork> work = std::move(impl.window.front());
  impl.window.pop_front();
  impl.bytes -= work->bytes;
  ++impl.due_step;
  impl.work_or_stop.notify_all();
  RankBatch batch = std::move(work->batch);
  batch.wait_s = std::chrono::duration<double>(Clock::now() - begin).count();
  impl.counters.wait_s += batch.wait_s;
  return batch;
}

GlobalBatch DataLoader::global_batch(uint64_t step) const {
  return impl_->order.global_batch(step, impl_->options.batch_samples);
}

std::vector<size_t> DataLoader::samples_of_rank(const GlobalBatch& batch, int rank) const {
  return impl_->samples_of_rank(batch, rank);
}

std::vector<uint8_t> DataLoader::bad_codes(const RankBatch& batch) const {
  std::vector<uint8_t> codes(impl_->options.batch_samples, 0);
  for (const BadSample& bad : batch.bad_samples) codes.at(bad.index) = reason_code(bad.reason);
  return codes;
}

std::vector<LedgerEntry> DataLoader::ledger_entries(const GlobalBatch& batch, const std::vector<uint8_t>& agreed_codes,
                                                    const std::vector<BadSample>& own) const {
  const Dataset& data = impl_->assembler->dataset();
  std::vector<LedgerEntry> entries;
  for (size_t i = 0; i < batch.ids.size() && i < agreed_codes.size(); ++i) {
    if (agreed_codes[i] == 0) continue;
    LedgerEntry entry;
    entry.step = batch.step;
    entry.epoch = batch.epochs[i];
    entry.position = batch.first_position + i;
    entry.id = batch.ids[i];
    entry.key = data.sample(entry.id).key;
    entry.shard = data.shard_path(data.locate(entry.id).shard).filename().string();
    entry.reason = reason_name(agreed_codes[i]);
    for (const BadSample& bad : own)
      if (bad.index == i) entry.detail = bad.detail;
    entries.push_back(std::move(entry));
  }
  return entries;
}

uint64_t DataLoader::steps_per_epoch() const { return impl_->steps(); }
const SampleAssembler& DataLoader::assembler() const { return *impl_->assembler; }
const DataLoaderOptions& DataLoader::options() const { return impl_->options; }

DataLoader::Counters DataLoader::counters() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->counters;
}

std::string DataLoader::cursor(uint64_t next_step) const {
  return nlohmann::ordered_json{{"step", next_step},
                                {"position", next_step * impl_->options.batch_samples},
                                {"samples", impl_->order.size()},
                                {"batch_samples", impl_->options.batch_samples},
                                {"seed", impl_->options.seed},
                                {"data", hex64(impl_->assembler->dataset().fingerprint())}}
      .dump();
}

uint64_t DataLoader::step_of_cursor(const std::string& cursor) {
  try {
    return nlohmann::json::parse(cursor).at("step").get<uint64_t>();
  } catch (const nlohmann::json::exception& error) {
    throw Error("damaged loader cursor", error.what(), "", ExitCode::kBadData);
  }
}

std::vector<std::string> DataLoader::differences(const std::string& cursor) const {
  const uint64_t step = step_of_cursor(cursor);
  const auto then = nlohmann::json::parse(cursor), now = nlohmann::json::parse(this->cursor(step));
  std::vector<std::string> found;
  const std::pair<const char*, const char*> fields[] = {{"samples", "number of samples"},
                                                        {"batch_samples", "train.global_batch_samples"},
                                                        {"seed", "train.seed"},
                                                        {"data", "content of the shards"}};
  for (auto [field, words] : fields) {
    const auto was = then.value(field, nlohmann::json());
    if (was != now.at(field)) found.push_back(std::string(words) + ": was " + was.dump() + ", is " + now.at(field).dump());
  }
  return found;
}

}  // namespace mso
