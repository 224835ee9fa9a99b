#include "memory/modality_shares.h"

#include <algorithm>

#include "base/error.h"

namespace mso {

ModalityShares::ModalityShares(uint64_t capacity, const std::vector<MemoryShare>& shares) : capacity_(capacity) {
  double sum = 0;
  uint64_t claimed = 0;
  for (const MemoryShare& share : shares) {
    if (!(share.share >= 0) || !(share.fragmentation_tolerance >= 0))
      throw Error("a share of memory is below 0", share.name, "", ExitCode::kBadUsage);
    sum += share.share;
    // Rounding must not claim more than there is.
    const uint64_t bytes =
        std::min(static_cast<uint64_t>(share.share * static_cast<double>(capacity)), capacity - claimed);
    claimed += bytes;
    Part part;
    part.use.name = share.name;
    part.use.share = bytes;
    part.loans.resize(shares.size() + 1);
    parts_.push_back(std::move(part));
  }
  if (sum > 1 + 1e-9)
    throw Error("shares of memory are more than the whole", std::to_string(sum), "they may be 1 together",
                ExitCode::kBadUsage);
  Part rest;
  rest.use.share = capacity - claimed;
  parts_.push_back(std::move(rest));
}

uint64_t ModalityShares::room(size_t lender) const {
  const Part& part = parts_[lender];
  return part.use.share - part.own() - part.use.lent;
}

bool ModalityShares::take(size_t part, uint64_t bytes) {
  uint64_t all = 0;
  for (size_t i = 0; i < parts_.size(); ++i) all += room(i);
  Part& taker = parts_.at(part);
  if (bytes > all) {
    ++taker.use.refused;
    return false;
  }
  uint64_t left = bytes - std::min(bytes, room(part));
  taker.use.used += bytes - left;
  while (left > 0) {
    size_t lender = parts_.size();
    for (size_t i = 0; i < parts_.size(); ++i)
      if (i != part && (lender == parts_.size() || room(i) > room(lender))) lender = i;
    const uint64_t lent = std::min(left, room(lender));
    parts_[lender].use.lent += lent;
    taker.loans[lender] += lent;
    taker.use.borrowed += lent;
    taker.use.used += lent;
    left -= lent;
  }
  taker.use.peak = std::max(taker.use.peak, taker.use.used);
  return true;
}

void ModalityShares::give(size_t part, uint64_t bytes) {
  Part& giver = parts_.at(part);
  if (bytes > giver.use.used)
    throw Error("more memory is returned than was taken", giver.use.name, "a bug in the batch memory");
  giver.use.used -= bytes;
  uint64_t back = std::min(bytes, giver.use.borrowed);
  giver.use.borrowed -= back;
  while (back > 0) {
    size_t lender = parts_.size();
    for (size_t i = 0; i < parts_.size(); ++i)
      if (giver.loans[i] > 0 && (lender == parts_.size() || room(i) < room(lender))) lender = i;
    const uint64_t returned = std::min(back, giver.loans[lender]);
    giver.loans[lender] -= returned;
    parts_[lender].use.lent -= returned;
    back -= returned;
  }
}

std::vector<MemoryShareUse> ModalityShares::use() const {
  std::vector<MemoryShareUse> list;
  for (size_t i = 0; i + 1 < parts_.size(); ++i) list.push_back(parts_[i].use);
  return list;
}

}  // namespace mso
