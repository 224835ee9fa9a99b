// Self-healing, the deciding part: by what a broken sample is replaced, when it is skipped, and when so much of a
// category is lost that training must stop. Pure functions on plain data.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "io/neighbours.h"

namespace mso {

struct MdpConfig;

inline constexpr size_t kMostCandidates = 3;

struct HealingPolicy {
  bool replace = true;                       // mdp.healing.replace; false: always skip
  double threshold = 0.92;                   // mdp.skip_sample_threshold, cosine similarity
  std::map<std::string, double> thresholds;  // mdp.healing.thresholds, by category
  // mdp.healing.cap: share of a category that may be lost, that is replaced or skipped.
  double cap = 0.01;
  // mdp.healing.cap_minimum: so many lost samples are no trend yet, however small the category is.
  uint64_t cap_minimum = 3;

  double threshold_of(const std::string& category) const;
};

HealingPolicy healing_policy(const MdpConfig& config);

// What to do with a broken sample.
struct HealingDecision {
  std::vector<Neighbour> candidates;  // to be tried in this order, at most three; the first that decodes replaces it
  std::string skip_reason;            // why there is none, in words; empty: there is
};

// Chooses among `neighbours` (best first). `bad`: samples known to be broken (in the ledger, in the list of data.known_bad);
// may be empty. Nothing else goes into the decision, so it is the same on every rank and after a resume.
HealingDecision decide_healing(const HealingPolicy& policy, const std::string& category,
                               std::span<const Neighbour> neighbours, const std::function<bool(uint64_t)>& bad = {});

// Looks the neighbours of a broken sample up and decides. A sample without stored neighbours, or whose part of the file is
// damaged, is skipped and the reason says so.
HealingDecision heal(const HealingPolicy& policy, const Neighbours& neighbours, uint64_t broken,
                     const std::function<bool(uint64_t)>& bad = {});

// A sentence that says why training must stop, or nothing: `lost` distinct samples of `size` in the category were
// replaced or skipped, more than max(cap_minimum, floor(cap * size)). Replaced ones count, too: each makes the category
// poorer and its neighbour heavier. cap 1 switches it off.
std::optional<std::string> cap_exceeded(const HealingPolicy& policy, const std::string& category, uint64_t lost,
                                        uint64_t size);

// Counts lost samples by category. Feed it the ledger's entries again after a resume: a sample counts once.
class LossCounter {
 public:
  // True where the sample was not counted before.
  bool add(const std::string& category, uint64_t id) { return lost_[category].insert(id).second; }
  uint64_t lost(const std::string& category) const;
  const std::map<std::string, std::set<uint64_t>>& all() const { return lost_; }
  // cap_exceeded() of the first category, by name, that is over its cap.
  std::optional<std::string> verdict(const HealingPolicy& policy, const std::map<std::string, uint64_t>& sizes) const;

 private:
  std::map<std::string, std::set<uint64_t>> lost_;
};

}  // namespace mso
