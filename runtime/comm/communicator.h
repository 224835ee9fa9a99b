// Collective and point-to-point communication of one group of ranks. Implementations: MPI (CPU memory),
// NCCL (GPU memory, in mso_cuda.so), and one rank alone. Communicators come only from the plan; every
// operation is a handle with a deadline, so that nothing waits for ever.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/host_tensor.h"

namespace mso {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
inline Deadline deadline_in(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

enum class ReduceOp { kSum, kMax, kMin, kBitOr };

// One operation in flight. Destroying an unfinished handle cancels what can be cancelled and never blocks for
// more than a moment; buffers must outlive the handle or its completion, whichever comes first. What was
// cancelled here does not disturb later collectives of the group; a point-to-point tag should not be used again.
class Handle {
 public:
  virtual ~Handle() = default;
  // Makes progress; true once done. Throws Error(kPeerLost) where the transport reports a dead peer.
  virtual bool test() = 0;
  // Polls with short sleeps (a core is not burnt) until done; after `deadline` throws Error(kPeerLost) that
  // names the operation, the group and who was waited for.
  virtual void wait(Deadline deadline) = 0;
};
using HandlePtr = std::unique_ptr<Handle>;

// Not thread-safe: a communicator and its handles are used by one thread at a time; another thread takes its own
// group from split(). Several operations may be in flight at once, and may be waited for in any order.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;  // for messages: "data parallel", "snapshot partners"

  // Every rank of the group calls the same collectives in the same order. Sums are taken in the order of ranks
  // (0 + 1 + 2 …), so the bits depend on the group's size alone. F32, F64, I64, U64 (kBitOr: U64 only).
  virtual HandlePtr all_reduce(void* data, size_t count, DType dtype, ReduceOp op) = 0;
  // `input` holds the concatenated parts of all ranks (part r has counts[r] elements, may be 0); `output`
  // receives the reduction of this rank's part and may not overlap `input`.
  virtual HandlePtr reduce_scatter(const void* input, void* output, std::span<const size_t> counts, DType dtype,
                                   ReduceOp op) = 0;
  // The inverse: this rank's part (counts[rank] elements) goes to its place in everybody's `output`.
  // `input` may be that very place inside `output`.
  virtual HandlePtr all_gather(const void* input, void* output, std::span<const size_t> counts, DType dtype) = 0;
  virtual HandlePtr broadcast(void* data, size_t bytes, int root) = 0;
  virtual HandlePtr barrier() = 0;
  // Point to point, matched by (peer, tag) in order; both sides give the same number of bytes. tag: 0 … 32767.
  virtual HandlePtr send(const void* data, size_t bytes, int peer, int tag) = 0;
  virtual HandlePtr receive(void* data, size_t bytes, int peer, int tag) = 0;

  // Collective: ranks of one colour form a new, independent group (its traffic never mixes with this one's,
  // so another thread may use it), ordered by `key`. color < 0: this rank joins none and gets nullptr.
  // Waits for all ranks, with a deadline of two minutes.
  virtual std::unique_ptr<Communicator> split(int color, int key, const std::string& name) = 0;
};

// The same, waiting at once. `timeout_s` from parallel.timeout_s.
void all_reduce_now(Communicator& group, void* data, size_t count, DType dtype, ReduceOp op, double timeout_s);
void broadcast_now(Communicator& group, void* data, size_t bytes, int root, double timeout_s);
void barrier_now(Communicator& group, double timeout_s);
// Every rank's text, in the order of ranks (lengths may differ).
std::vector<std::string> all_gather_text(Communicator& group, const std::string& mine, double timeout_s);

// The group of one rank: copies instead of messages.
std::unique_ptr<Communicator> make_single_communicator(const std::string& name);

}  // namespace mso
