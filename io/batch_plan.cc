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

std::vector<std::vector<size_t>> pack_micro_batches(const std::vector<PackedSample>& samples, const MicroBatchLimits& limits) {
  std::vector<size_t> order(samples.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return std::pair(-samples[a].positions, a) < std::pair(-samples[b].positions, b); });
  struct Pack {
    std::vector<size_t> samples;
    int64_t room = 0;
    PerModality<uint64_t> of;
  };
  std::vector<Pack> packs;
  auto takes = [&](const Pack& pack, const PackedSample& sample) {
    const uint64_t most = limits.samples[sample.modality];
    return pack.room >= sample.positions && (most == 0 || pack.of[sample.modality] < most);
  };
  for (size_t i : order) {
    size_t pack = 0;
    while (pack < packs.size() && !takes(packs[pack], samples[i])) ++pack;
    if (pack == packs.size()) packs.push_back({{}, limits.positions, {}});
    packs[pack].samples.push_back(i);
    packs[pack].room -= samples[i].positions;
    ++packs[pack].of[samples[i].modality];
  }
  std::vector<std::vector<size_t>> result;
  for (Pack& pack : packs) {
    std::sort(pack.samples.begin(), pack.samples.end());
    result.push_back(std::move(pack.samples));
  }
  return result;
}

}  // namespace mso
