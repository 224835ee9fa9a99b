// The neighbours of a data set's samples, by the side files of its folders: what a broken sample may be replaced by.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/category.h"
#include "io/dataset.h"
#include "io/neighbour_file.h"

namespace mso {

struct Neighbour {
  uint64_t id = 0;  // in the data set
  double similarity = 0;
  bool operator==(const Neighbour&) const = default;
};

// The facts by which shards and side file are matched.
std::vector<NeighbourShard> shards_of(const Dataset& dataset);

// Immutable; methods may be called from several threads. A data set may hold fewer shards than the files know (a
// held-out part, single shards): nothing outside it is ever given.
class Neighbours {
 public:
  // Looks for neighbours.mso beside each shard. Files that are missing, damaged or made for other shards leave their
  // samples without neighbours; problems() says so. `rule`: categories where no file has them.
  static std::shared_ptr<const Neighbours> open(std::shared_ptr<const Dataset> dataset, const CategoryRule& rule = CategoryRule());
  ~Neighbours();

  // One sentence per folder that has no usable file, with what to do; empty: all samples have theirs.
  const std::vector<std::string>& problems() const;
  bool covers(uint64_t id) const;

  std::string category(uint64_t id) const;
  // Samples of this data set in each category, counted at the first call.
  const std::map<std::string, uint64_t>& category_sizes() const;

  // The `most` nearest samples at or above `at_least`, best first, of the same category and kind, without those for which
  // `bad` holds. A look-up where the stored list suffices; else (most of it bad, or outside the data set) an exact scan
  // of the category in the stored embeddings. Error (kBadData) where the file is damaged there.
  std::vector<Neighbour> nearest(uint64_t id, double at_least, size_t most,
                                 const std::function<bool(uint64_t)>& bad = {}) const;

 private:
  struct Impl;
  explicit Neighbours(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace mso
