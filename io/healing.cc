#include "io/healing.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/config.h"
#include "base/error.h"

namespace mso {
namespace {

std::string fixed3(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.3f", value);
  return buffer;
}

std::string name_in_text(const std::string& category) {
  return category.empty() ? "the samples without a category" : "category '" + category + "'";
}

}  // namespace

double HealingPolicy::threshold_of(const std::string& category) const {
  const auto own = thresholds.find(category);
  return own == thresholds.end() ? threshold : own->second;
}

HealingPolicy healing_policy(const MdpConfig& config) {
  HealingPolicy policy;
  policy.replace = config.healing.replace;
  policy.threshold = config.skip_sample_threshold;
  for (const auto& [category, value] : config.healing.thresholds.items()) policy.thresholds[category] = value.get<double>();
  policy.cap = config.healing.cap;
  policy.cap_minimum = static_cast<uint64_t>(config.healing.cap_minimum);
  return policy;
}

HealingDecision decide_healing(const HealingPolicy& policy, const std::string& category,
                               std::span<const Neighbour> neighbours, const std::function<bool(uint64_t)>& bad) {
  HealingDecision decision;
  if (!policy.replace) {
    decision.skip_reason = "replacing is switched off";
    return decision;
  }
  const double threshold = policy.threshold_of(category);
  // The similarities are stored as float32; the threshold is compared as one, so that 0.85 is not below 0.85.
  const float least = static_cast<float>(threshold);
  const Neighbour* best = nullptr;  // of the good ones, also below the threshold
  for (const Neighbour& neighbour : neighbours) {
    if (bad && bad(neighbour.id)) continue;
    if (!best) best = &neighbour;
    if (static_cast<float>(neighbour.similarity) < least) break;
    decision.candidates.push_back(neighbour);
    if (decision.candidates.size() == kMostCandidates) break;
  }
  if (decision.candidates.empty())
    decision.skip_reason = best ? "its nearest healthy neighbour has a similarity of " + fixed3(best->similarity) +
                                      ", below " + fixed3(threshold)
                                : "there is no healthy sample of its kind in its category";
  return decision;
}

HealingDecision heal(const HealingPolicy& policy, const Neighbours& neighbours, uint64_t broken,
                     const std::function<bool(uint64_t)>& bad) {
  HealingDecision decision;
  try {
    if (!policy.replace) return decide_healing(policy, {}, {});
    if (!neighbours.covers(broken)) {
      decision.skip_reason = "its data set has no neighbours (mso data index --embed)";
      return decision;
    }
    const std::string category = neighbours.category(broken);
    std::vector<Neighbour> nearest =
        neighbours.nearest(broken, policy.threshold_of(category), kMostCandidates, bad);
    if (nearest.empty()) nearest = neighbours.nearest(broken, -1, 1, bad);  // to tell how near the nearest is
    return decide_healing(policy, category, nearest, bad);
  } catch (const Error& error) {
    decision.candidates.clear();
    decision.skip_reason = error.what();
    return decision;
  }
}

std::optional<std::string> cap_exceeded(const HealingPolicy& policy, const std::string& category, uint64_t lost,
                                        uint64_t size) {
  if (policy.cap >= 1) return std::nullopt;
  const uint64_t share = static_cast<uint64_t>(std::floor(policy.cap * static_cast<double>(size) + 1e-9));
  const uint64_t allowed = std::max(policy.cap_minimum, share);
  if (lost <= allowed) return std::nullopt;
  char percent[32];
  std::snprintf(percent, sizeof percent, "%.3g %%", policy.cap * 100);
  return std::to_string(lost) + " of " + std::to_string(size) + " samples of " + name_in_text(category) +
         " had to be replaced or skipped; at most " + std::to_string(allowed) +
         (share >= policy.cap_minimum ? " may be (mdp.healing.cap, " + std::string(percent) + ")"
                                      : " may be (mdp.healing.cap_minimum)");
}

uint64_t LossCounter::lost(const std::string& category) const {
  const auto at = lost_.find(category);
  return at == lost_.end() ? 0 : at->second.size();
}

std::optional<std::string> LossCounter::verdict(const HealingPolicy& policy,
                                                const std::map<std::string, uint64_t>& sizes) const {
  for (const auto& [category, ids] : lost_) {
    const auto size = sizes.find(category);
    if (auto text = cap_exceeded(policy, category, ids.size(), size == sizes.end() ? 0 : size->second)) return text;
  }
  return std::nullopt;
}

}  // namespace mso
