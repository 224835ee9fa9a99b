// L1 and L2 on shared storage: `<run dir>/checkpoints/{L1,L2}/step-000000123/{rank-0000-of-0002.h5…,
// manifest.json}`. A state is written as `step-000000123.tmp-<attempt>`, synced, given its manifest and
// renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/settings.h"
#include "ckpt/shard_file.h"

namespace mso {

// What manifest.json says. Its text is fixed by its content and ends with a checksum, so any change is
// noticed.
struct Manifest {
  int format = kShardFormat;
  std::string run_id;
  int64_t attempt = 0;
  uint64_t step = 0;
  SnapshotLevel level = SnapshotLevel::kL1;
  bool exact = true;
  double time = 0;  // Unix seconds
  struct File {
    std::string name;
    uint64_t size = 0;
    uint64_t checksum = 0;  // the header's, over everything after the header
    uint64_t header = 0;    // XXH3-64 of the header block
  };
  std::vector<File> files;  // one per writer, in their order
  std::string plan;         // the record "plan" of the state
};
std::string encode_manifest(const Manifest& manifest);
Manifest decode_manifest(const std::string& text, const std::string& path);

std::filesystem::path level_directory(const std::filesystem::path& run_dir, SnapshotLevel level);
std::string step_folder(uint64_t step);  // "step-000000123"
std::optional<uint64_t> parse_step_folder(const std::string& name);
bool is_temporary_folder(const std::string& name);     // "step-000000123.tmp-…"
std::string shard_file_name(int writer, int writers);  // "rank-0000-of-0002.h5"

// A state folder as found; `manifest` only where it could be read, else `problem`.
struct StateFolder {
  std::filesystem::path path;
  uint64_t step = 0;
  std::optional<Manifest> manifest;
  std::string problem;
};
struct LevelListing {
  std::vector<StateFolder> states;     // ascending steps
  std::vector<std::string> unknown;    // paths of what is not ours
  std::vector<std::string> temporary;  // leftovers, or being written
};
// Nothing there: empty. Reads the manifests of the states with index ≡ part (mod parts) only; the others have
// neither manifest nor problem.
LevelListing list_level(const std::filesystem::path& run_dir, SnapshotLevel level, int part = 0,
                        int parts = 1);
// The header of a state's file, compared with the manifest. Error where they differ.
ShardHeader check_against_manifest(const StateFolder& state, int writer);

// Which states go after a new one was committed. The newest `keep` of this start stay; as long as it has
// fewer, states of older starts fill up: the one it resumed from first, then older steps before newer ones
// (those were passed over when it resumed, so they are suspect). Pure.
struct PruneEntry {
  uint64_t step = 0;
  int64_t attempt = 0;
};
std::vector<uint64_t> states_to_prune(const std::vector<PruneEntry>& present, int keep, int64_t attempt,
                                      std::optional<uint64_t> resumed_step);

// Writing. All of these throw Error on storage trouble.
class SharedStore {
 public:
  explicit SharedStore(const CheckpointSettings& settings) : settings_(settings) {}

  std::filesystem::path temporary_folder(SnapshotLevel level, uint64_t step) const;
  // The file of `writer` in the temporary folder, which is made where missing.
  std::filesystem::path prepare_file(SnapshotLevel level, uint64_t step, int writer, int writers) const;
  // Rank 0, when all files are synced: manifest, rename, sync of the parent. AttemptLost where a newer start
  // exists. Returns the bytes of all files.
  uint64_t commit(SnapshotLevel level, uint64_t step, int writers, const std::string& plan) const;
  void prune(SnapshotLevel level, int keep, std::optional<uint64_t> resumed_step) const;
  void drop(SnapshotLevel level, uint64_t step) const;  // removes the temporary folder
  // At start: removes temporary folders of older starts.
  void clean(SnapshotLevel level) const;

  // The mark that a whole state existed once: from then on a start that finds none must not begin from zero.
  void mark_written(uint64_t step) const;
  static bool was_written(const std::filesystem::path& run_dir);

 private:
  void remove_folder(const std::filesystem::path& folder, SnapshotLevel level, bool visible) const;

  const CheckpointSettings settings_;
};

}  // namespace mso
