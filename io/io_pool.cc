#include "io/io_pool.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "node/thread_place.h"

namespace mso {

class IoPool::Job {
 public:
  enum { kQueued, kRunning, kDone } state = kQueued;
  bool left = false;
  std::function<void()> work, ended;
  std::exception_ptr failure;
};

struct IoPool::Shared : std::enable_shared_from_this<IoPool::Shared> {
  std::mutex mutex;
  std::condition_variable queued, done;
  std::deque<std::shared_ptr<Job>> queue;
  int threads = 0;   // that take work: not stuck
  int idle = 0;      // of those, without work
  int wanted = 0;
  int stuck = 0;     // behind jobs that were left
  int most_left = 0;
  uint64_t left_behind = 0;
  bool stop = false;

  void add_thread() {  // with the lock held
    ++threads;
    std::thread([self = shared_from_this()] { self->run(); }).detach();
  }

  void run() {
    pthread_setname_np(pthread_self(), "mso-read");
    (void)place_this_thread(ThreadClass::kImage);  // the decoders say where that is not possible
    std::unique_lock lock(mutex);
    for (;;) {
      ++idle;
      queued.wait(lock, [&] { return stop || !queue.empty(); });
      --idle;
      if (stop) break;
      std::shared_ptr<Job> job = std::move(queue.front());
      queue.pop_front();
      job->state = Job::kRunning;
      lock.unlock();
      std::exception_ptr failure;
      try {
        job->work();
      } catch (...) {
        failure = std::current_exception();
      }
      job->work = nullptr;  // what it holds is freed here and not under the lock
      lock.lock();
      job->failure = failure;
      job->state = Job::kDone;
      done.notify_all();
      if (job->ended) {
        lock.unlock();
        job->ended();
        job->ended = nullptr;
        lock.lock();
      }
      if (job->left) {  // it came back after all; another one took its place, or the pool has room again
        --stuck;
        if (stop || threads >= wanted) return;
        ++threads;
      }
    }
    --threads;
    done.notify_all();
  }
};

IoPool::IoPool(int threads, int most_left_behind) : shared_(std::make_shared<Shared>()) {
  std::lock_guard lock(shared_->mutex);
  shared_->most_left = most_left_behind;
  shared_->wanted = std::max(1, threads);
}

IoPool::~IoPool() {
  std::unique_lock lock(shared_->mutex);
  shared_->stop = true;
  shared_->queue.clear();
  shared_->queued.notify_all();
  if (!shared_->done.wait_for(lock, std::chrono::seconds(2), [&] { return shared_->threads == 0; }))
    log_warn("{} threads still wait for storage; they are left behind", shared_->threads);
}

std::shared_ptr<IoPool::Job> IoPool::start(std::function<void()> work) { return start(std::move(work), {}); }

std::shared_ptr<IoPool::Job> IoPool::start(std::function<void()> work, std::function<void()> ended) {
  auto job = std::make_shared<Job>();
  job->work = std::move(work);
  job->ended = std::move(ended);
  std::lock_guard lock(shared_->mutex);
  if (shared_->threads < shared_->wanted && static_cast<size_t>(shared_->idle) <= shared_->queue.size() &&
      shared_->stuck <= shared_->most_left)
    shared_->add_thread();
  if (shared_->threads == 0)
    throw Error("every thread that reads is stuck in a read that does not come back",
                std::to_string(shared_->stuck) + " threads", "is a mount dead? see mdp.read_deadline_ms");
  shared_->queue.push_back(job);
  shared_->queued.notify_one();
  return job;
}

bool IoPool::wait_until(Job& job, Clock::time_point deadline) {
  std::unique_lock lock(shared_->mutex);
  if (!shared_->done.wait_until(lock, deadline, [&] { return job.state == Job::kDone; })) return false;
  if (job.failure) std::rethrow_exception(job.failure);
  return true;
}

void IoPool::leave(const std::shared_ptr<Job>& job) {
  std::function<void()> dropped;
  std::lock_guard lock(shared_->mutex);
  if (job->state == Job::kDone || job->left) return;
  if (job->state == Job::kQueued) {
    std::erase(shared_->queue, job);
    dropped = std::move(job->work);
    job->state = Job::kDone;
    return;
  }
  job->left = true;
  ++shared_->left_behind;
  ++shared_->stuck;
  --shared_->threads;
  if (shared_->stuck <= shared_->most_left && !shared_->queue.empty()) shared_->add_thread();
}

uint64_t IoPool::left_behind() const {
  std::lock_guard lock(shared_->mutex);
  return shared_->left_behind;
}

int IoPool::stuck() const {
  std::lock_guard lock(shared_->mutex);
  return shared_->stuck;
}

}  // namespace mso
