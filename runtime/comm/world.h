// Start-up and shut-down of the transport: the one place where MPI_COMM_WORLD appears.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace mso {

// All ranks of the job. Started by mpirun or srun --mpi (see launcher.h): MPI with MPI_THREAD_MULTIPLE (a lesser
// level is an Error); otherwise one rank, and MPI is not even initialised. Lives until the end of main().
class World {
 public:
  World();
  // MPI_Finalize, where no exception is on its way (the others are not finalising then) and within a minute:
  // where a peer is gone, the process ends with kPeerLost instead of waiting for ever.
  ~World();
  World(const World&) = delete;

  Communicator& communicator() { return *communicator_; }
  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }
  // This node's identity: MSO_NODE where set (so that partner copies are testable on one host), else the host name.
  const std::string& node() const { return nodes_[rank()]; }
  // The same of every rank, in the order of ranks.
  const std::vector<std::string>& nodes() const { return nodes_; }
  // Rank among the ranks of the same node, and how many there are (collective at construction).
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  // Rank among the ranks of the same real host, whatever MSO_NODE says: chooses the GPU.
  int host_rank() const { return host_rank_; }
  // After an error on this rank only: ends the process with `exit_code` without waiting for the others (they
  // notice by deadline or are ended by the launcher). Does not return.
  [[noreturn]] void abandon(int exit_code);

 private:
  std::unique_ptr<Communicator> communicator_;
  std::vector<std::string> nodes_;
  int local_rank_ = 0, local_size_ = 1, host_rank_ = 0;
  bool initialised_ = false;
};

}  // namespace mso
