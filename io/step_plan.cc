#include "io/step_plan.h"

#include <algorithm>

namespace mso {

StepCandidates candidates_of(const OrderState& state, const NominalBatches& nominal, uint64_t batch_samples,
                             uint64_t stand_in_steps) {
  StepCandidates c;
  c.step = state.step;
  for (uint64_t position : state.deferred) {
    const uint64_t step = position / batch_samples;
    const NominalBatch& batch = nominal(step);
    c.items.push_back(batch.at(position - step * batch_samples));
    c.must.push_back(step + kMostDeferredSteps <= state.step);
  }
  auto add = [&](uint64_t step) {
    for (const BatchItem& item : nominal(step))
      if (!std::ranges::binary_search(state.ahead, item.position)) c.items.push_back(item);
  };
  for (const BatchItem& item : nominal(state.step)) ++c.quota[item.modality];
  add(state.step);
  c.due = c.items.size();
  c.must.resize(c.due, false);
  for (uint64_t k = 1; k <= stand_in_steps; ++k) add(state.step + k);
  return c;
}

StepDecision decide(const StepCandidates& c, std::span<const uint8_t> codes) {
  StepDecision decision;
  std::vector<bool> taken(c.items.size(), false);
  PerModality<uint64_t> left = c.quota;
  auto take = [&](size_t i) {
    taken[i] = true;
    --left[c.items[i].modality];
  };
  const auto room = [&](size_t i) { return left[c.items[i].modality] > 0 && !taken[i]; };
  for (size_t i = 0; i < c.due; ++i)
    if (c.must[i] && room(i)) take(i);
  for (size_t i = 0; i < c.items.size(); ++i)
    if (codes[i] != kLate && room(i)) take(i);
  for (size_t i = 0; i < c.due; ++i)  // the due ones are at least as many as the quota
    if (room(i)) take(i);
  PerModality<std::vector<size_t>> stand_ins;
  for (size_t i = 0; i < c.items.size(); ++i) {
    if (!taken[i]) continue;
    decision.chosen.push_back(i);
    if (codes[i] == kLate) decision.awaited.push_back(i);
    if (i >= c.due) stand_ins[c.items[i].modality].push_back(i);
  }
  PerModality<size_t> used;
  for (size_t i = 0; i < c.due; ++i) {
    if (taken[i] || codes[i] != kLate) continue;
    const Modality m = c.items[i].modality;
    Deferral deferral{i, std::nullopt};
    if (used[m] < stand_ins[m].size()) deferral.stand_in = stand_ins[m][used[m]++];
    decision.deferred.push_back(deferral);
  }
  return decision;
}

OrderState after(const OrderState& state, const StepCandidates& c, const StepDecision& decision, uint64_t batch_samples) {
  OrderState next;
  next.step = state.step + 1;
  std::vector<bool> taken(c.items.size(), false);
  for (size_t i : decision.chosen) taken[i] = true;
  for (size_t i = 0; i < c.due; ++i)
    if (!taken[i]) next.deferred.push_back(c.items[i].position);
  next.ahead = state.ahead;
  for (size_t i = c.due; i < c.items.size(); ++i)
    if (taken[i]) next.ahead.push_back(c.items[i].position);
  std::ranges::sort(next.ahead);
  std::erase_if(next.ahead, [&](uint64_t position) { return position < next.step * batch_samples; });
  return next;
}

}  // namespace mso
