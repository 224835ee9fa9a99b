// The snapshot directory of a job on a node: a tmpfs of its own, as large as the job asked and the admin
// allows, that lives as long as the job.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/file.h"
#include "spank/job_state.h"
#include "spank/plugin_arguments.h"

namespace mso {

// What decides how large it may be. Sizes in bytes.
struct SnapshotRoom {
  std::optional<uint64_t> asked;  // none: "auto"
  uint64_t present = 0;           // of this job already
  uint64_t others = 0;            // of all other jobs on the node
  uint64_t job_memory = 0;        // of the job on this node; 0: not limited
  uint64_t node_memory = 0;
};
struct SnapshotSize {
  uint64_t bytes = 0;   // whole pages; 0: none
  std::string refusal;  // why it cannot be had; empty: it can
  std::string hint;
  bool fault_of_user = true;  // of what was asked, not of the node's state
};
// Pure. What is asked by size is given whole or refused; "auto" takes what is there, up to the admin's
// default and a quarter of the job's memory. What is present never shrinks.
SnapshotSize plan_snapshot_size(const SnapshotRoom& room, const PluginArguments& arguments);

struct SnapshotOrder {
  JobName job;  // the restart as far as Slurm tells it
  bool first_step = false;  // nothing of the job can have run on this node before: the batch script
  uid_t uid = 0;
  gid_t gid = 0;
  std::optional<uint64_t> asked;
  uint64_t job_memory = 0;  // bytes; 0: not limited
  std::string node;
};
struct Snapshot {
  JobName job;                   // under which it is kept
  std::filesystem::path folder;  // empty: none
  uint64_t bytes = 0;
  dev_t device = 0;
  bool reused = false, grown = false;
  FileDescriptor tree;  // the mount, detached, to be attached where a job has a mount namespace of its own
  std::string note;     // for the user, where "auto" found no room
};
// Makes the job's directory, or finds the one an earlier step made; while another step or process of the job is
// at work here, there is no other. Folders of earlier restarts of the job are removed. Error (kBadUsage: for what
// was asked, kFailure: the node's fault) with nothing left behind.
Snapshot prepare_snapshot(const RunDirectory& run, const SnapshotOrder& order,
                          const PluginArguments& arguments);

// In a task, as root: makes the directory visible in the mount namespace the task is in, where it is not.
void attach_snapshot(const Snapshot& snapshot);

// Gives back the memory of the snapshot directory of a job that is over, for as long as `patience_s`: what takes
// long of removing its folder, and needs no lock.
void empty_job_folder(const RunDirectory& run, const JobName& job, double patience_s);
// Unmounts (lazily) what is mounted below the job's folder and removes the folder. Error where something is
// left: also where a process outside the job keeps files of the snapshot directory open, whose memory then still
// counts, as the job's state.
void remove_job_folder(const RunDirectory& run, const JobName& job);

uint64_t node_memory_bytes();

}  // namespace mso
