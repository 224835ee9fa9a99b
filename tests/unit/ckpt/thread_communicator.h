// A Communicator of threads in one process, for tests: same meaning as the MPI one, and ranks can be "lost".
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"

namespace mso::testing {

class ThreadGroup : public std::enable_shared_from_this<ThreadGroup> {
 public:
  explicit ThreadGroup(int size, std::string name = "test")
      : size_(size), name_(std::move(name)), done_(size) {}

  std::unique_ptr<Communicator> join(int rank);
  int size() const { return size_; }
  const std::string& name() const { return name_; }

  // A round of a collective: what each rank brought.
  struct Round {
    std::vector<std::vector<char>> parts;
    int arrived = 0;
  };
  std::shared_ptr<Round> arrive(int rank, const void* data, size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& round = rounds_[done_[rank]++];
    if (!round) {
      round = std::make_shared<Round>();
      round->parts.resize(size_);
    }
    round->parts[rank].assign(static_cast<const char*>(data), static_cast<const char*>(data) + bytes);
    ++round->arrived;
    return round;
  }
  bool complete(const Round& round) {
    std::lock_guard<std::mutex> lock(mutex_);
    return round.arrived == size_;
  }

  using Message = std::vector<char>;
  void put(int from, int to, int tag, Message message) {
    std::lock_guard<std::mutex> lock(mutex_);
    mail_[{from, to, tag}].push_back(std::move(message));
  }
  bool take(int from, int to, int tag, Message& message) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& box = mail_[{from, to, tag}];
    if (box.empty()) return false;
    message = std::move(box.front());
    box.pop_front();
    return true;
  }
  std::shared_ptr<ThreadGroup> child(const std::string& name) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& group = children_[name];
    if (!group) group = std::make_shared<ThreadGroup>(size_, name);
    return group;
  }

 private:
  int size_;
  std::string name_;
  std::mutex mutex_;
  std::vector<size_t> done_;
  std::map<size_t, std::shared_ptr<Round>> rounds_;
  std::map<std::tuple<int, int, int>, std::deque<Message>> mail_;
  std::map<std::string, std::shared_ptr<ThreadGroup>> children_;
};

class ThreadHandle : public Handle {
 public:
  explicit ThreadHandle(std::function<bool()> poll) : poll_(std::move(poll)) {}
  bool test() override { return done_ = done_ || poll_(); }
  void wait(Deadline deadline) override {
    while (!test()) {
      if (Clock::now() > deadline)
        throw Error("no answer from a rank", "test group", "", ExitCode::kPeerLost);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

 private:
  std::function<bool()> poll_;
  bool done_ = false;
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  const std::string& name() const override { return group_->name(); }

  HandlePtr all_reduce(void* data, size_t count, DType dtype, ReduceOp) override {  // kF64, kSum alone
    if (dtype != DType::kF64) throw Error("not in this test double", "");
    return collective(data, count * 8, [=](ThreadGroup::Round& round) {
      double* to = static_cast<double*>(data);
      std::fill(to, to + count, 0.0);
      for (auto& part : round.parts)
        for (size_t i = 0; i < count; ++i) {
          double value;
          std::memcpy(&value, part.data() + 8 * i, 8);
          to[i] += value;
        }
    });
  }
  HandlePtr reduce_scatter(const void*, void*, std::span<const size_t>, DType, ReduceOp) override {
    throw Error("not in this test double", "");
  }
  HandlePtr all_gather(const void* input, void* output, std::span<const size_t> counts,
                       DType dtype) override {
    return collective(input, counts[rank_] * size_of(dtype), [=](ThreadGroup::Round& round) {
      char* to = static_cast<char*>(output);
      for (auto& part : round.parts) {
        if (!part.empty()) std::memcpy(to, part.data(), part.size());
        to += part.size();
      }
    });
  }
  HandlePtr broadcast(void* data, size_t bytes, int root) override {
    return collective(data, rank_ == root ? bytes : 0,
                      [=](ThreadGroup::Round& round) { std::memcpy(data, round.parts[root].data(), bytes); });
  }
  HandlePtr barrier() override {
    return collective(nullptr, 0, [](ThreadGroup::Round&) {});
  }
  HandlePtr send(const void* data, size_t bytes, int peer, int tag) override {
    const char* from = static_cast<const char*>(data);
    group_->put(rank_, peer, tag, {from, from + bytes});
    return std::make_unique<ThreadHandle>([] { return true; });
  }
  HandlePtr receive(void* data, size_t bytes, int peer, int tag) override {
    return std::make_unique<ThreadHandle>([=, group = group_, rank = rank_] {
      ThreadGroup::Message message;
      if (!group->take(peer, rank, tag, message)) return false;
      if (message.size() != bytes) throw Error("message of another size", std::to_string(message.size()));
      std::memcpy(data, message.data(), bytes);
      return true;
    });
  }
  std::unique_ptr<Communicator> split(int, int, const std::string& name) override {
    return group_->child(name + "#" + std::to_string(splits_++))->join(rank_);
  }

 private:
  HandlePtr collective(const void* data, size_t bytes, std::function<void(ThreadGroup::Round&)> finish) {
    auto round = group_->arrive(rank_, data, bytes);
    return std::make_unique<ThreadHandle>([=, group = group_] {
      if (!group->complete(*round)) return false;
      finish(*round);
      return true;
    });
  }
  std::shared_ptr<ThreadGroup> group_;
  int rank_;
  int splits_ = 0;
};

inline std::unique_ptr<Communicator> ThreadGroup::join(int rank) {
  return std::make_unique<ThreadCommunicator>(shared_from_this(), rank);
}

}  // namespace mso::testing
