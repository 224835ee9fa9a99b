// The plugin's folder on a node (/run/mso): who may write there, the lock around it, and what is kept for
// each job. Layout: /run/mso/lock, /run/mso/JOBID.RESTART/{state,snapshot/,…}. Removing a job's folder needs
// nothing but the layout, so that any version of the plugin cleans what another left.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace mso {

struct JobName {
  uint32_t job = 0, restart = 0;
  auto operator<=>(const JobName&) const = default;
};
std::string format_job_name(const JobName& name);  // "12.0", the folder's name
std::optional<JobName> parse_job_name(std::string_view text);

// What is kept of a job on this node, file JOBID.RESTART/state.
struct JobState {
  uid_t uid = 0;
  uint64_t snapshot_bytes = 0;  // 0: no snapshot directory
  bool ready = false;           // false: its making was interrupted
  int64_t since = 0;            // Unix time
  std::string node;             // as Slurm calls it
  bool held = false;  // over, but a process outside the job keeps snapshot_bytes in use
  bool operator==(const JobState&) const = default;
};
std::string format_job_state(const JobState& state);
// None: damaged, or of another version ("mso-state 1" is the first line).
std::optional<JobState> parse_job_state(std::string_view text);

class RunDirectory {
 public:
  // Error where it is not a folder of this process's user that only that user may write to. Made (0755) where
  // `create` is set; otherwise none where it is not there.
  static std::optional<RunDirectory> open(const std::filesystem::path& path, bool create);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path of(const JobName& job) const { return path_ / format_job_name(job); }
  std::vector<JobName> jobs() const;              // sorted
  std::vector<JobName> jobs(uint32_t job) const;  // every restart of one job
  std::optional<JobState> read_state(const JobName& job) const;
  // Makes the job's folder (0711) where needed and replaces its state as a whole.
  void write_state(const JobName& job, const JobState& state) const;

 private:
  explicit RunDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

// One process at a time changes what is in the folder. Waits at most `timeout_s`, then Error naming who holds
// it. Freed by the kernel when its holder is killed.
class StateLock {
 public:
  StateLock(const RunDirectory& run, double timeout_s, const std::string& who);

 private:
  FileDescriptor file_;
};

}  // namespace mso
