// The single operations: which messages, in which rounds, and in which order contributions are added up.
#include <algorithm>
#include <bit>
#include <cstring>

#include "comm/mpi_operation.h"
#include "comm/reduce.h"

namespace mso {

namespace {

// Up to this size everybody sends everything to everybody: one round. Beyond, parts are reduced by their
// owners.
constexpr size_t kSmallAllReduceBytes = 32768;
// Up to this many ranks in one round of n − 1 messages; beyond, in log2(n) rounds (Bruck et al. 1997).
constexpr int kDirectRanks = 8;
// Chunks of a reduce-scatter that are received at the same time.
constexpr size_t kWindow = 4;

size_t divide_up(size_t a, size_t b) {
  return (a + b - 1) / b;
}

// Calls f(offset, bytes) for each chunk of a payload.
template <typename F>
void for_each_chunk(size_t bytes, F f) {
  const size_t chunk = chunk_bytes_for(bytes);
  for (size_t offset = 0; offset < bytes; offset += chunk) f(offset, std::min(chunk, bytes - offset));
}

std::vector<size_t> byte_offsets(const MpiGroup& group, std::span<const size_t> counts, size_t element) {
  if (counts.size() != static_cast<size_t>(group.size)) {
    throw Error("a part for each of " + std::to_string(counts.size()) + " ranks given",
                "group '" + group.name + "' of " + std::to_string(group.size) + " ranks");
  }
  std::vector<size_t> offsets(counts.size() + 1, 0);
  for (size_t r = 0; r < counts.size(); ++r) offsets[r + 1] = offsets[r] + counts[r] * element;
  return offsets;
}

// Pairwise exchange: each rank gets all contributions to its own part, chunk by chunk, and adds them up in
// the order of ranks. `output` may be this rank's part inside `input` (used by the all-reduce).
class ReduceScatter : public MpiOperation {
 public:
  ReduceScatter(MpiGroupPtr group_ptr, MpiVerb verb, const void* input, void* output,
                std::span<const size_t> counts, DType dtype, ReduceOp op)
      : MpiOperation(std::move(group_ptr), verb),
        dtype_(dtype),
        op_(op),
        output_(static_cast<std::byte*>(output)) {
    const int rank = group().rank, size = group().size;
    const auto offsets = byte_offsets(group(), counts, size_of(dtype));
    const auto* bytes = static_cast<const std::byte*>(input);
    own_ = bytes + offsets[rank];
    own_bytes_ = offsets[rank + 1] - offsets[rank];
    chunk_ = chunk_bytes_for(own_bytes_);
    chunks_ = divide_up(own_bytes_, chunk_);
    if (size == 1) {
      if (output != own_ && own_bytes_ > 0) std::memcpy(output, own_, own_bytes_);
      return;
    }
    slot_chunk_.resize(std::min(kWindow, chunks_));
    waiting_.resize(slot_chunk_.size());
    if (chunks_ > 0) buffers_ = scratch(slot_chunk_.size() * (size - 1) * std::min(chunk_, own_bytes_));
    for (size_t slot = 0; slot < slot_chunk_.size(); ++slot) receive_chunk(slot, slot);
    // Chunk by chunk over all peers, beginning after oneself, so that no rank is everybody's first.
    bool more = true;
    for (size_t k = 0; more; ++k) {
      more = false;
      for (int step = 1; step < size; ++step) {
        const int peer = (rank + step) % size;
        const size_t part = offsets[peer + 1] - offsets[peer], chunk = chunk_bytes_for(part);
        if (k * chunk >= part) continue;
        post_send(bytes + offsets[peer] + k * chunk, std::min(chunk, part - k * chunk), peer);
        more = true;
      }
    }
  }

 private:
  size_t bytes_of(size_t k) const { return std::min(chunk_, own_bytes_ - k * chunk_); }
  std::byte* buffer(size_t slot, int other) const {
    return buffers_ + (slot * (group().size - 1) + other) * std::min(chunk_, own_bytes_);
  }

  void receive_chunk(size_t slot, size_t k) {
    slot_chunk_[slot] = k;
    waiting_[slot] = group().size - 1;
    for (int step = 1; step < group().size; ++step) {
      const int peer = (group().rank + group().size - step) % group().size;
      post_receive(buffer(slot, peer < group().rank ? peer : peer - 1), bytes_of(k), peer, slot);
    }
  }

  void received(size_t slot) override {
    if (--waiting_[slot] > 0) return;
    const size_t k = slot_chunk_[slot];
    std::vector<const void*> inputs(group().size);
    for (int r = 0; r < group().size; ++r) {
      inputs[r] = r == group().rank ? own_ + k * chunk_ : buffer(slot, r < group().rank ? r : r - 1);
    }
    reduce_in_order(output_ + k * chunk_, inputs, bytes_of(k) / size_of(dtype_), dtype_, op_);
    if (k + slot_chunk_.size() < chunks_) receive_chunk(slot, k + slot_chunk_.size());
  }

  DType dtype_;
  ReduceOp op_;
  std::byte* output_;
  const std::byte* own_;
  size_t own_bytes_, chunk_, chunks_;
  std::byte* buffers_ = nullptr;    // [slot][peer without self][chunk]
  std::vector<size_t> slot_chunk_;  // which chunk is being received there
  std::vector<int> waiting_;        // contributions still missing
};

void post_all_gather(int rank, int size, const std::byte* own, std::byte* output,
                     const std::vector<size_t>& offsets, auto send, auto receive) {
  const size_t own_bytes = offsets[rank + 1] - offsets[rank];
  if (own != output + offsets[rank] && own_bytes > 0) std::memmove(output + offsets[rank], own, own_bytes);
  for (int step = 1; step < size; ++step) {
    const int peer = (rank + size - step) % size;
    for_each_chunk(offsets[peer + 1] - offsets[peer],
                   [&](size_t at, size_t n) { receive(output + offsets[peer] + at, n, peer); });
  }
  // From the place in `output`, so that `input` is free at once.
  for (int step = 1; step < size; ++step) {
    for_each_chunk(own_bytes,
                   [&](size_t at, size_t n) { send(output + offsets[rank] + at, n, (rank + step) % size); });
  }
}

class AllGather : public MpiOperation {
 public:
  AllGather(MpiGroupPtr group_ptr, const void* input, void* output, std::span<const size_t> counts,
            DType dtype)
      : MpiOperation(std::move(group_ptr), MpiVerb::kAllGather) {
    post_all_gather(
        group().rank, group().size, static_cast<const std::byte*>(input), static_cast<std::byte*>(output),
        byte_offsets(group(), counts, size_of(dtype)),
        [&](const void* p, size_t n, int peer) { post_send(p, n, peer); },
        [&](void* p, size_t n, int peer) { post_receive(p, n, peer); });
  }
};

// Parts of equal size, in units of 16 elements, for the all-reduce of large data.
std::vector<size_t> equal_counts(size_t count, int ranks) {
  std::vector<size_t> counts(ranks);
  const size_t per_rank = divide_up(divide_up(count, ranks), 16) * 16;
  for (int r = 0; r < ranks; ++r) {
    const size_t begin = std::min(count, per_rank * r);
    counts[r] = std::min(count, begin + per_rank) - begin;
  }
  return counts;
}

// Reduce-scatter in place, then all-gather in place when all sends of the first phase are done.
class LargeAllReduce : public ReduceScatter {
 public:
  LargeAllReduce(MpiGroupPtr group_ptr, void* data, size_t count, DType dtype, ReduceOp op,
                 const std::vector<size_t>& counts)
      : ReduceScatter(
            group_ptr, MpiVerb::kAllReduce, data,
            static_cast<std::byte*>(data) + byte_offsets(*group_ptr, counts, size_of(dtype))[group_ptr->rank],
            counts, dtype, op),
        data_(static_cast<std::byte*>(data)),
        offsets_(byte_offsets(*group_ptr, counts, size_of(dtype))) {}

 private:
  void advance() override {
    if (in_flight() || gathering_) return;
    gathering_ = true;
    post_all_gather(
        group().rank, group().size, data_ + offsets_[group().rank], data_, offsets_,
        [&](const void* p, size_t n, int peer) { post_send(p, n, peer); },
        [&](void* p, size_t n, int peer) { post_receive(p, n, peer); });
  }

  std::byte* data_;
  std::vector<size_t> offsets_;
  bool gathering_ = false;
};

// Everybody receives all contributions and adds them up alone: each rank does the same sums.
class SmallAllReduce : public MpiOperation {
 public:
  SmallAllReduce(MpiGroupPtr group_ptr, void* data, size_t count, DType dtype, ReduceOp op)
      : MpiOperation(std::move(group_ptr), MpiVerb::kAllReduce),
        data_(data),
        count_(count),
        dtype_(dtype),
        op_(op),
        bytes_(count * size_of(dtype)),
        direct_(group().size <= kDirectRanks) {
    if (bytes_ == 0) return;
    all_ = scratch(bytes_ * group().size);  // block b: contribution of rank + b
    std::memcpy(all_, data, bytes_);
    if (direct_) {
      for (int b = 1; b < group().size; ++b)
        post_receive(block(b), bytes_, (group().rank + b) % group().size);
      for (int b = 1; b < group().size; ++b) post_send(all_, bytes_, (group().rank + b) % group().size);
    }
  }

 private:
  std::byte* block(size_t b) const { return all_ + b * bytes_; }

  void advance() override {
    if (bytes_ == 0 || in_flight() || summed_) return;
    const int rank = group().rank, size = group().size;
    if (!direct_ && have_ < size) {
      // What the rank `have_` further on has is what comes after mine.
      const int n = std::min(have_, size - have_);
      post_receive(block(have_), n * bytes_, (rank + have_) % size);
      post_send(all_, n * bytes_, (rank + size - have_) % size);
      have_ += n;
      return;
    }
    std::vector<const void*> inputs(size);
    for (int r = 0; r < size; ++r) inputs[r] = block((r - rank + size) % size);
    reduce_in_order(data_, inputs, count_, dtype_, op_);
    summed_ = true;
  }

  void* data_;
  size_t count_;
  DType dtype_;
  ReduceOp op_;
  size_t bytes_;
  bool direct_;
  std::byte* all_ = nullptr;
  int have_ = 1;
  bool summed_ = false;
};

// Binomial tree; each chunk goes on as soon as it is there.
class Broadcast : public MpiOperation {
 public:
  Broadcast(MpiGroupPtr group_ptr, void* data, size_t bytes, int root)
      : MpiOperation(std::move(group_ptr), MpiVerb::kBroadcast),
        data_(static_cast<std::byte*>(data)),
        bytes_(bytes) {
    const int size = group().size;
    if (root < 0 || root >= size) {
      throw Error(
          "broadcast from a rank that does not exist",
          "rank " + std::to_string(root) + " of group '" + group().name + "' of " + std::to_string(size));
    }
    // Counted from the root: the parent is the number without its lowest bit, children have one more bit
    // below it.
    const unsigned me = static_cast<unsigned>((group().rank - root + size) % size);
    const unsigned low = me == 0 ? std::bit_ceil(static_cast<unsigned>(size)) : me & -me;
    for (unsigned bit = low >> 1; bit > 0; bit >>= 1) {
      if (me + bit < static_cast<unsigned>(size))
        children_.push_back(static_cast<int>((me + bit + root) % size));
    }
    if (me == 0) {
      for (size_t k = 0; k < divide_up(bytes, chunk_bytes_for(bytes)); ++k) received(k);
    } else {
      const int parent = static_cast<int>(((me & (me - 1)) + root) % size);
      for_each_chunk(bytes, [&](size_t at, size_t n) {
        post_receive(data_ + at, n, parent, at / chunk_bytes_for(bytes));
      });
    }
  }

 private:
  void received(size_t k) override {
    const size_t chunk = chunk_bytes_for(bytes_), at = k * chunk;
    for (int child : children_) post_send(data_ + at, std::min(chunk, bytes_ - at), child);
  }

  std::byte* data_;
  size_t bytes_;
  std::vector<int> children_;
};

// Dissemination: in round k everybody tells the rank 2^k further on.
class Barrier : public MpiOperation {
 public:
  explicit Barrier(MpiGroupPtr group_ptr) : MpiOperation(std::move(group_ptr), MpiVerb::kBarrier) {
    advance();
  }

 private:
  void advance() override {
    const int size = group().size;
    if (in_flight() || distance_ >= size) return;
    post_receive(&there_, 0, (group().rank + size - distance_) % size);
    post_send(&here_, 0, (group().rank + distance_) % size);
    distance_ *= 2;
  }

  char here_ = 0, there_ = 0;
  int distance_ = 1;
};

class Message : public MpiOperation {
 public:
  Message(MpiGroupPtr group_ptr, const void* send, void* receive, size_t bytes, int peer, int tag)
      : MpiOperation(std::move(group_ptr), send != nullptr ? "send" : "receive", tag) {
    if (peer < 0 || peer >= group().size || peer == group().rank) {
      throw Error("no such peer", "rank " + std::to_string(peer) + " of group '" + group().name + "' of " +
                                      std::to_string(group().size) + " ranks, seen from rank " +
                                      std::to_string(group().rank));
    }
    const auto one = [&](size_t at, size_t n) {
      if (receive != nullptr)
        post_receive(static_cast<std::byte*>(receive) + at, n, peer);
      else
        post_send(static_cast<const std::byte*>(send) + at, n, peer);
    };
    if (bytes == 0) one(0, 0);
    for_each_chunk(bytes, one);
  }
};

}  // namespace

HandlePtr start_all_reduce(MpiGroupPtr group, void* data, size_t count, DType dtype, ReduceOp op) {
  check_reducible(dtype, op);
  if (count * size_of(dtype) <= kSmallAllReduceBytes) {
    return std::make_unique<SmallAllReduce>(std::move(group), data, count, dtype, op);
  }
  const auto counts = equal_counts(count, group->size);
  return std::make_unique<LargeAllReduce>(std::move(group), data, count, dtype, op, counts);
}
HandlePtr start_reduce_scatter(MpiGroupPtr group, const void* input, void* output,
                               std::span<const size_t> counts, DType dtype, ReduceOp op) {
  check_reducible(dtype, op);
  return std::make_unique<ReduceScatter>(std::move(group), MpiVerb::kReduceScatter, input, output, counts,
                                         dtype, op);
}
HandlePtr start_all_gather(MpiGroupPtr group, const void* input, void* output, std::span<const size_t> counts,
                           DType dtype) {
  return std::make_unique<AllGather>(std::move(group), input, output, counts, dtype);
}
HandlePtr start_broadcast(MpiGroupPtr group, void* data, size_t bytes, int root) {
  return std::make_unique<Broadcast>(std::move(group), data, bytes, root);
}
HandlePtr start_barrier(MpiGroupPtr group) {
  return std::make_unique<Barrier>(std::move(group));
}
HandlePtr start_send(MpiGroupPtr group, const void* data, size_t bytes, int peer, int tag) {
  static const char nothing = 0;  // so that an empty message may come from a null pointer
  return std::make_unique<Message>(std::move(group), data != nullptr ? data : &nothing, nullptr, bytes, peer,
                                   tag);
}
HandlePtr start_receive(MpiGroupPtr group, void* data, size_t bytes, int peer, int tag) {
  static char nothing = 0;
  return std::make_unique<Message>(std::move(group), nullptr, data != nullptr ? data : &nothing, bytes, peer,
                                   tag);
}

}  // namespace mso
