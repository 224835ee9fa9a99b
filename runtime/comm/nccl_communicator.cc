#include "comm/nccl_communicator.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "comm/cuda_kernels.h"
#include "comm/reduce.h"

namespace mso {

using std::chrono::duration;
using std::chrono::microseconds;

void check_cuda(int code, const std::string& doing) {
  if (code == cudaSuccess) return;
  throw Error("CUDA failed: " + std::string(cudaGetErrorString(static_cast<cudaError_t>(code))), doing,
              "nvidia-smi and the kernel log show whether the GPU is healthy");
}

namespace {

constexpr size_t kSmallAllReduceBytes = 65536;  // everybody gathers everything; larger: parts

// What handles share with their communicator.
struct NcclGroup {
  std::string name;
  int rank = 0, size = 1, device = 0;
  double timeout_s = 60;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr, producer = nullptr;
  std::string broken;                                   // why no operation is possible any more
  std::vector<std::function<ncclResult_t()>> messages;  // sends and receives not yet launched

  ~NcclGroup() {
    cudaSetDevice(device);
    if (comm != nullptr) {
      // Destroying waits for the peers; aborting does not, and an idle group has nothing to lose.
      ncclCommAbort(comm);
    }
    if (stream != nullptr) cudaStreamDestroy(stream);
  }

  void abort(const std::string& why) {
    if (comm != nullptr) ncclCommAbort(comm);
    comm = nullptr;
    broken = why;
  }
  [[noreturn]] void fail(const std::string& what, const std::string& doing, const std::string& hint = "") {
    abort(what);
    throw Error(what, doing + " in group '" + name + "', rank " + std::to_string(rank),
                hint.empty() ? "see the other ranks' logs; NCCL_DEBUG=INFO tells more" : hint,
                ExitCode::kPeerLost);
  }
  void check_usable() const {
    if (broken.empty() && comm != nullptr) return;
    throw Error("the group was aborted", "group '" + name + "': " + broken,
                "start again from the last snapshot", ExitCode::kPeerLost);
  }
  // The group does not block in NCCL: calls may still be under way when they return.
  void settle(ncclResult_t result, const std::string& doing) {
    const Deadline deadline = deadline_in(timeout_s);
    while (result == ncclInProgress) {
      if (Clock::now() > deadline) {
        fail("NCCL did not connect to all ranks within " + std::to_string(static_cast<int>(timeout_s)) + " s",
             doing);
      }
      std::this_thread::sleep_for(microseconds(20));
      if (const ncclResult_t asked = ncclCommGetAsyncError(comm, &result); asked != ncclSuccess)
        result = asked;
    }
    if (result != ncclSuccess) fail(std::string("NCCL failed: ") + ncclGetErrorString(result), doing);
  }
  // All waiting sends and receives in one NCCL group, as a send waits for its receive.
  void flush_messages() {
    if (messages.empty()) return;
    check_usable();
    const auto waiting = std::move(messages);
    messages.clear();
    group_calls("message", [&](auto run) {
      for (const auto& message : waiting) run(message());
    });
  }
  // Calls between ncclGroupStart and ncclGroupEnd, which is reached in any case.
  template <typename F>
  void group_calls(const std::string& doing, F calls) {
    ncclGroupStart();
    ncclResult_t first = ncclSuccess;
    calls([&](ncclResult_t result) {
      if (first == ncclSuccess && result != ncclInProgress) first = result;
    });
    const ncclResult_t end = ncclGroupEnd();
    settle(first != ncclSuccess ? first : end, doing);
  }
};
using NcclGroupPtr = std::shared_ptr<NcclGroup>;

class NcclHandle : public Handle {
 public:
  NcclHandle(NcclGroupPtr group, std::string what) : group_(std::move(group)), what_(std::move(what)) {
    check_cuda(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), what_);
  }
  ~NcclHandle() override {
    cudaSetDevice(group_->device);
    cudaEventDestroy(done_);
  }
  // Everything of this operation is in the stream.
  void launched() {
    check_cuda(cudaEventRecord(done_, group_->stream), what_);
    launched_ = true;
  }

  bool test() override {
    if (finished_) return true;
    cudaSetDevice(group_->device);
    if (!launched_) {
      group_->flush_messages();
      launched();
    }
    const cudaError_t state = cudaEventQuery(done_);
    if (state == cudaSuccess) return finished_ = true;
    if (state != cudaErrorNotReady) check_cuda(state, what_ + " in group '" + group_->name + "'");
    group_->check_usable();
    ncclResult_t async = ncclSuccess;
    ncclCommGetAsyncError(group_->comm, &async);
    if (async != ncclSuccess && async != ncclInProgress) {
      group_->fail(std::string("NCCL lost a peer: ") + ncclGetErrorString(async), what_);
    }
    return false;
  }

  void wait(Deadline deadline) override {
    auto sleep = microseconds(20);
    while (!test()) {
      if (Clock::now() >= deadline) {
        char seconds[32];
        std::snprintf(seconds, sizeof seconds, "%.1f s", duration<double>(Clock::now() - begun_).count());
        std::string others = "other ranks";
        if (group_->size == 2) others = "rank " + std::to_string(1 - group_->rank);
        group_->fail(others + " did not answer within " + seconds, what_,
                     "a rank died, hangs or is very slow: see its log; parallel.timeout_s is the limit");
      }
      std::this_thread::sleep_for(sleep);
      sleep = std::min(sleep * 2, microseconds(500));
    }
  }

 private:
  NcclGroupPtr group_;
  std::string what_;
  cudaEvent_t done_ = nullptr;
  bool launched_ = false, finished_ = false;
  Clock::time_point begun_ = Clock::now();
};

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> cpu, int device, void* producer_stream, double timeout_s)
      : cpu_(std::move(cpu)), group_(std::make_shared<NcclGroup>()) {
    group_->name = cpu_->name();
    group_->rank = cpu_->rank();
    group_->size = cpu_->size();
    group_->device = device;
    group_->timeout_s = timeout_s;
    group_->producer = static_cast<cudaStream_t>(producer_stream);
    check_cuda(cudaSetDevice(device), "choosing device " + std::to_string(device));
    check_cuda(cudaStreamCreateWithFlags(&group_->stream, cudaStreamNonBlocking), "making a stream");

    ncclUniqueId id{};
    if (rank() == 0) {
      const ncclResult_t result = ncclGetUniqueId(&id);
      if (result != ncclSuccess) throw Error("NCCL failed", ncclGetErrorString(result));
    }
    broadcast_now(*cpu_, &id, sizeof id, 0, timeout_s);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t begun = ncclCommInitRankConfig(&group_->comm, size(), id, rank(), &config);
    if (group_->comm == nullptr)
      throw Error("NCCL failed", ncclGetErrorString(begun), "", ExitCode::kPeerLost);
    group_->settle(begun, "connecting");
  }

  int rank() const override { return cpu_->rank(); }
  int size() const override { return cpu_->size(); }
  const std::string& name() const override { return cpu_->name(); }

  HandlePtr all_reduce(void* data, size_t count, DType dtype, ReduceOp op) override {
    check_reducible(dtype, op);
    return run("all-reduce", [&] {
      const size_t bytes = count * size_of(dtype);
      if (bytes <= kSmallAllReduceBytes) {
        // Own contribution first, then the others without mine: as the kernel wants them.
        std::byte* others = scratch((size() - 1) * bytes);
        exchange([&](int peer) { return std::pair<const void*, size_t>(data, bytes); },
                 [&](int slot) { return std::pair<void*, size_t>(others + slot * bytes, bytes); });
        check_cuda(launch_reduce_in_order(data, data, rank(), others, count, size(), count, dtype, op,
                                          group_->stream),
                   "all-reduce");
        free_scratch(others);
        return;
      }
      std::vector<size_t> counts(size());
      const size_t each = (count + size() - 1) / size();
      for (int r = 0; r < size(); ++r)
        counts[r] = std::min(count, each * (r + 1)) - std::min(count, each * r);
      const size_t before = std::min(count, each * rank()) * size_of(dtype);
      reduce_parts(data, static_cast<std::byte*>(data) + before, counts, dtype, op);
      gather_parts(static_cast<std::byte*>(data) + before, data, counts, dtype);
    });
  }
  HandlePtr reduce_scatter(const void* input, void* output, std::span<const size_t> counts, DType dtype,
                           ReduceOp op) override {
    check_reducible(dtype, op);
    check_parts(counts);
    return run("reduce-scatter", [&] { reduce_parts(input, output, counts, dtype, op); });
  }
  HandlePtr all_gather(const void* input, void* output, std::span<const size_t> counts,
                       DType dtype) override {
    check_parts(counts);
    return run("all-gather", [&] { gather_parts(input, output, counts, dtype); });
  }
  HandlePtr broadcast(void* data, size_t bytes, int root) override {
    check_peer(root, true);
    return run("broadcast", [&] {
      if (bytes == 0) return;
      group_->settle(ncclBroadcast(data, data, bytes, ncclUint8, root, group_->comm, group_->stream),
                     "broadcast");
    });
  }
  HandlePtr barrier() override {
    return run("barrier", [&] {
      std::byte* bytes = scratch(size());
      exchange(
          [&](int) { return std::pair<const void*, size_t>(bytes + rank(), 1); },
          [&](int slot) { return std::pair<void*, size_t>(bytes + (slot < rank() ? slot : slot + 1), 1); });
      free_scratch(bytes);
    });
  }
  HandlePtr send(const void* data, size_t bytes, int peer, int) override {
    check_peer(peer, false);
    return message("send", [=, g = group_.get()] {
      return bytes == 0 ? ncclSuccess : ncclSend(data, bytes, ncclUint8, peer, g->comm, g->stream);
    });
  }
  HandlePtr receive(void* data, size_t bytes, int peer, int) override {
    check_peer(peer, false);
    return message("receive", [=, g = group_.get()] {
      return bytes == 0 ? ncclSuccess : ncclRecv(data, bytes, ncclUint8, peer, g->comm, g->stream);
    });
  }
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override {
    auto part = cpu_->split(color, key, name);
    if (!part) return nullptr;
    return std::make_unique<NcclCommunicator>(std::move(part), group_->device, group_->producer,
                                              group_->timeout_s);
  }

 private:
  void begin() {
    group_->check_usable();
    check_cuda(cudaSetDevice(group_->device), "choosing the device");
    group_->flush_messages();
    wait_for_producer();
  }
  // The data may still be computed by the producer's stream.
  void wait_for_producer() {
    cudaEvent_t ready = nullptr;
    check_cuda(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming), "making an event");
    const int code = cudaEventRecord(ready, group_->producer);
    if (code == cudaSuccess) cudaStreamWaitEvent(group_->stream, ready, 0);
    cudaEventDestroy(ready);
    check_cuda(code, "waiting for the data");
  }
  template <typename F>
  HandlePtr run(const std::string& what, F launch) {
    begin();
    auto handle = std::make_unique<NcclHandle>(group_, what);
    launch();
    handle->launched();
    return handle;
  }
  HandlePtr message(const std::string& what, std::function<ncclResult_t()> call) {
    group_->check_usable();
    check_cuda(cudaSetDevice(group_->device), "choosing the device");
    wait_for_producer();
    group_->messages.push_back(std::move(call));
    return std::make_unique<NcclHandle>(group_, what);
  }

  std::byte* scratch(size_t bytes) {
    void* memory = nullptr;
    check_cuda(cudaMallocAsync(&memory, std::max<size_t>(bytes, 16), group_->stream),
               "getting " + std::to_string(bytes) + " bytes of device memory");
    return static_cast<std::byte*>(memory);
  }
  void free_scratch(void* memory) { cudaFreeAsync(memory, group_->stream); }

  // Pairwise: what goes to each peer, and where the contribution of the slot-th other rank comes to.
  template <typename Outgoing, typename Incoming>
  void exchange(Outgoing outgoing, Incoming incoming) {
    if (size() == 1) return;
    group_->group_calls("exchange", [&](auto run) {
      for (int peer = 0; peer < size(); ++peer) {
        if (peer == rank()) continue;
        const auto [from, sent] = outgoing(peer);
        const auto [to, got] = incoming(peer < rank() ? peer : peer - 1);
        if (sent > 0) run(ncclSend(from, sent, ncclUint8, peer, group_->comm, group_->stream));
        if (got > 0) run(ncclRecv(to, got, ncclUint8, peer, group_->comm, group_->stream));
      }
    });
  }
  void reduce_parts(const void* input, void* output, std::span<const size_t> counts, DType dtype,
                    ReduceOp op) {
    const size_t element = size_of(dtype), mine = counts[rank()] * element;
    std::vector<size_t> offsets(counts.size() + 1, 0);
    for (size_t r = 0; r < counts.size(); ++r) offsets[r + 1] = offsets[r] + counts[r] * element;
    const auto* bytes = static_cast<const std::byte*>(input);
    std::byte* others = scratch((size() - 1) * mine);
    exchange(
        [&](int peer) {
          return std::pair<const void*, size_t>(bytes + offsets[peer], counts[peer] * element);
        },
        [&](int slot) { return std::pair<void*, size_t>(others + slot * mine, mine); });
    check_cuda(launch_reduce_in_order(output, bytes + offsets[rank()], rank(), others, counts[rank()], size(),
                                      counts[rank()], dtype, op, group_->stream),
               "adding up");
    free_scratch(others);
  }
  void gather_parts(const void* input, void* output, std::span<const size_t> counts, DType dtype) {
    const size_t element = size_of(dtype), mine = counts[rank()] * element;
    std::vector<size_t> offsets(counts.size() + 1, 0);
    for (size_t r = 0; r < counts.size(); ++r) offsets[r + 1] = offsets[r] + counts[r] * element;
    std::byte* place = static_cast<std::byte*>(output) + offsets[rank()];
    if (place != input && mine > 0) {
      check_cuda(cudaMemcpyAsync(place, input, mine, cudaMemcpyDeviceToDevice, group_->stream), "all-gather");
    }
    exchange([&](int) { return std::pair<const void*, size_t>(place, mine); },
             [&](int slot) {
               const int peer = slot < rank() ? slot : slot + 1;
               return std::pair<void*, size_t>(static_cast<std::byte*>(output) + offsets[peer],
                                               counts[peer] * element);
             });
  }

  void check_parts(std::span<const size_t> counts) const {
    if (counts.size() == static_cast<size_t>(size())) return;
    throw Error("a part for each of " + std::to_string(counts.size()) + " ranks given",
                "group '" + name() + "' of " + std::to_string(size()) + " ranks");
  }
  void check_peer(int peer, bool self_allowed) const {
    if (peer >= 0 && peer < size() && (self_allowed || peer != rank())) return;
    throw Error("no such peer", "rank " + std::to_string(peer) + " of group '" + name() + "' of " +
                                    std::to_string(size()) + " ranks, seen from rank " +
                                    std::to_string(rank()));
  }

  std::unique_ptr<Communicator> cpu_;  // the same ranks; carries NCCL's id and splits
  NcclGroupPtr group_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& cpu, const std::string& name, int device,
                                                     void* producer_stream, double timeout_s) {
  return std::make_unique<NcclCommunicator>(cpu.split(0, cpu.rank(), name), device, producer_stream,
                                            timeout_s);
}

}  // namespace mso
