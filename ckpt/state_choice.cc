#include "ckpt/state_choice.h"

#include <map>
#include <tuple>

namespace mso {

const char* name_of(ShardSource source) {
  switch (source) {
    case ShardSource::kOwn:
      return "local";
    case ShardSource::kPartner:
      return "partner";
    case ShardSource::kShared:
      return "shared";
  }
  return "?";
}

const char* name_of(SnapshotLevel level) {
  switch (level) {
    case SnapshotLevel::kL0:
      return "L0";
    case SnapshotLevel::kL1:
      return "L1";
    case SnapshotLevel::kL2:
      return "L2";
  }
  return "?";
}

namespace {

// Which of two copies of a shard is read: own before partner's, the writer's number where it holds it, low
// ranks first.
bool better_copy(const ShardFile& a, const ShardFile& b) {
  auto key = [](const ShardFile& f) { return std::tuple(f.source, f.holder != f.writer, f.holder, f.path); };
  return key(a) < key(b);
}

}  // namespace

std::vector<ShardFile> StateChoice::files() const {
  std::vector<ShardFile> all = shards;
  for (const auto& delta : deltas) all.insert(all.end(), delta.begin(), delta.end());
  return all;
}

std::vector<StateChoice> whole_states(const std::vector<ShardFile>& files) {
  // Best first: exact, then newest step, newest attempt, cheapest level, fewest deltas. `writers` tells states of
  // different world sizes of one attempt apart, should there ever be such.
  using Key = std::tuple<bool, uint64_t, int64_t, int, int, int>;
  std::map<Key, std::map<int, const ShardFile*>, std::greater<>> parts;
  for (const ShardFile& file : files) {
    if (!file.valid || file.writers < 1 || file.writer < 0 || file.writer >= file.writers) continue;
    const ShardFile*& best = parts[Key(file.exact, file.step, file.attempt, -static_cast<int>(file.level),
                                       -file.delta, file.writers)][file.writer];
    if (!best || better_copy(file, *best)) best = &file;
  }
  // The shards of one full state or delta, empty where one is missing.
  auto shards_of = [&](const Key& key) {
    std::vector<ShardFile> shards;
    auto it = parts.find(key);
    if (it != parts.end() && static_cast<int>(it->second.size()) == std::get<5>(key))
      for (const auto& [writer, file] : it->second) shards.push_back(*file);
    return shards;
  };
  std::vector<StateChoice> whole;
  for (const auto& [key, found] : parts) {
    const auto& [exact, step, attempt, level, minus_delta, writers] = key;
    const uint64_t deltas = static_cast<uint64_t>(-minus_delta);
    if (deltas > step) continue;
    StateChoice choice{found.begin()->second->level, step, attempt, exact, {}, {}};
    choice.shards = shards_of(Key(exact, step - deltas, attempt, level, 0, writers));
    bool reached = !choice.shards.empty();
    for (uint64_t k = 1; k <= deltas && reached; ++k) {
      choice.deltas.push_back(
          shards_of(Key(exact, step - deltas + k, attempt, level, -static_cast<int>(k), writers)));
      reached = !choice.deltas.back().empty();
    }
    if (reached) whole.push_back(std::move(choice));
  }
  return whole;
}

std::optional<StateChoice> choose_state(const std::vector<ShardFile>& files) {
  std::vector<StateChoice> whole = whole_states(files);
  if (whole.empty()) return std::nullopt;
  return std::move(whole.front());
}

}  // namespace mso
