// How one range of memory is divided among kinds of samples: each has a share, and lends what it does not use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mso {

// One part's claim, for example {"image", 0.45, 0.12}.
struct MemoryShare {
  std::string name;
  double share = 0;                    // of the whole; all shares together are at most 1
  double fragmentation_tolerance = 0;  // above which its part is compacted
};

struct MemoryShareUse {
  std::string name;
  uint64_t share = 0;               // bytes
  uint64_t used = 0, borrowed = 0;  // borrowed: of `used`, what is beyond its own share
  uint64_t lent = 0;                // of its share, to others
  uint64_t peak = 0;                // of `used`
  uint64_t refused = 0;             // how often there was nothing left to borrow
};

// Bookkeeping alone; not thread-safe. What no share claims is lent like an unused share.
class ModalityShares {
 public:
  // Error (kBadUsage) for shares below 0 or above 1 together.
  ModalityShares(uint64_t capacity, const std::vector<MemoryShare>& shares);

  // Charges `bytes` to part `part`: its own share first, then borrowed from those with most to lend. False: not even all
  // together have so much; nothing changed.
  bool take(size_t part, uint64_t bytes);
  // Returns them: what is borrowed first, to the lenders that are shortest.
  void give(size_t part, uint64_t bytes);

  std::vector<MemoryShareUse> use() const;  // in the order of the shares
  uint64_t capacity() const { return capacity_; }

 private:
  struct Part {
    MemoryShareUse use;
    std::vector<uint64_t> loans;  // from each part, the last is what nobody claims
    uint64_t own() const { return use.used - use.borrowed; }
  };
  uint64_t room(size_t lender) const;

  uint64_t capacity_;
  std::vector<Part> parts_;  // and one more, of what nobody claims
};

}  // namespace mso
