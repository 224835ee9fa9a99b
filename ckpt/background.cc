#include "ckpt/background.h"

#include <pthread.h>
#include <signal.h>

#include "base/log.h"

namespace mso {

BackgroundWorker::BackgroundWorker(std::string thread_name) : state_(std::make_shared<State>()) {
  // Signals are the trainer's: the thread is born with all of them blocked.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread(run, state_, std::move(thread_name));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

BackgroundWorker::~BackgroundWorker() {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->stop = true;
  state_->jobs.clear();
  state_->changed.notify_all();
  if (state_->changed.wait_until(lock, deadline_in(kPatienceS), [&] { return state_->ended; })) {
    lock.unlock();
    thread_.join();
  } else {
    log_warn("a snapshot is still being written and does not end: its thread is left behind");
    thread_.detach();
  }
}

void BackgroundWorker::post(std::function<void()> job) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->jobs.push_back(std::move(job));
  state_->changed.notify_all();
}

bool BackgroundWorker::wait_idle(Deadline deadline) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  return state_->changed.wait_until(lock, deadline, [&] { return state_->jobs.empty() && !state_->running; });
}

void BackgroundWorker::run(std::shared_ptr<State> state, std::string name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  std::unique_lock<std::mutex> lock(state->mutex);
  for (;;) {
    state->changed.wait(lock, [&] { return state->stop || !state->jobs.empty(); });
    if (state->stop) break;
    std::function<void()> job = std::move(state->jobs.front());
    state->jobs.pop_front();
    state->running = true;
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
    state->running = false;
    state->changed.notify_all();
  }
  state->ended = true;
  state->changed.notify_all();
}

}  // namespace mso
