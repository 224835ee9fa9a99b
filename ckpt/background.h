// A thread that does jobs one after the other, in the order they were given.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "comm/communicator.h"

namespace mso {

class BackgroundWorker {
 public:
  explicit BackgroundWorker(std::string thread_name);  // at most 15 characters, shown by top -H
  // Drops jobs that have not begun and waits for the running one, for `patience_s` at most: a thread that
  // hangs in a dead file system is left behind (so a job must keep alive what it uses).
  ~BackgroundWorker();
  BackgroundWorker(const BackgroundWorker&) = delete;

  // The job may not throw.
  void post(std::function<void()> job);
  // False where jobs are left at `deadline`.
  bool wait_idle(Deadline deadline);

  static constexpr double kPatienceS = 10;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> jobs;
    bool running = false, stop = false, ended = false;
  };
  static void run(std::shared_ptr<State> state, std::string name);
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace mso
