#include "io/batch_plan.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

namespace mso {

std::vector<std::vector<size_t>> deal_to_ranks(const std::vector<SampleCost>& costs, int ranks) {
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Pictures by falling picture work, then text; texts behind them. The index makes the order total.
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tuple(-costs[a].picture, -costs[a].text, a) < std::tuple(-costs[b].picture, -costs[b].text, b);
  });
  struct Load {
    int64_t picture = 0, total = 0;
  };
  std::vector<Load> loads(static_cast<size_t>(ranks));
  std::vector<std::vector<size_t>> dealt(static_cast<size_t>(ranks));
  auto give = [&](size_t sample, size_t rank) {
    dealt[rank].push_back(sample);
    loads[rank].picture += costs[sample].picture;
    loads[rank].total += costs[sample].total();
  };
  std::set<std::tuple<int64_t, int64_t, size_t>> by_picture;  // picture work, work, rank
  std::set<std::pair<int64_t, size_t>> by_total;              // work, rank
  for (size_t r = 0; r < loads.size(); ++r) by_picture.insert({0, 0, r});
  size_t k = 0;
  for (; k < order.size() && costs[order[k]].picture > 0; ++k) {
    const size_t rank = std::get<2>(*by_picture.begin());
    by_picture.erase(by_picture.begin());
    give(order[k], rank);
    by_picture.insert({loads[rank].picture, loads[rank].total, rank});
  }
  for (size_t r = 0; r < loads.size(); ++r) by_total.insert({loads[r].total, r});
  for (; k < order.size(); ++k) {
    const size_t rank = by_total.begin()->second;
    by_total.erase(by_total.begin());
    give(order[k], rank);
    by_total.insert({loads[rank].total, rank});
  }
  for (auto& samples : dealt) std::sort(samples.begin(), samples.end());
  return dealt;
}

std::vector<std::vector<size_t>> pack_micro_batches(const std::vector<int64_t>& lengths, int64_t limit) {
  std::vector<size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return std::pair(-lengths[a], a) < std::pair(-lengths[b], b); });
  std::vector<std::vector<size_t>> packs;
  std::vector<int64_t> room;
  for (size_t sample : order) {
    size_t pack = 0;
    while (pack < packs.size() && room[pack] < lengths[sample]) ++pack;
    if (pack == packs.size()) {
      packs.emplace_back();
      room.push_back(limit);
    }
    packs[pack].push_back(sample);
    room[pack] -= lengths[sample];
  }
  for (auto& pack : packs) std::sort(pack.begin(), pack.end());
  return packs;
}

}  // namespace mso
