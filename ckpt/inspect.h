// What `mso ckpt ls | show | verify | diff` find out, without a run: plain data for the command to print.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ckpt/recovery.h"
#include "ckpt/shard_file.h"

namespace mso {

// One state as `ls` shows it.
struct StateSummary {
  SnapshotLevel level = SnapshotLevel::kL0;
  uint64_t step = 0;
  int64_t attempt = 0;
  int writers = 0;
  int parts = 0;   // of `writers`, found and valid, own or partner's copy
  int copies = 0;  // valid partner's copies
  bool exact = true;
  int delta = 0;        // L0: steps since the full state it needs
  bool reached = true;  // … and that and all between are whole
  uint64_t size = 0;  // bytes of all its files
  double time = 0;    // Unix seconds of writing
  std::string path;   // folder of the first file
  std::vector<std::string> problems;
  bool whole() const { return writers > 0 && parts == writers && reached; }
};
// Level by level, newest first. `verify`: every byte is read, not only headers and manifests.
std::vector<StateSummary> summarise_run(FoundFiles& found, bool verify);
// The run's files as seen from this machine. Error (kBadUsage) where the folder is no run's.
FoundFiles find_run_files(const std::filesystem::path& run_dir, const std::filesystem::path& level0_path);

// The files of one state: of a snapshot file, a state's folder, a run's folder (its best full state) or RUN@STEP.
// Error where there is none; kNoValidState where it is not whole. A step that L0 has as a delta alone: with `deltas`
// the delta's files, else an Error that names the full state.
std::vector<std::string> state_files(const std::string& what, const std::filesystem::path& level0_path,
                                     bool deltas = false);

// A tensor of one buffer, put together from the files of a state.
struct StoredTensor {
  std::string buffer, name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  struct Part {
    size_t file;          // index into StoredState::files
    uint64_t offset;      // bytes from the file's start
    uint64_t begin, end;  // elements of the tensor
  };
  std::vector<Part> parts;
  uint64_t elements() const;
  bool whole() const;  // parts cover every element once
};
struct StoredState {
  std::vector<std::string> files;
  std::vector<ShardHeader> headers;
  std::map<std::string, std::string> records;  // of the first file
  std::vector<StoredTensor> tensors;           // by buffer, then name
};
// Verifies the files first.
StoredState open_state(const std::vector<std::string>& files);
// All elements, as doubles; those in no part are NaN. Error for types that are no floating-point numbers.
std::vector<double> read_tensor(const StoredState& state, const StoredTensor& tensor);

struct TensorDifference {
  std::string buffer, name;
  double max_difference = 0;  // NaN against a number counts as infinite
  double max_value = 0;       // largest |element| in the first state
  std::string problem;        // "only in A", "shapes differ", …
};
std::vector<TensorDifference> compare_states(const StoredState& a, const StoredState& b);

}  // namespace mso
