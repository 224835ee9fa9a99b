// Which start of the run this is. The counter `<run dir>/attempt` fences writers of a start that is believed
// dead: each checks it before it makes a snapshot visible. A lock keeps two live runs out of one folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "comm/communicator.h"

namespace mso {

class RunAttempt {
 public:
  // Collective. Rank 0 makes `run_dir` where missing, locks it (Error kBadUsage where another live run holds
  // it), settles the run's identity (ckpt/run_identity.h), and raises `<run dir>/attempt` durably; the others are
  // told. A counter that is missing, damaged or set back goes on above what metrics.jsonl has seen. A failure on
  // rank 0 is thrown on all ranks.
  static RunAttempt begin(const std::filesystem::path& run_dir, Communicator& group, double timeout_s);

  int64_t number() const { return number_; }  // 1 at the first start
  const std::string& run_id() const { return run_id_; }
  const std::vector<std::string>& earlier_run_ids() const { return earlier_run_ids_; }

  // Rank 0: this start was refused before it changed anything, and is not counted.
  void withdraw();

 private:
  int64_t number_ = 0;
  std::string run_id_;
  std::vector<std::string> earlier_run_ids_;
  std::filesystem::path counter_;  // on rank 0
  FileDescriptor lock_;  // on rank 0, held until destroyed or the process ends
};

// A newer start of the run exists: this one may make nothing visible any more.
class AttemptLost : public Error {
 public:
  explicit AttemptLost(const std::filesystem::path& where)
      : Error("a newer start of this run exists", where.string(),
              "this one writes no more snapshots; if no other process trains this run, its counter `attempt` was set "
              "back: write a higher number into it") {}
};

// The counter as it is in the folder now; 0 where there is none. Error where unreadable.
int64_t read_attempt(const std::filesystem::path& run_dir);

}  // namespace mso
