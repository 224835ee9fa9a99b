#include "exec/healing_setup.h"

#include "base/error.h"
#include "base/log.h"

namespace mso {

std::vector<StandIn> Healing::stand_ins(uint64_t broken) const try {
  std::vector<StandIn> found;
  for (const Neighbour& neighbour : heal(policy_, *neighbours_, broken).candidates)
    found.push_back({neighbour.id, neighbour.similarity});
  return found;
} catch (const Error& error) {
  if (log_allowed("healing_damaged")) log_warn("{}", error.what());
  return {};
}

std::optional<std::string> Healing::verdict(const std::vector<LedgerEntry>& ledger, Losses* losses) const {
  for (; losses->counted < ledger.size(); ++losses->counted) {
    const LedgerEntry& entry = ledger[losses->counted];
    if (entry.event != LedgerEvent::kDeferred)
      losses->lost.add(entry.category.empty() ? neighbours_->category(entry.id) : entry.category, entry.id);
  }
  return losses->lost.verdict(policy_, neighbours_->category_sizes());
}

std::shared_ptr<const Healing> open_healing(const Config& config, const std::shared_ptr<const Dataset>& data, bool tell) {
  auto neighbours = Neighbours::open(data, CategoryRule(config.mdp.healing.category));
  bool any = false;
  for (uint64_t id = 0, shard = 0; shard < data->shard_count(); id += data->shard_index(static_cast<uint32_t>(shard++)).size())
    any |= id < data->size() && neighbours->covers(id);
  if (!any) {
    if (tell) log_info("broken samples are left out; to have them replaced by similar ones: mso data index --embed");
    return nullptr;
  }
  if (tell)
    for (const std::string& problem : neighbours->problems()) log_warn("{}", problem);
  return std::make_shared<const Healing>(healing_policy(config.mdp), std::move(neighbours));
}

}  // namespace mso
