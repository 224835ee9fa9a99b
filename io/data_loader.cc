#include "io/data_loader.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "io/loader_state.h"
#include "node/cpu_list.h"

namespace mso {

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

RankBatch& RankBatch::operator=(RankBatch&& other) noexcept {
  if (this == &other) return *this;
  release();
  step = other.step;
  micro_batches = std::move(other.micro_batches);
  bad_samples = std::move(other.bad_samples);
  samples = other.samples;
  media = other.media;
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
    if (item.modality == Modality::kVideo) impl.start_threads(Impl::Worker::kVideo, std::max(2, impl.options.video_threads));
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
  impl.start_threads(Impl::Worker::kOrdinary, impl.options.threads);
  impl.work_or_stop.notify_all();
}

std::string DataLoader::Impl::place_of(const SampleSlot& slot) const {
  const Dataset& data = assembler->dataset();
  return data.describe(slot.item.id) + " in " + data.shard_path(data.locate(slot.item.id).shard).string();
}

void DataLoader::Impl::give_up_on(const SampleSlot* slot) const {
  throw Error("the next batch was not there within " + std::to_string(options.timeout_s) + " s",
              "step " + std::to_string(state.step) + (slot ? ", waiting for " + place_of(*slot) : ""),
              "is the storage slow or gone? parallel.timeout_s is the limit", ExitCode::kBadData);
}

template <typename Ready>
bool DataLoader::Impl::wait_for(std::unique_lock<std::mutex>& lock, LoaderClock::time_point deadline, Ready ready) {
  const auto begin = LoaderClock::now();
  const bool there = sample_ready.wait_until(lock, deadline, [&] { return failure || ready(); });
  wait_s += seconds_since(begin);
  if (failure) std::rethrow_exception(failure);
  return there;
}

std::vector<uint8_t> DataLoader::open() {
  Impl& impl = *impl_;
  const auto begin = LoaderClock::now();
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
  std::vector<std::pair<size_t, const SampleSlot*>> own, needed;
  impl.waited = {};
  for (size_t i = 0; i < c.items.size(); ++i) {
    if (c.items[i].owner != impl.options.rank) continue;
    const SampleSlot* slot = &impl.slots.at(c.items[i].position);
    own.emplace_back(i, slot);
    if (replayed ? told[i] == 0 : i < c.due) {
      needed.emplace_back(i, slot);
      if (slot->state != SampleSlot::kDone) impl.waited[slot->item.modality] = 1;
    }
  }
  const bool may_defer = impl.defers() && !replayed && !impl.first_step;
  const double patience_s = may_defer ? std::min(impl.options.defer_after_s, impl.options.timeout_s) : impl.options.timeout_s;
  const auto deadline = begin + std::chrono::duration_cast<LoaderClock::duration>(std::chrono::duration<double>(patience_s));
  auto missing = [&]() -> const SampleSlot* {
    for (auto [i, slot] : needed)
      if (slot->state != SampleSlot::kDone) return slot;
    return nullptr;
  };
  if (!impl.wait_for(lock, deadline, [&] { return missing() == nullptr; }) && !may_defer) impl.give_up_on(missing());

  std::vector<uint8_t> codes(c.items.size(), 0);
  for (auto [i, slot] : own) {
    codes[i] = slot->state == SampleSlot::kDone ? slot->code : kLate;
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
  const auto deadline = LoaderClock::now() + std::chrono::duration_cast<LoaderClock::duration>(std::chrono::duration<double>(impl.options.timeout_s));
  for (size_t i : impl.decision.awaited) {
    const BatchItem& item = impl.candidates.items[i];
    if (item.owner != impl.options.rank) continue;
    const SampleSlot& slot = impl.slots.at(item.position);
    impl.waited[item.modality] = 1;
    if (!impl.wait_for(lock, deadline, [&] { return slot.state == SampleSlot::kDone; })) impl.give_up_on(&slot);
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
  std::vector<SampleSlot> mine;
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
    const SampleSlot& slot = mine[k];
    if (slot.code != 0) batch.bad_samples.push_back({slot.item.id, indices[k], slot.reason, slot.detail});
    if (slot.code != 0 && replacement_of_fate(slot.code) == 0) continue;
    good.push_back(k);
    packed.push_back({static_cast<int64_t>(slot.sample.tokens.size()), slot.item.modality});
    for (Modality m : kAllModalities) batch.media[m] += slot.sample.counts[m];
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

uint64_t DataLoader::steps_per_epoch() const { return impl_->steps(); }
const SampleAssembler& DataLoader::assembler() const { return *impl_->assembler; }
const DataLoaderOptions& DataLoader::options() const { return impl_->options; }

BatchMemoryUse DataLoader::memory_use() const { return impl_->pool->use(); }

DataLoader::Counters DataLoader::counters() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->counters;
}

}  // namespace mso
