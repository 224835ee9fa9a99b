// load_state() of recovery.h: tensors' pieces from the files of any number of writers into the shards of any
// number of ranks.
#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "ckpt/copy_plan.h"
#include "ckpt/gather.h"
#include "ckpt/recovery.h"
#include "ckpt/shard_file.h"

namespace mso {

namespace {

constexpr size_t kBroadcastBytes = 64 << 20;

nlohmann::json table_to_json(const BufferInfo& buffer) {
  nlohmann::json slices = nlohmann::json::array();
  for (const TensorSlice& s : buffer.slices) slices.push_back({s.name, s.shape, s.begin, s.end, s.offset});
  return {buffer.name, static_cast<int>(buffer.dtype), buffer.count, buffer.offset, slices};
}

BufferInfo table_from_json(const nlohmann::json& j) {
  BufferInfo buffer{j.at(0), static_cast<DType>(j.at(1).get<int>()), j.at(2), j.at(3), {}};
  for (const nlohmann::json& s : j.at(4))
    buffer.slices.push_back({s.at(0), s.at(1), s.at(2), s.at(3), s.at(4)});
  return buffer;
}

// Which rank of the group speaks for a shard: who holds it, or any by turns on shared storage.
int speaker_of(const ShardFile& shard, int ranks) {
  return shard.holder >= 0 ? shard.holder : shard.writer % ranks;
}

// All ranks throw where one has an error, the lowest rank's.
void agree(Communicator& group, const std::string& error, double timeout_s) {
  const std::vector<std::string> errors = all_gather_text(group, error, timeout_s);
  for (size_t r = 0; r < errors.size(); ++r)
    if (!errors[r].empty())
      throw Error("cannot load the snapshot", "rank " + std::to_string(r) + ": " + errors[r],
                  "the snapshot belongs to another model, or use --fresh to start anew");
}

// The tables of all shards, known to all ranks.
std::vector<std::vector<BufferInfo>> gather_tables(const CheckpointSettings& settings, Communicator& group,
                                                   const std::vector<ShardFile>& files) {
  nlohmann::json mine = {{"error", ""}, {"shards", nlohmann::json::array()}};
  for (const ShardFile& shard : files) {
    if (speaker_of(shard, group.size()) != group.rank()) continue;
    try {
      nlohmann::json tables = nlohmann::json::array();
      for (const BufferInfo& buffer : read_contents(shard.path).buffers)
        tables.push_back(table_to_json(buffer));
      mine["shards"].push_back({shard.writer, tables});
    } catch (const std::exception& e) {
      mine["error"] = e.what();
    }
  }
  std::vector<std::vector<BufferInfo>> shards(files.size());
  for (const nlohmann::json& theirs : all_gather_json(group, mine, settings.timeout_s)) {
    if (std::string error = theirs.at("error"); !error.empty()) throw Error("cannot read a snapshot", error);
    for (const nlohmann::json& shard : theirs.at("shards"))
      for (const nlohmann::json& buffer : shard.at(1))
        shards.at(shard.at(0).get<size_t>()).push_back(table_from_json(buffer));
  }
  return shards;
}

// Reads the runs of one file that this rank needs.
void read_runs(const std::string& path, const std::vector<CopyRun>& runs,
               const std::vector<BufferInfo>& buffers, std::vector<TargetBuffer>& targets) {
  FileDescriptor file = open_file(path, O_RDONLY | O_NOFOLLOW);
  for (const CopyRun& run : runs) {
    const BufferInfo& buffer = buffers[run.source_buffer];
    const size_t unit = size_of(buffer.dtype);
    pread_all(file.get(), static_cast<char*>(targets[run.target].data) + run.target_offset * unit,
              run.count * unit, buffer.offset + run.source_offset * unit, path);
  }
}

// The holder sends a buffer to all, piece by piece; each copies what it needs. Returns the holder's read
// error, if any (it goes on sending, so that nobody waits for it).
std::string broadcast_buffer(const CheckpointSettings& settings, Communicator& group, const ShardFile& shard,
                             size_t index, const BufferInfo& buffer, const std::vector<CopyRun>& runs,
                             std::vector<TargetBuffer>& targets) {
  std::string error;
  const size_t unit = size_of(buffer.dtype), total = buffer.count * unit;
  auto piece = std::make_unique_for_overwrite<char[]>(std::min(kBroadcastBytes, std::max<size_t>(total, 1)));
  FileDescriptor file;
  for (size_t at = 0; at < total; at += kBroadcastBytes) {
    const size_t size = std::min(kBroadcastBytes, total - at);
    if (group.rank() == shard.holder && error.empty()) {
      try {
        if (!file.valid()) file = open_file(shard.path, O_RDONLY | O_NOFOLLOW);
        pread_all(file.get(), piece.get(), size, buffer.offset + at, shard.path);
      } catch (const std::exception& e) {
        error = e.what();
      }
    }
    broadcast_now(group, piece.get(), size, shard.holder, settings.timeout_s);
    for (const CopyRun& run : runs) {
      if (run.source_buffer != index) continue;
      const size_t begin = std::max(run.source_offset * unit, at),
                   end = std::min((run.source_offset + run.count) * unit, at + size);
      if (begin < end)
        std::memcpy(static_cast<char*>(targets[run.target].data) + run.target_offset * unit +
                        (begin - run.source_offset * unit),
                    piece.get() + (begin - at), end - begin);
    }
  }
  return error;
}

// `files`: one per writer, of a full state or of a delta.
LoadReport load_files(const CheckpointSettings& settings, Communicator& group, const StateChoice& choice,
                      const std::vector<ShardFile>& files, std::vector<TargetBuffer> targets) {
  const auto begin = Clock::now();
  LoadReport report{choice.level, choice.step, ShardSource::kOwn, 0, 0, {}};
  for (const ShardFile& shard : files) report.source = std::max(report.source, shard.source);

  const std::vector<std::vector<BufferInfo>> tables = gather_tables(settings, group, files);
  CopyPlan plan;
  std::string error;
  try {
    plan = plan_copies(tables, targets);
  } catch (const Error& e) {
    error = e.what();
  }
  agree(group, error, settings.timeout_s);
  report.missing_buffers = plan.missing_buffers;
  for (const TargetBuffer& target : targets) zero_padding(target, plan);

  if (choice.level != SnapshotLevel::kL0) {
    try {
      for (size_t s = 0; s < tables.size(); ++s)
        if (!plan.runs[s].empty()) read_runs(files[s].path, plan.runs[s], tables[s], targets);
    } catch (const std::exception& e) {
      error = e.what();
    }
  } else {
    // Who needs which buffer of which file, so that nothing is sent in the usual case: same ranks, same
    // places.
    nlohmann::json mine = nlohmann::json::array();
    for (size_t s = 0; s < tables.size(); ++s) {
      std::set<size_t> buffers;
      for (const CopyRun& run : plan.runs[s]) buffers.insert(run.source_buffer);
      mine.push_back(buffers);
    }
    const std::vector<nlohmann::json> needs = all_gather_json(group, mine, settings.timeout_s);
    for (size_t s = 0; s < tables.size(); ++s) {
      const ShardFile& shard = files[s];
      std::set<size_t> remote;
      for (int r = 0; r < group.size(); ++r)
        if (r != shard.holder)
          for (const nlohmann::json& buffer : needs[r][s]) remote.insert(buffer.get<size_t>());
      try {
        std::vector<CopyRun> direct;
        for (const CopyRun& run : plan.runs[s])
          if (!remote.contains(run.source_buffer)) direct.push_back(run);
        if (!direct.empty()) read_runs(shard.path, direct, tables[s], targets);
      } catch (const std::exception& e) {
        error = e.what();
      }
      for (size_t buffer : remote) {
        std::string problem =
            broadcast_buffer(settings, group, shard, buffer, tables[s][buffer], plan.runs[s], targets);
        if (!problem.empty()) error = problem;
      }
    }
  }
  agree(group, error, settings.timeout_s);
  report.bytes = plan.bytes;
  report.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return report;
}

}  // namespace

LoadReport load_state(const CheckpointSettings& settings, Communicator& group, const FoundState& state,
                      std::vector<TargetBuffer> targets) {
  return load_files(settings, group, state.choice, state.choice.shards, std::move(targets));
}

LoadReport load_delta(const CheckpointSettings& settings, Communicator& group, const FoundState& state,
                      size_t index, std::vector<TargetBuffer> targets) {
  LoadReport report =
      load_files(settings, group, state.choice, state.choice.deltas.at(index), std::move(targets));
  report.step = state.choice.base_step() + index + 1;
  return report;
}

}  // namespace mso
