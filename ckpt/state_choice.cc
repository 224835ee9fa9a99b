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

std::optional<StateChoice> choose_state(const std::vector<ShardFile>& files) {
  // Best first: exact, then newest step, newest attempt, cheapest level. `writers` tells states of different
  // world sizes of one attempt apart, should there ever be such.
  using Key = std::tuple<bool, uint64_t, int64_t, int, int>;
  auto key_of = [](const ShardFile& f) {
    return Key(f.exact, f.step, f.attempt, -static_cast<int>(f.level), f.writers);
  };
  std::map<Key, std::map<int, const ShardFile*>, std::greater<>> states;
  for (const ShardFile& file : files) {
    if (!file.valid || file.writers < 1 || file.writer < 0 || file.writer >= file.writers) continue;
    const ShardFile*& best = states[key_of(file)][file.writer];
    if (!best || better_copy(file, *best)) best = &file;
  }
  for (const auto& [key, shards] : states) {
    const ShardFile& any = *shards.begin()->second;
    if (static_cast<int>(shards.size()) != any.writers) continue;
    StateChoice choice{any.level, any.step, any.attempt, any.exact, {}};
    for (const auto& [writer, file] : shards) choice.shards.push_back(*file);
    return choice;
  }
  return std::nullopt;
}

}  // namespace mso
