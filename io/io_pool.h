// Threads for work that may never come back (a read of a dead network mount cannot be interrupted). Nobody waits longer
// than he wants: a stuck thread is left behind and replaced, up to a limit.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

namespace mso {

class IoPool {
 public:
  using Clock = std::chrono::steady_clock;
  class Job;

  // Threads start as they are needed. `most_left_behind`: stuck threads that are replaced; beyond that the pool shrinks, and with no thread left start()
  // throws.
  IoPool(int threads, int most_left_behind);
  ~IoPool();  // waits for idle threads only
  IoPool(const IoPool&) = delete;
  IoPool& operator=(const IoPool&) = delete;

  // Work runs as soon as a thread is free, in the order of start(). It must own what it writes to, for it may run on
  // after everybody has left; what it throws, wait_until() throws. Error where every thread is stuck.
  std::shared_ptr<Job> start(std::function<void()> work);
  // True: done. False: not by then; the job goes on and may be waited for again.
  bool wait_until(Job& job, Clock::time_point deadline);
  // Nobody will wait for it any more: it is taken out of the queue, or its thread is replaced.
  void leave(const std::shared_ptr<Job>& job);
  // For work that nobody waits for: called on the thread when the job has ended (not where it was taken out of the queue).
  std::shared_ptr<Job> start(std::function<void()> work, std::function<void()> ended);

  uint64_t left_behind() const;  // so far
  int stuck() const;             // now

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace mso
