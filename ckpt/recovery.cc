#include "ckpt/recovery.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "ckpt/gather.h"
#include "ckpt/level0_store.h"
#include "ckpt/shard_file.h"
#include "ckpt/shared_store.h"

namespace mso {

namespace {

nlohmann::json to_json(const ShardFile& f) {
  return {static_cast<int>(f.level),  f.step, f.attempt, f.writers, f.writer,  f.exact, f.holder,
          static_cast<int>(f.source), f.path, f.size,    f.valid,   f.problem, f.time,  f.delta};
}

ShardFile from_json(const nlohmann::json& j) {
  ShardFile f;
  f.level = static_cast<SnapshotLevel>(j.at(0).get<int>());
  f.step = j.at(1), f.attempt = j.at(2), f.writers = j.at(3), f.writer = j.at(4), f.exact = j.at(5),
  f.holder = j.at(6);
  f.source = static_cast<ShardSource>(j.at(7).get<int>());
  f.path = j.at(8), f.size = j.at(9), f.valid = j.at(10), f.problem = j.at(11), f.time = j.at(12), f.delta = j.at(13);
  return f;
}

ShardFile describe(const ShardHeader& header, const std::string& path) {
  ShardFile f;
  f.level = header.level;
  f.step = header.step;
  f.attempt = header.attempt;
  f.writers = header.writers;
  f.writer = header.writer;
  f.exact = header.exact;
  f.delta = header.delta;
  f.path = path;
  f.size = header.size;
  f.time = header.time;
  return f;
}

// All generations of the run on this node's RAM disk that are this rank's to look at: its own directory's,
// and its share of those of ranks that are elsewhere now.
void list_level0(const CheckpointSettings& settings, int rank, const std::vector<std::string>& nodes,
                 FoundFiles& lists) {
  std::vector<int> local;
  for (int r = 0; r < static_cast<int>(nodes.size()); ++r)
    if (nodes[r] == settings.node) local.push_back(r);
  Level0Store store(settings.level0_path, settings.run_id, settings.attempt, rank);
  std::vector<std::string> unknown;
  for (const Level0Store::Found& found : store.list(&unknown)) {
    const bool at_home = std::find(local.begin(), local.end(), found.rank) != local.end();
    if ((at_home ? found.rank : local[found.rank % local.size()]) != rank) continue;
    ShardFile file;
    try {
      ShardHeader header = read_header(found.path);
      file = describe(header, found.path);
      if (header.run_id != settings.run_id || header.level != SnapshotLevel::kL0 ||
          header.step != found.name.step || header.attempt != found.name.attempt ||
          header.delta != found.name.delta)
        throw Error("snapshot of another state", found.path, "the file was renamed or copied");
    } catch (const Error& e) {
      file.step = found.name.step;
      file.attempt = found.name.attempt;
      file.delta = found.name.delta;
      file.path = found.path;
      file.valid = false;
      file.problem = e.what();
    }
    file.holder = rank;
    file.source = found.kind == Level0Store::Kind::kOwn ? ShardSource::kOwn : ShardSource::kPartner;
    lists.files.push_back(std::move(file));
  }
  if (rank == local.front()) lists.unknown = unknown;
}

// This rank's share of the states of a level on shared storage.
void list_shared(const CheckpointSettings& settings, SnapshotLevel level, int rank, int ranks,
                 FoundFiles& lists) {
  LevelListing listing = list_level(settings.run_dir, level, rank, ranks);
  if (rank == 0) lists.unknown.insert(lists.unknown.end(), listing.unknown.begin(), listing.unknown.end());
  for (const StateFolder& state : listing.states) {
    if (!state.manifest && state.problem.empty()) continue;  // another rank's share
    auto bad = [&](const std::string& path, const std::string& problem) {
      ShardFile file;
      file.level = level;
      file.step = state.step;
      file.path = path;
      file.valid = false;
      file.problem = problem;
      return file;
    };
    if (!state.manifest) {
      lists.files.push_back(bad(state.path.string(), state.problem));
      continue;
    }
    if (!settings.owns(state.manifest->run_id)) {
      lists.unknown.push_back(state.path.string());
      continue;
    }
    for (size_t writer = 0; writer < state.manifest->files.size(); ++writer) {
      const std::string path = (state.path / state.manifest->files[writer].name).string();
      try {
        lists.files.push_back(describe(check_against_manifest(state, static_cast<int>(writer)), path));
      } catch (const Error& e) {
        lists.files.push_back(bad(path, e.what()));
      }
    }
  }
}

// Every byte of the choice is checked by those who can read it. Marks files invalid in `files` and returns
// false where one is damaged; else fills the records.
bool verify_choice(const CheckpointSettings& settings, Communicator& group, const StateChoice& choice,
                   std::vector<ShardFile>& files, FoundState& found) {
  nlohmann::json mine = {{"bad", nlohmann::json::array()}, {"records", nlohmann::json::object()}};
  for (const ShardFile& shard : choice.files()) {
    if ((shard.holder >= 0 ? shard.holder : shard.writer % group.size()) != group.rank()) continue;
    try {
      ShardHeader header = verify_shard(shard.path);
      if (header.step != shard.step || header.attempt != shard.attempt || header.writer != shard.writer ||
          header.writers != shard.writers || header.delta != shard.delta)
        throw Error("snapshot changed while it was read", shard.path);
      if (shard.writer == 0) {
        const std::map<std::string, std::string> records = read_contents(shard.path).records;
        if (shard.delta > 0 &&
            (!records.contains("update") || decode_update(records.at("update")).step != shard.step))
          throw Error("no record of the step's update", shard.path);
        mine["records"][std::to_string(shard.delta)] = records;
      }
    } catch (const std::exception& e) {
      mine["bad"].push_back({shard.path, shard.holder, std::string(e.what())});
    }
  }
  bool good = true;
  found.records.clear();
  found.updates.clear();
  std::map<int, std::map<std::string, std::string>> records;  // by delta
  for (const nlohmann::json& theirs : all_gather_json(group, mine, settings.timeout_s)) {
    for (const nlohmann::json& bad : theirs.at("bad")) {
      good = false;
      for (ShardFile& file : files)
        if (file.path == bad.at(0).get<std::string>() && file.holder == bad.at(1).get<int>()) {
          file.valid = false;
          file.problem = bad.at(2);
        }
    }
    for (const auto& [delta, named] : theirs.at("records").items())
      records[std::stoi(delta)] = named.get<std::map<std::string, std::string>>();
  }
  if (!good) return false;
  for (const auto& [delta, named] : records) {
    for (const auto& [name, record] : named) found.records[name] = record;
    if (delta > 0) found.updates.push_back(decode_update(named.at("update")));
  }
  found.records.erase("update");
  return true;
}

void warn_of_damaged(const std::vector<ShardFile>& files, std::set<std::string>& named) {
  for (const ShardFile& file : files)
    if (!file.valid && named.insert(file.path).second)
      log_warn("{} snapshot of step {} is not usable: {}", name_of(file.level), file.step, file.problem);
}

// Newer states than the chosen one that are not whole: for the log.
void tell_of_incomplete(const std::vector<ShardFile>& files, const StateChoice* choice) {
  std::map<std::tuple<uint64_t, int64_t, SnapshotLevel, int>, std::set<int>> states;
  for (const ShardFile& f : files)
    if (f.valid) states[{f.step, f.attempt, f.level, f.writers}].insert(f.writer);
  for (const auto& [key, have] : states) {
    const auto& [step, attempt, level, writers] = key;
    if ((choice && step <= choice->step) || static_cast<int>(have.size()) == writers) continue;
    log_info("{} snapshot of step {} is not whole ({} of {} parts): not used", name_of(level), step,
             have.size(), writers);
  }
  // Deltas with all their parts, of a full state or after a step that has not: the newest of them.
  uint64_t step = choice ? choice->step : 0;
  const ShardFile* stranded = nullptr;
  for (const ShardFile& f : files)
    if (f.valid && f.delta > 0 && f.step > step &&
        static_cast<int>(states[{f.step, f.attempt, f.level, f.writers}].size()) == f.writers)
      stranded = &f, step = f.step;
  if (stranded)
    log_info("L0 delta of step {} cannot be reached: the full state of step {} or a step between is not whole",
             stranded->step, stranded->step - static_cast<uint64_t>(stranded->delta));
}

}  // namespace

FoundFiles list_snapshot_files(const CheckpointSettings& settings, Communicator& group) {
  const std::vector<std::string> nodes = all_gather_text(group, settings.node, settings.timeout_s);
  FoundFiles mine;
  auto guarded = [&](auto list) {
    try {
      list();
    } catch (const Error& e) {
      log_warn("cannot look for snapshots: {}", e.what());
    }
  };
  guarded([&] { list_level0(settings, group.rank(), nodes, mine); });
  for (SnapshotLevel level : {SnapshotLevel::kL1, SnapshotLevel::kL2})
    guarded([&] { list_shared(settings, level, group.rank(), group.size(), mine); });
  nlohmann::json json = {{"files", nlohmann::json::array()}, {"unknown", mine.unknown}};
  for (const ShardFile& file : mine.files) json["files"].push_back(to_json(file));
  FoundFiles all;
  for (const nlohmann::json& theirs : all_gather_json(group, json, settings.timeout_s)) {
    for (const nlohmann::json& file : theirs.at("files")) all.files.push_back(from_json(file));
    for (const nlohmann::json& path : theirs.at("unknown")) all.unknown.push_back(path);
  }
  return all;
}

std::optional<FoundState> find_state(const CheckpointSettings& settings, Communicator& group) {
  const auto begin = Clock::now();
  const bool speaker = group.rank() == 0;
  FoundFiles all = list_snapshot_files(settings, group);
  std::set<std::string> named;
  if (speaker)
    for (const std::string& path : all.unknown)
      if (named.insert(path).second)
        log_warn("{} is not a snapshot of this run: left alone and not read", path);
  // Whether the first whole state was ever reached is rank 0's to say: views of shared storage may differ for
  // a moment.
  bool was_written = false;
  {
    const bool mine = speaker && SharedStore::was_written(settings.run_dir);
    was_written = all_gather_text(group, mine ? "1" : "", settings.timeout_s).front() == "1";
  }
  for (;;) {
    std::optional<StateChoice> choice = choose_state(all.files);
    FoundState found;
    const bool good = choice && verify_choice(settings, group, *choice, all.files, found);
    if (speaker) warn_of_damaged(all.files, named);
    if (choice && !good) continue;  // each round at least one file is found to be damaged
    if (speaker) tell_of_incomplete(all.files, choice ? &*choice : nullptr);
    if (choice) {
      found.choice = std::move(*choice);
      found.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      return found;
    }
    const bool damaged =
        std::any_of(all.files.begin(), all.files.end(), [](const ShardFile& f) { return !f.valid; });
    if (was_written || damaged)
      throw Error("no valid snapshot is left to resume from",
                  settings.run_dir.string() + " (" + std::to_string(all.files.size()) +
                      " snapshot files found, none of a "
                      "whole and valid state)",
                  "restore snapshots, or start anew with --fresh", ExitCode::kNoValidState);
    // Files without the mark, all sound: killed before the first snapshot was whole.
    return std::nullopt;
  }
}

}  // namespace mso
