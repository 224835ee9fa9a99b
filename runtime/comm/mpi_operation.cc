// The machinery common to all operations: requests, polling, deadlines, cancellation.
#include "comm/mpi_operation.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <thread>

#include "base/log.h"

namespace mso {

using std::chrono::duration;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

constexpr size_t kPoolBuffers = 8;
// How long a wait polls without sleeping after the last sign of life, and how it sleeps then.
constexpr microseconds kSpin{20}, kShortSleep{50}, kLongSleep{500};
constexpr milliseconds kCancelPatience{20};
// How often a test of one operation also looks at the others of its group.
constexpr microseconds kSweepInterval{50};

const char* const kVerbTexts[kMpiVerbs] = {
    "message", "all-reduce", "reduce-scatter", "all-gather", "broadcast", "barrier", "?", "?"};

// Requests MPI would not give up, with the memory they may still read or write.
struct Grave {
  MpiGroupPtr group;
  std::vector<MPI_Request> requests;
  std::vector<BufferPool::Buffer> buffers;
};
std::mutex graves_mutex;
std::vector<Grave>& graves() {
  static auto* all = new std::vector<Grave>;  // never destroyed: MPI may outlive static objects
  return *all;
}

bool mpi_is_up() {
  int initialised = 0, finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  return initialised && !finalised;
}

std::string join_ranks(const std::set<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  size_t shown = 0;
  for (int r : ranks) {
    if (shown == 16) return text + " and " + std::to_string(ranks.size() - shown) + " more";
    text += (shown++ ? ", " : "") + std::to_string(r);
  }
  return text;
}

}  // namespace

BufferPool::Buffer BufferPool::take(size_t bytes) {
  auto best = buffers_.end();
  for (auto it = buffers_.begin(); it != buffers_.end(); ++it) {
    if (it->capacity >= bytes && (best == buffers_.end() || it->capacity < best->capacity)) best = it;
  }
  if (best != buffers_.end()) {
    Buffer buffer = std::move(*best);
    buffers_.erase(best);
    return buffer;
  }
  Buffer buffer;
  buffer.capacity = (bytes + 4095) / 4096 * 4096;
  buffer.data.reset(static_cast<std::byte*>(std::aligned_alloc(4096, buffer.capacity)));
  if (!buffer.data) throw std::bad_alloc();
  return buffer;
}

void BufferPool::give(Buffer buffer) {
  buffers_.push_back(std::move(buffer));
  if (buffers_.size() > kPoolBuffers) {  // the smallest is cheapest to get again
    buffers_.erase(std::min_element(buffers_.begin(), buffers_.end(), [](const Buffer& a, const Buffer& b) {
      return a.capacity < b.capacity;
    }));
  }
}

MpiGroup::~MpiGroup() {
  if (!mpi_is_up()) return;
  if (collectives != MPI_COMM_NULL) MPI_Comm_free(&collectives);
  if (messages != MPI_COMM_NULL) MPI_Comm_free(&messages);
}

void check_mpi(int code, const std::string& doing, const MpiGroup& group) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error("MPI failed: " + std::string(text, length), doing + ", group '" + group.name + "'",
              "another rank may have died: see its log", ExitCode::kPeerLost);
}

size_t chunk_bytes_for(size_t bytes) {
  // About 1 MiB: received and added up while still in the cache. Larger payloads in at most 64 pieces, as
  // each costs a request; 64 MiB at most, as MPI counts are int.
  constexpr size_t kMebi = size_t{1} << 20;
  return std::clamp((bytes / 64 + 4095) / 4096 * 4096, kMebi, 64 * kMebi);
}

MpiOperation::MpiOperation(MpiGroupPtr group, MpiVerb verb)
    : group_(std::move(group)), verb_text_(kVerbTexts[static_cast<int>(verb)]), comm_(group_->collectives) {
  number_ = group_->operations++;
  tag_ =
      static_cast<int>(number_ % ((group_->tag_limit + 1u) / kMpiVerbs)) * kMpiVerbs + static_cast<int>(verb);
  group_->unfinished.push_back(this);
  sweep_cancelled_operations();
}

MpiOperation::MpiOperation(MpiGroupPtr group, const char* verb_text, int tag)
    : group_(std::move(group)), verb_text_(verb_text), comm_(group_->messages), tag_(tag) {
  if (tag < 0 || tag > 32767) throw Error("message tag outside 0 … 32767", describe());
  group_->unfinished.push_back(this);
  sweep_cancelled_operations();
}

MpiOperation::~MpiOperation() {
  std::erase(group_->unfinished, this);
  if (done_ || requests_.empty()) {
    release_scratch();
    return;
  }
  if (!mpi_is_up()) {
    for (auto& buffer : scratch_) buffer.data.release();
    return;
  }
  // Receives not yet matched can be taken back; one in the middle of arriving is given a moment. Sends cannot
  // be cancelled in Open MPI: they stay until the peer takes them.
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (pending_[i].receive) MPI_Cancel(&requests_[i]);
  }
  const auto receives_left = [&] {
    size_t left = 0;
    for (size_t i = 0; i < requests_.size(); ++i) {
      int flag = 0;
      if (requests_[i] != MPI_REQUEST_NULL &&
          MPI_Test(&requests_[i], &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
        requests_[i] = MPI_REQUEST_NULL;
      }
      left += requests_[i] != MPI_REQUEST_NULL && pending_[i].receive;
    }
    return left;
  };
  const auto give_up = Clock::now() + kCancelPatience;
  while (receives_left() > 0 && Clock::now() < give_up) std::this_thread::sleep_for(kShortSleep);
  std::erase(requests_, MPI_REQUEST_NULL);
  if (requests_.empty()) {
    release_scratch();
    return;
  }
  std::lock_guard lock(graves_mutex);
  graves().push_back({group_, std::move(requests_), std::move(scratch_)});
}

void sweep_cancelled_operations() {
  std::vector<Grave> freed;  // destroyed outside the lock: may free a communicator
  std::lock_guard lock(graves_mutex);
  for (auto it = graves().begin(); it != graves().end();) {
    int all = 0;
    const int code =
        MPI_Testall(static_cast<int>(it->requests.size()), it->requests.data(), &all, MPI_STATUSES_IGNORE);
    if (code == MPI_SUCCESS && all) {
      freed.push_back(std::move(*it));
      it = graves().erase(it);
    } else {
      ++it;
    }
  }
}

void MpiOperation::release_scratch() {
  for (auto& buffer : scratch_) group_->pool.give(std::move(buffer));
  scratch_.clear();
}

std::byte* MpiOperation::scratch(size_t bytes) {
  scratch_.push_back(group_->pool.take(std::max<size_t>(bytes, 64)));
  return scratch_.back().data.get();
}

void MpiOperation::post_send(const void* data, size_t bytes, int peer) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag_, comm_, &request),
            "sending to rank " + std::to_string(peer), *group_);
  requests_.push_back(request);
  pending_.push_back({bytes, 0, peer, false});
}

void MpiOperation::post_receive(void* data, size_t bytes, int peer, size_t slot) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag_, comm_, &request),
            "receiving from rank " + std::to_string(peer), *group_);
  requests_.push_back(request);
  pending_.push_back({bytes, slot, peer, true});
}

bool MpiOperation::complete_some() {
  if (requests_.empty()) return false;
  const int n = static_cast<int>(requests_.size());
  // Per thread, as an operation is polled thousands of times.
  thread_local std::vector<int> indices;
  thread_local std::vector<MPI_Status> statuses;
  indices.resize(n);
  statuses.resize(n);
  int completed = 0;
  const int code = MPI_Testsome(n, requests_.data(), &completed, indices.data(), statuses.data());
  if (code == MPI_ERR_IN_STATUS) {
    for (int i = 0; i < completed; ++i) {
      if (statuses[i].MPI_ERROR == MPI_SUCCESS || statuses[i].MPI_ERROR == MPI_ERR_PENDING) continue;
      check_mpi(statuses[i].MPI_ERROR, describe() + " with rank " + std::to_string(pending_[indices[i]].peer),
                *group_);
    }
  } else {
    check_mpi(code, describe(), *group_);
  }
  if (completed == MPI_UNDEFINED || completed == 0) return false;

  std::vector<Pending> finished;
  for (int i = 0; i < completed; ++i) {
    const Pending& pending = pending_[indices[i]];
    if (!pending.receive) continue;
    int bytes = 0;
    MPI_Get_count(&statuses[i], MPI_BYTE, &bytes);
    if (static_cast<size_t>(bytes) != pending.bytes) {
      throw Error("ranks disagree on a message's size",
                  describe() + ": rank " + std::to_string(pending.peer) + " sent " + std::to_string(bytes) +
                      " bytes, expected " + std::to_string(pending.bytes),
                  "do all ranks run the same program and configuration?");
    }
    finished.push_back(pending);
  }
  size_t kept = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[kept] = requests_[i];
    pending_[kept++] = pending_[i];
  }
  requests_.resize(kept);
  pending_.resize(kept);
  completions_ += completed;
  for (const Pending& pending : finished) {
    if (pending.slot != kNoSlot) received(pending.slot);
  }
  return true;
}

bool MpiOperation::progress() {
  while (!done_) {
    const bool any = complete_some();
    if (!any && in_flight()) return false;
    advance();
    if (in_flight()) continue;
    done_ = true;
    std::erase(group_->unfinished, this);
    release_scratch();
  }
  return true;
}

// Operations of several rounds need their turn even when another one is waited for: ranks may wait in
// different orders.
void MpiOperation::progress_all() {
  group_->last_sweep = Clock::now();
  const std::vector<MpiOperation*> unfinished = group_->unfinished;  // progress() takes finished ones out
  for (MpiOperation* operation : unfinished) {
    if (operation->failure_) continue;
    try {
      operation->progress();
    } catch (...) {
      operation->failure_ = std::current_exception();
    }
  }
}

bool MpiOperation::test() {
  if (done_) return true;
  if (!failure_) {
    if (progress()) return true;
    if (Clock::now() - group_->last_sweep > kSweepInterval) progress_all();
  }
  if (failure_) std::rethrow_exception(failure_);
  return done_;
}

void MpiOperation::wait(Deadline deadline) {
  auto alive = Clock::now();
  uint64_t seen = completions_;
  auto sleep = kShortSleep;
  while (!test()) {
    const auto now = Clock::now();
    if (completions_ != seen) {
      seen = completions_;
      alive = now;
      sleep = kShortSleep;
    }
    if (now >= deadline) throw expired();
    if (now - alive < kSpin) continue;
    std::this_thread::sleep_for(std::min<Clock::duration>(sleep, deadline - now));
    sleep = std::min(sleep * 2, kLongSleep);
  }
}

std::string MpiOperation::describe() const {
  return comm_ == group_->messages ? std::string(verb_text_) + " with tag " + std::to_string(tag_) +
                                         " in group '" + group_->name + "'"
                                   : std::string(verb_text_) + " (operation " + std::to_string(number_) +
                                         ") in group '" + group_->name + "'";
}

Error MpiOperation::expired() const {
  std::set<int> receiving, sending;
  for (const Pending& pending : pending_) (pending.receive ? receiving : sending).insert(pending.peer);
  const std::set<int>& missing = receiving.empty() ? sending : receiving;
  // A peer that is alive but elsewhere has often sent something: say what, as the ranks' programs differ
  // then.
  std::string elsewhere;
  for (int peer : receiving) {
    int flag = 0;
    MPI_Status status;
    if (MPI_Iprobe(peer, MPI_ANY_TAG, comm_, &flag, &status) != MPI_SUCCESS || !flag) continue;
    if (status.MPI_TAG == tag_) continue;
    elsewhere += "; rank " + std::to_string(peer) + " has sent ";
    elsewhere += comm_ == group_->messages
                     ? "a message with tag " + std::to_string(status.MPI_TAG)
                     : std::string(kVerbTexts[status.MPI_TAG % kMpiVerbs]) + " (operation " +
                           std::to_string(status.MPI_TAG / kMpiVerbs) + ")";
  }
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f s", duration<double>(Clock::now() - begun_).count());
  return Error(
      join_ranks(missing) + " did not answer rank " + std::to_string(group_->rank) + " within " + seconds,
      describe() + elsewhere,
      elsewhere.empty()
          ? "a rank died, hangs or is very slow: see its log; parallel.timeout_s is the limit"
          : "the ranks are not at the same place: do all run the same program and configuration?",
      ExitCode::kPeerLost);
}

}  // namespace mso
