// The workers' side of the loader: which sample is decoded next, the threads that do it, and what becomes of a broken one.
#include <pthread.h>

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "base/kill_point.h"
#include "base/log.h"
#include "io/loader_state.h"
#include "node/thread_place.h"

namespace mso {

namespace {

// Nominal batches are planned at most so far ahead, however deep the buffers are.
constexpr uint64_t kMostStepsAhead = 64;

}  // namespace

// A sample of this rank that is to be decoded, or that the ledger says was left out before a restart.
void DataLoader::Impl::add_slot(const BatchItem& item) {
  SampleSlot slot;
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
      slot.state = SampleSlot::kDone;
      slot.code = fate_code(reason_code(known->second.reason), 0);
      slot.reason = known->second.reason;
      slot.detail = known->second.detail;
      ++ready[item.modality];
    }
  }
  if (slot.state == SampleSlot::kWaiting) waiting[item.modality].push_back(item.position);
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
    SampleSlot* best = nullptr;
    bool wants_more = false;
    for (Modality m : kAllModalities) {
      if ((m == Modality::kVideo) != (kind == Worker::kVideo)) continue;
      if (in_flight[m] < deep(m) && per_step[m] > 0 && waiting[m].empty()) wants_more = true;
      if (waiting[m].empty()) continue;
      SampleSlot& slot = slots.at(waiting[m].front());
      if (best && best->item.position < slot.item.position) continue;
      if (!is_due(slot) && in_flight[m] >= deep(m)) continue;
      best = &slot;
    }
    if (best) {
      const Modality m = best->item.modality;
      const uint64_t need = assembler->decoded_bytes(best->item.id);
      if (!is_due(*best) && bytes + need > options.memory_bytes) return false;
      waiting[m].pop_front();
      best->state = SampleSlot::kInWork;
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
void DataLoader::Impl::decode(SampleSlot* slot, const std::optional<LedgerEntry>& replaced) const {
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
      SampleSlot made = std::move(slots.at(position));
      slots.at(position).item = made.item;  // stays, in work
      slots.at(position).state = SampleSlot::kInWork;
      slots.at(position).bytes = made.bytes;
      std::optional<LedgerEntry> replaced;  // before a restart
      if (auto known = known_fates.find(position); known != known_fates.end()) replaced = known->second;
      lock.unlock();
      const auto begin = LoaderClock::now();
      decode(&made, replaced);
      const double seconds = seconds_since(begin);
      lock.lock();
      if (mine != generation) continue;  // started anew meanwhile
      made.state = SampleSlot::kDone;
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

}  // namespace mso
