#include "io/neighbours.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/error.h"

namespace mso {
namespace {

namespace fs = std::filesystem;

// One side file, and where its rows are in the data set.
struct SideFile {
  std::shared_ptr<const NeighbourFile> file;
  std::vector<uint64_t> starts;        // [shards + 1] first row of each shard of the file
  std::vector<int64_t> dataset_shard;  // of each shard of the file; -1: not in the data set
};

// Which source a shard of the data set has its rows in, and where they begin.
struct Place {
  int source = -1;
  uint64_t first_row = 0;
};

}  // namespace

std::vector<NeighbourShard> shards_of(const Dataset& dataset) {
  std::vector<NeighbourShard> shards;
  for (uint32_t k = 0; k < dataset.shard_count(); ++k) {
    const ShardIndex& index = dataset.shard_index(k);
    shards.push_back({dataset.shard_path(k).filename().string(), index.tar_size(), index.tar_fingerprint(),
                      index.size()});
  }
  return shards;
}

struct Neighbours::Impl {
  std::shared_ptr<const Dataset> dataset;
  CategoryRule rule;
  std::vector<SideFile> sources;
  std::vector<Place> places;    // [shards of the data set]
  std::vector<uint64_t> first;  // [shards of the data set] id of its first sample
  std::vector<std::string> problems;
  mutable std::once_flag counted;
  mutable std::map<std::string, uint64_t> sizes;

  std::optional<std::pair<const SideFile*, uint64_t>> row_of(uint64_t id) const {
    const SampleRef ref = dataset->locate(id);
    const Place& place = places[ref.shard];
    if (place.source < 0) return std::nullopt;
    return std::pair(&sources[static_cast<size_t>(place.source)], place.first_row + ref.index);
  }
  // Nothing: the row's shard is not in the data set.
  std::optional<uint64_t> id_of(const SideFile& source, uint64_t row) const {
    const size_t shard = static_cast<size_t>(std::upper_bound(source.starts.begin(), source.starts.end(), row) -
                                             source.starts.begin() - 1);
    if (source.dataset_shard[shard] < 0) return std::nullopt;
    return first[static_cast<size_t>(source.dataset_shard[shard])] + (row - source.starts[shard]);
  }
};

Neighbours::Neighbours(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Neighbours::~Neighbours() = default;

std::shared_ptr<const Neighbours> Neighbours::open(std::shared_ptr<const Dataset> dataset, const CategoryRule& rule) {
  auto impl = std::make_unique<Impl>();
  impl->dataset = std::move(dataset);
  impl->rule = rule;
  const std::vector<NeighbourShard> shards = shards_of(*impl->dataset);
  impl->places.resize(shards.size());
  uint64_t id = 0;
  std::map<fs::path, std::vector<uint32_t>> by_folder;
  for (uint32_t k = 0; k < shards.size(); ++k) {
    impl->first.push_back(id);
    id += shards[k].samples;
    by_folder[impl->dataset->shard_path(k).parent_path()].push_back(k);
  }
  for (const auto& [folder, members] : by_folder) {
    const fs::path path = folder / kNeighbourFile;
    const std::string hint = "make it with `mso data index --embed " + (folder.empty() ? "." : folder.string()) + "`";
    std::error_code ignored;
    if (!fs::exists(path, ignored)) {
      impl->problems.push_back(path.string() + " does not exist: " + hint);
      continue;
    }
    SideFile source;
    try {
      source.file = NeighbourFile::open(path);
    } catch (const Error& error) {
      impl->problems.push_back(error.what());
      continue;
    }
    const std::vector<NeighbourShard>& known = source.file->about().shards;
    std::map<std::string, size_t> by_name;
    source.starts.push_back(0);
    for (size_t s = 0; s < known.size(); ++s) {
      by_name[known[s].name] = s;
      source.starts.push_back(source.starts.back() + known[s].samples);
    }
    source.dataset_shard.assign(known.size(), -1);
    std::string stale;
    for (uint32_t k : members) {
      const auto at = by_name.find(shards[k].name);
      if (at == by_name.end() || known[at->second] != shards[k]) {
        if (stale.empty()) stale = shards[k].name;
        continue;
      }
      source.dataset_shard[at->second] = k;
      impl->places[k] = {static_cast<int>(impl->sources.size()), source.starts[at->second]};
    }
    // One changed shard makes all of its lists doubtful.
    if (!stale.empty()) {
      for (uint32_t k : members) impl->places[k] = {};
      impl->problems.push_back(path.string() + " was made for other shards (" + stale +
                               " has changed or is new): " + hint);
      continue;
    }
    if (source.file->about().category_rule != rule.text()) {
      for (uint32_t k : members) impl->places[k] = {};
      impl->problems.push_back(path.string() + " was made with other categories (" + source.file->about().category_rule +
                               " instead of " + rule.text() + "): " + hint + " --category " + rule.text());
      continue;
    }
    impl->sources.push_back(std::move(source));
  }
  return std::shared_ptr<const Neighbours>(new Neighbours(std::move(impl)));
}

const std::vector<std::string>& Neighbours::problems() const { return impl_->problems; }
bool Neighbours::covers(uint64_t id) const { return impl_->row_of(id).has_value(); }

std::string Neighbours::category(uint64_t id) const {
  const auto at = impl_->row_of(id);
  if (!at) return impl_->rule.of(*impl_->dataset, id);
  const NeighbourFile& file = *at->first->file;
  return file.about().categories[file.row(at->second).category];
}

const std::map<std::string, uint64_t>& Neighbours::category_sizes() const {
  std::call_once(impl_->counted, [this] {
    for (size_t shard = 0; shard < impl_->places.size(); ++shard) {
      const Place& place = impl_->places[shard];
      const uint64_t size = impl_->dataset->shard_index(static_cast<uint32_t>(shard)).size();
      if (place.source < 0) {
        for (uint64_t id = impl_->first[shard]; id < impl_->first[shard] + size; ++id) ++impl_->sizes[category(id)];
        continue;
      }
      const NeighbourFile& file = *impl_->sources[static_cast<size_t>(place.source)].file;
      std::vector<uint64_t> counts(file.about().categories.size(), 0);
      for (uint64_t row = place.first_row; row < place.first_row + size; ++row) ++counts[file.row(row).category];
      for (size_t c = 0; c < counts.size(); ++c)
        if (counts[c] > 0) impl_->sizes[file.about().categories[c]] += counts[c];
    }
  });
  return impl_->sizes;
}

std::vector<Neighbour> Neighbours::nearest(uint64_t id, double at_least, size_t most,
                                           const std::function<bool(uint64_t)>& bad) const {
  std::vector<Neighbour> found;
  const auto at = impl_->row_of(id);
  if (!at || most == 0) return found;
  const SideFile& source = *at->first;
  const NeighbourFile::Row row = source.file->row(at->second);
  const float least = static_cast<float>(at_least);
  auto usable = [&](uint64_t other) -> std::optional<uint64_t> {
    const auto there = impl_->id_of(source, other);
    if (!there || (bad && bad(*there))) return std::nullopt;
    return there;
  };
  for (size_t i = 0; i < row.neighbours.size(); ++i) {
    if (row.similarities[i] < least) return found;
    if (const auto there = usable(row.neighbours[i])) found.push_back({*there, row.similarities[i]});
    if (found.size() == most) return found;
  }
  // A list that is not full holds all there are.
  if (row.neighbours.size() < source.file->layout().kept) return found;
  std::vector<uint32_t> candidates;
  for (uint32_t other = 0; other < source.file->layout().rows; ++other) {
    const NeighbourFile::Row candidate = source.file->row(other);
    if (candidate.healthy && candidate.category == row.category && candidate.modality == row.modality && usable(other))
      candidates.push_back(other);
  }
  found.clear();
  for (const FoundNeighbour& f : scan_neighbours(source.file->checked_table(), static_cast<uint32_t>(at->second),
                                                 row.parts, candidates, most, at_least))
    found.push_back({*impl_->id_of(source, f.row), f.similarity});
  return found;
}

}  // namespace mso
