#include "comm/communicator.h"

#include <cstring>

#include "base/error.h"
#include "comm/reduce.h"

namespace mso {

void all_reduce_now(Communicator& group, void* data, size_t count, DType dtype, ReduceOp op,
                    double timeout_s) {
  group.all_reduce(data, count, dtype, op)->wait(deadline_in(timeout_s));
}

void broadcast_now(Communicator& group, void* data, size_t bytes, int root, double timeout_s) {
  group.broadcast(data, bytes, root)->wait(deadline_in(timeout_s));
}

void barrier_now(Communicator& group, double timeout_s) {
  group.barrier()->wait(deadline_in(timeout_s));
}

std::vector<std::string> all_gather_text(Communicator& group, const std::string& mine, double timeout_s) {
  const Deadline deadline = deadline_in(timeout_s);
  const size_t n = group.size();
  std::vector<uint64_t> lengths(n);
  const uint64_t length = mine.size();
  group.all_gather(&length, lengths.data(), std::vector<size_t>(n, 1), DType::kU64)->wait(deadline);

  std::vector<size_t> counts(lengths.begin(), lengths.end());
  size_t total = 0;
  for (size_t count : counts) total += count;
  std::string joined(total, '\0');
  group.all_gather(mine.data(), joined.data(), counts, DType::kU8)->wait(deadline);

  std::vector<std::string> texts;
  size_t offset = 0;
  for (size_t count : counts) {
    texts.push_back(joined.substr(offset, count));
    offset += count;
  }
  return texts;
}

namespace {

class DoneHandle : public Handle {
 public:
  bool test() override { return true; }
  void wait(Deadline) override {}
};

class SingleCommunicator : public Communicator {
 public:
  explicit SingleCommunicator(std::string name) : name_(std::move(name)) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::string& name() const override { return name_; }

  HandlePtr all_reduce(void*, size_t, DType dtype, ReduceOp op) override {
    check_reducible(dtype, op);
    return std::make_unique<DoneHandle>();
  }
  HandlePtr reduce_scatter(const void* input, void* output, std::span<const size_t> counts, DType dtype,
                           ReduceOp op) override {
    check_reducible(dtype, op);
    return copy(input, output, counts, dtype);
  }
  HandlePtr all_gather(const void* input, void* output, std::span<const size_t> counts,
                       DType dtype) override {
    return copy(input, output, counts, dtype);
  }
  HandlePtr broadcast(void*, size_t, int root) override {
    check_peer("broadcast", root);
    return std::make_unique<DoneHandle>();
  }
  HandlePtr barrier() override { return std::make_unique<DoneHandle>(); }
  // Nobody is there to send to, and a message to oneself would need buffering: a mistake of the caller.
  HandlePtr send(const void*, size_t, int peer, int) override { throw no_peer("send", peer); }
  HandlePtr receive(void*, size_t, int peer, int) override { throw no_peer("receive", peer); }

  std::unique_ptr<Communicator> split(int color, int, const std::string& name) override {
    return color < 0 ? nullptr : make_single_communicator(name);
  }

 private:
  HandlePtr copy(const void* input, void* output, std::span<const size_t> counts, DType dtype) {
    if (counts.size() != 1) {
      throw Error("a part for each of " + std::to_string(counts.size()) + " ranks given",
                  "group '" + name_ + "' of one rank");
    }
    const size_t bytes = counts[0] * size_of(dtype);
    if (input != output && bytes > 0) std::memmove(output, input, bytes);
    return std::make_unique<DoneHandle>();
  }
  Error no_peer(const char* verb, int peer) const {
    return Error(std::string(verb) + " needs another rank",
                 "rank " + std::to_string(peer) + " of group '" + name_ + "', which has one rank");
  }
  void check_peer(const char* verb, int peer) const {
    if (peer != 0) throw no_peer(verb, peer);
  }

  std::string name_;
};

}  // namespace

std::unique_ptr<Communicator> make_single_communicator(const std::string& name) {
  return std::make_unique<SingleCommunicator>(name);
}

}  // namespace mso
