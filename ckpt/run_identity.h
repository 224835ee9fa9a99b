// Who a run is: the id under which RAM disks keep its Level 0, and the folder it belongs to. A copied run folder must
// not share the id with its original, or the two would destroy each other's Level 0.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace mso {

struct RunIdentity {
  std::string run_id;
  // Ids this run had before it was copied here: their states on shared storage lie in this folder and are this run's.
  std::vector<std::string> earlier;
  bool is_new = false;   // the folder held no run
  bool changed = false;  // it was a copy and got an id of its own
};

// Where a run folder is. The inode is what a copy cannot take along; the path tells two file systems apart.
struct RunPlace {
  std::string path;
  uint64_t inode = 0;
};
enum class PlaceVerdict { kSame, kMoved, kCopy };
// `original_lives`: the recorded path holds this same run in another folder than the present one. Pure.
PlaceVerdict judge_place(const RunPlace& recorded, const RunPlace& now, bool original_lives);

// Makes or reads the identity of the run in `run_dir` (files `run_id` and `place.json`) and gives a copy an id of its
// own, with a line in the log. By one process, under the lock of the folder.
RunIdentity settle_identity(const std::filesystem::path& run_dir);

// The same without changing anything, for looking at a folder. `run_id` is empty where there is no run.
RunIdentity read_identity(const std::filesystem::path& run_dir);

// The id in the file alone, empty where there is none. Error where it is damaged.
std::string read_run_id(const std::filesystem::path& run_dir);

}  // namespace mso
