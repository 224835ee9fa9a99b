// What training asks of self-healing (io/healing.h): stand-ins for broken samples, categories for the ledger, and whether too
// much of a category is lost.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "io/data_loader.h"
#include "io/healing.h"

namespace mso {

// Immutable; methods may be called from several threads.
class Healing {
 public:
  Healing(HealingPolicy policy, std::shared_ptr<const Neighbours> neighbours)
      : policy_(std::move(policy)), neighbours_(std::move(neighbours)) {}

  // At most three, best first; none where a damaged side file does not say.
  std::vector<StandIn> stand_ins(uint64_t broken) const;
  std::string category(uint64_t id) const { return neighbours_->category(id); }
  // What a ledger that only grows has lost.
  struct Losses {
    LossCounter lost;
    size_t counted = 0;  // entries
  };
  // Why training must stop after these entries, all of the run so far, or nothing. Only those that are new to `losses` are
  // looked at.
  std::optional<std::string> verdict(const std::vector<LedgerEntry>& ledger, Losses* losses) const;

 private:
  HealingPolicy policy_;
  std::shared_ptr<const Neighbours> neighbours_;
};

// Null where no part of the data set has stored neighbours (mso data index --embed): broken samples are then left out, and
// data.max_bad_samples_ratio alone bounds them. `tell`: problems go to the log.
std::shared_ptr<const Healing> open_healing(const Config& config, const std::shared_ptr<const Dataset>& data, bool tell);

}  // namespace mso
