// Work that does not come back never holds anybody longer than he wants to wait.
#include "io/io_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"

namespace mso {
namespace {

using namespace std::chrono_literals;
using Clock = IoPool::Clock;

// What hangs, until it is let go.
class Gate {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void await(int waiting) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= waiting; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool open_ = false;
};

TEST(IoPool, RunsEverythingAndPassesErrorsOn) {
  IoPool pool(3, 4);
  std::atomic<int> sum = 0;
  std::vector<std::shared_ptr<IoPool::Job>> jobs;
  for (int i = 1; i <= 100; ++i) jobs.push_back(pool.start([&sum, i] { sum += i; }));
  for (const auto& job : jobs) EXPECT_TRUE(pool.wait_until(*job, Clock::now() + 60s));
  EXPECT_EQ(sum, 5050);
  const auto bad = pool.start([] { throw Error("broken", "disk"); });
  EXPECT_THROW(pool.wait_until(*bad, Clock::now() + 60s), Error);
  EXPECT_EQ(pool.left_behind(), 0u);
}

TEST(IoPool, AStuckThreadIsReplaced) {
  auto gate = std::make_shared<Gate>();
  {
    IoPool pool(1, 4);
    const auto stuck = pool.start([gate] { gate->wait(); });
    EXPECT_FALSE(pool.wait_until(*stuck, Clock::now() + 10ms));
    pool.leave(stuck);
    pool.leave(stuck);  // once is enough
    EXPECT_EQ(pool.left_behind(), 1u);
    EXPECT_EQ(pool.stuck(), 1);
    const auto next = pool.start([] {});
    EXPECT_TRUE(pool.wait_until(*next, Clock::now() + 60s));
    gate->open();
    EXPECT_TRUE(pool.wait_until(*stuck, Clock::now() + 60s));  // it came back after all
    const auto last = pool.start([] {});
    EXPECT_TRUE(pool.wait_until(*last, Clock::now() + 60s));
  }
}

TEST(IoPool, UpToALimit) {
  auto gate = std::make_shared<Gate>();
  IoPool pool(2, 3);
  int refused = 0;
  for (int i = 0; i < 8; ++i) {
    try {
      const auto job = pool.start([gate] { gate->wait(); });
      gate->await(i + 1);
      pool.leave(job);
    } catch (const Error& error) {
      ++refused;
      EXPECT_NE(std::string(error.what()).find("mdp.read_deadline_ms"), std::string::npos);
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_LE(pool.stuck(), 5);
  gate->open();
  // With the storage back there is room again.
  for (int i = 0; i < 1000 && pool.stuck() > 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(pool.stuck(), 0);
  EXPECT_TRUE(pool.wait_until(*pool.start([] {}), Clock::now() + 60s));
}

TEST(IoPool, WhatWaitsInTheQueueIsTakenOut) {
  auto gate = std::make_shared<Gate>();
  IoPool pool(1, 0);
  const auto running = pool.start([gate] { gate->wait(); });
  gate->await(1);
  std::atomic<bool> ran = false;
  const auto queued = pool.start([&ran] { ran = true; });
  EXPECT_FALSE(pool.wait_until(*queued, Clock::now() + 5ms));
  pool.leave(queued);
  EXPECT_EQ(pool.stuck(), 0);
  gate->open();
  EXPECT_TRUE(pool.wait_until(*running, Clock::now() + 60s));
  EXPECT_TRUE(pool.wait_until(*pool.start([] {}), Clock::now() + 60s));
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace mso
