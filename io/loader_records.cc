// What the loader writes down: entries of the ledger, and its place as a record of a snapshot.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "io/loader_state.h"

namespace mso {

std::vector<LedgerEntry> DataLoader::ledger_entries(const SettledStep& step, const std::vector<BadSample>& bad) const {
  const Dataset& data = impl_->assembler->dataset();
  auto shard_of = [&](uint64_t id) { return data.shard_path(data.locate(id).shard).filename().string(); };
  std::vector<LedgerEntry> entries;
  auto entry_of = [&](uint64_t position, uint64_t id, uint64_t epoch) {
    LedgerEntry entry;
    entry.step = step.batch.step;
    entry.position = position;
    entry.id = id;
    entry.epoch = epoch;
    entry.key = data.sample(id).key;
    entry.shard = shard_of(id);
    return entry;
  };
  for (const SettledStep::Deferred& deferred : step.deferred) {
    LedgerEntry entry = entry_of(deferred.item.position, deferred.item.id, deferred.item.epoch);
    entry.event = LedgerEvent::kDeferred;
    entry.reason = "late";
    entry.detail = std::string("a ") + name_of(deferred.item.modality) + " that was not decoded in time";
    entry.stand_in = deferred.stand_in;
    entries.push_back(std::move(entry));
  }
  for (size_t i = 0; i < step.fates.size(); ++i) {
    if (step.fates[i] == 0) continue;
    LedgerEntry entry = entry_of(step.batch.positions[i], step.batch.ids[i], step.batch.epochs[i]);
    entry.reason = reason_name(reason_of_fate(step.fates[i]));
    for (const BadSample& sample : bad)
      if (sample.index == i) entry.detail = sample.detail;
    if (replacement_of_fate(step.fates[i]) > 0) {
      entry.event = LedgerEvent::kReplaced;
      entry.by_id = step.stand_ins[i].id;
      entry.by_key = data.sample(entry.by_id).key;
      entry.by_shard = shard_of(entry.by_id);
      entry.similarity = step.stand_ins[i].similarity;
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

nlohmann::ordered_json DataLoader::Impl::cursor() const {
  nlohmann::ordered_json json{{"step", state.step},
                              {"position", state.step * options.batch_samples},
                              {"samples", order.size()},
                              {"batch_samples", options.batch_samples},
                              {"seed", options.seed},
                              {"data", hex64(assembler->dataset().fingerprint())}};
  if (has_recipe()) json["recipe"] = std::vector<uint64_t>(options.recipe.begin(), options.recipe.end());
  for (const MixturePart& part : options.mixture) json["mixture"].push_back({part.first, part.size, part.weight});
  if (const auto& chat = assembler->options().conversations; chat && assembler->dataset().has_conversations())
    json["chat_template"] = hex64(hash64(chat->chat_template().source()));
  if (!state.deferred.empty()) json["deferred"] = state.deferred;
  if (!state.ahead.empty()) json["ahead"] = state.ahead;
  return json;
}

std::string DataLoader::cursor() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->cursor().dump();
}

OrderState DataLoader::order_of_cursor(const std::string& cursor) {
  try {
    const auto json = nlohmann::json::parse(cursor);
    OrderState state;
    json.at("step").get_to(state.step);
    if (json.contains("deferred")) json.at("deferred").get_to(state.deferred);
    if (json.contains("ahead")) json.at("ahead").get_to(state.ahead);
    return state;
  } catch (const nlohmann::json::exception& error) {
    throw Error("damaged loader cursor", error.what(), "", ExitCode::kBadData);
  }
}

uint64_t DataLoader::step_of_cursor(const std::string& cursor) { return order_of_cursor(cursor).step; }

std::vector<std::string> DataLoader::differences(const std::string& cursor) const {
  (void)step_of_cursor(cursor);
  const auto then = nlohmann::json::parse(cursor), now = nlohmann::json::parse(this->cursor());
  std::vector<std::string> found;
  const std::pair<const char*, const char*> fields[] = {{"samples", "number of samples"},
                                                        {"batch_samples", "train.global_batch_samples"},
                                                        {"seed", "train.seed"},
                                                        {"data", "content of the shards"},
                                                        {"recipe", "mdp.batch_recipe"},
                                                        {"mixture", "data.mixture"},
                                                        {"chat_template", "the text of data.chat_template"}};
  for (auto [field, words] : fields) {
    const auto was = then.value(field, nlohmann::json()), is = now.value(field, nlohmann::json());
    if (was != is) found.push_back(std::string(words) + ": was " + was.dump() + ", is " + is.dump());
  }
  return found;
}

}  // namespace mso
