// The operations of an MPI group as state machines over MPI_Isend and MPI_Irecv: progress happens only in
// test() and wait(), nothing blocks. Included by runtime/comm/*.cc alone (MPI header).
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"

namespace mso {

// Scratch memory for received contributions. Reused, because fresh pages cost more than the message.
class BufferPool {
 public:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  struct Buffer {
    std::unique_ptr<std::byte, Free> data;
    size_t capacity = 0;
  };
  Buffer take(size_t bytes);
  void give(Buffer buffer);

 private:
  std::vector<Buffer> buffers_;
};

// The kinds of collective, carried in the tag: a rank that waits can tell what a disagreeing peer has sent.
enum class MpiVerb : int { kMessage = 0, kAllReduce, kReduceScatter, kAllGather, kBroadcast, kBarrier };
inline constexpr int kMpiVerbs = 8;

class MpiOperation;

// What the operations of a group share; unfinished operations keep it alive.
struct MpiGroup {
  ~MpiGroup();

  MPI_Comm collectives = MPI_COMM_NULL;  // tags: operation counter and verb
  MPI_Comm messages = MPI_COMM_NULL;     // tags: the caller's
  int rank = 0, size = 1;
  std::string name;
  int tag_limit = 32767;    // largest tag of this MPI
  uint64_t operations = 0;  // collectives begun, the same on all ranks
  BufferPool pool;
  std::vector<MpiOperation*> unfinished;
  Clock::time_point last_sweep{};  // when all of these were last given a chance
};
using MpiGroupPtr = std::shared_ptr<MpiGroup>;

// Throws Error(kPeerLost) with MPI's text unless `code` is MPI_SUCCESS.
void check_mpi(int code, const std::string& doing, const MpiGroup& group);

// Parts of `bytes` in which a payload travels: the same on both sides, since it depends on the size alone.
size_t chunk_bytes_for(size_t bytes);

class MpiOperation : public Handle {
 public:
  MpiOperation(MpiGroupPtr group, MpiVerb verb);                    // a collective: next tag of the group
  MpiOperation(MpiGroupPtr group, const char* verb_text, int tag);  // a message with the caller's tag
  ~MpiOperation() override;
  bool test() final;
  void wait(Deadline deadline) final;

 protected:
  static constexpr size_t kNoSlot = SIZE_MAX;
  void post_send(const void* data, size_t bytes, int peer);
  void post_receive(void* data, size_t bytes, int peer, size_t slot = kNoSlot);
  // Memory that lives until the operation is done (or until MPI lets go of it, where it is cancelled).
  std::byte* scratch(size_t bytes);
  // Called for each receive with a slot that is complete.
  virtual void received(size_t slot) {}
  // Called after completions: posts what comes next. The operation is done when nothing is in flight after
  // it.
  virtual void advance() {}

  const MpiGroup& group() const { return *group_; }
  bool in_flight() const { return !requests_.empty(); }

 private:
  struct Pending {
    size_t bytes, slot;
    int peer;
    bool receive;
  };
  bool progress();
  void progress_all();
  bool complete_some();
  void release_scratch();
  std::string describe() const;
  Error expired() const;

  MpiGroupPtr group_;
  const char* verb_text_;
  MPI_Comm comm_;
  int tag_;
  uint64_t number_ = 0;
  Clock::time_point begun_ = Clock::now();
  std::vector<MPI_Request> requests_;
  std::vector<Pending> pending_;  // the same length
  std::vector<BufferPool::Buffer> scratch_;
  uint64_t completions_ = 0;
  bool done_ = false;
  std::exception_ptr failure_;  // noticed while another operation was waited for
};

// Constructors post the first messages; parameters as in Communicator.
HandlePtr start_all_reduce(MpiGroupPtr group, void* data, size_t count, DType dtype, ReduceOp op);
HandlePtr start_reduce_scatter(MpiGroupPtr group, const void* input, void* output,
                               std::span<const size_t> counts, DType dtype, ReduceOp op);
HandlePtr start_all_gather(MpiGroupPtr group, const void* input, void* output, std::span<const size_t> counts,
                           DType dtype);
HandlePtr start_broadcast(MpiGroupPtr group, void* data, size_t bytes, int root);
HandlePtr start_barrier(MpiGroupPtr group);
HandlePtr start_send(MpiGroupPtr group, const void* data, size_t bytes, int peer, int tag);
HandlePtr start_receive(MpiGroupPtr group, void* data, size_t bytes, int peer, int tag);

// Memory that cancelled operations still hold: looked at when a new one starts, freed when MPI lets go.
void sweep_cancelled_operations();

}  // namespace mso
