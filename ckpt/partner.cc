#include "ckpt/partner.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/hash.h"
#include "base/kill_point.h"
#include "ckpt/shard_file.h"

namespace mso {

std::vector<int> choose_partners(const std::vector<std::string>& nodes) {
  const int n = static_cast<int>(nodes.size());
  if (n < 2) return {};
  // Ranks grouped by node, the biggest node first. Shifting by the biggest group's size leaves a group for
  // every rank where no node has more than half of them, and for all that can leave it otherwise.
  std::map<std::string, std::vector<int>> by_node;
  for (int r = 0; r < n; ++r) by_node[nodes[r]].push_back(r);
  std::vector<std::vector<int>> groups;
  for (auto& [node, ranks] : by_node) groups.push_back(std::move(ranks));
  std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() > b.size() : a.front() < b.front();
  });
  std::vector<int> order;
  for (const auto& group : groups) order.insert(order.end(), group.begin(), group.end());
  const int largest = static_cast<int>(groups.front().size());
  const int shift = largest == n ? 1 : largest;
  std::vector<int> partners(n);
  for (int i = 0; i < n; ++i) partners[order[i]] = order[(i + shift) % n];
  return partners;
}

namespace {

constexpr uint64_t kPieceBytes = 4 * kHashChunkBytes;

// First message: the size of what follows (0: nothing) and the file's header.
struct Announcement {
  uint64_t size = 0;
  char header[kHeaderBytes] = {};
};

void wait(Handle& handle, const ExchangeJob& job, const char* what, int peer) {
  const Deadline deadline = deadline_in(job.timeout_s);
  for (int spins = 0; !handle.test(); ++spins) {
    if (job.cancelled && job.cancelled()) throw Error("partner copy given up", what);
    if (Clock::now() > deadline)
      throw Error("no answer from a partner rank",
                  std::string(what) + " rank " + std::to_string(peer) + " for " +
                      std::to_string(job.timeout_s) + " s",
                  "", ExitCode::kPeerLost);
    std::this_thread::sleep_for(std::chrono::microseconds(std::min(50 + spins * 10, 1000)));
  }
}

uint64_t pieces_of(uint64_t size) {
  return size <= kHeaderBytes ? 0 : (size - kHeaderBytes + kPieceBytes - 1) / kPieceBytes;
}

// The incoming copy on its way into a file.
class Incoming {
 public:
  Incoming(const ExchangeJob& job, const Announcement& announced) : job_(job) {
    try {
      if (announced.size == 0)
        throw Error("rank " + std::to_string(job.from) + " has no file of its own", "");
      block_.assign(announced.header, kHeaderBytes);
      header_ = decode_header(block_, "partner copy from rank " + std::to_string(job.from));
      if (header_.size != announced.size || header_.step != job.step || header_.attempt != job.attempt ||
          header_.delta != job.delta || header_.run_id != job.run_id)
        throw Error("partner copy is of another snapshot", "rank " + std::to_string(job.from));
      file_ = job.open_copy();
      pwrite_all(file_.fd(), std::string(kHeaderBytes, '\0').data(), kHeaderBytes, 0, file_.path());
    } catch (const std::exception& e) {
      problem_ = e.what();
    }
  }

  void take(const char* data, size_t size, uint64_t offset) {
    if (!problem_.empty()) return;
    try {
      for (size_t at = 0; at < size; at += kHashChunkBytes) {
        const size_t n = std::min<size_t>(kHashChunkBytes, size - at);
        hashes_.push_back(hash64(data + at, n));
        pwrite_all(file_.fd(), data + at, n, offset + at, file_.path());
      }
      if (!half_passed_ && 2 * (offset + size) >= header_.size) {
        half_passed_ = true;
        kill_point("_after_half_received", job_.kill_prefix);
      }
    } catch (const std::exception& e) {
      problem_ = e.what();
      file_ = GenerationFile();  // gives the space back
    }
  }

  std::string finish() {
    if (!problem_.empty()) return problem_;
    try {
      if (hash64(hashes_.data(), hashes_.size() * sizeof(uint64_t)) != header_.checksum)
        throw Error("partner copy was altered on the way", "from rank " + std::to_string(job_.from));
      file_.cut(header_.size);
      pwrite_all(file_.fd(), block_.data(), block_.size(), 0, file_.path());
      kill_point("_before_rename", job_.kill_prefix);
      job_.publish_copy(file_);
      kill_point("_after_rename", job_.kill_prefix);
    } catch (const std::exception& e) {
      problem_ = e.what();
    }
    return problem_;
  }

 private:
  const ExchangeJob& job_;
  std::string block_, problem_;
  ShardHeader header_;
  GenerationFile file_;
  std::vector<uint64_t> hashes_;
  bool half_passed_ = false;
};

}  // namespace

std::string exchange_copies(Communicator& group, const ExchangeJob& job) {
  kill_point("_begin", job.kill_prefix);
  Announcement mine, theirs;
  if (job.own_fd >= 0) {
    pread_all(job.own_fd, mine.header, kHeaderBytes, 0, job.own_path);
    mine.size = decode_header({mine.header, kHeaderBytes}, job.own_path).size;
  }
  {
    HandlePtr in = group.receive(&theirs, sizeof theirs, job.from, job.tag);
    HandlePtr out = group.send(&mine, sizeof mine, job.to, job.tag);
    wait(*in, job, "waiting for the copy of", job.from);
    wait(*out, job, "sending a copy to", job.to);
  }
  Incoming incoming(job, theirs);
  const uint64_t out_pieces = pieces_of(mine.size), in_pieces = pieces_of(theirs.size);
  auto piece = [](uint64_t i, uint64_t size) {
    const uint64_t begin = kHeaderBytes + i * kPieceBytes;
    return std::pair<uint64_t, size_t>(begin, std::min(kPieceBytes, size - begin));
  };
  // Two buffers each way: the next piece travels while the last one is written. Handles die before buffers.
  std::unique_ptr<char[]> in_buffer[2], out_buffer[2];
  HandlePtr in_handle[2], out_handle[2];
  for (int i = 0; i < 2; ++i) {
    if (in_pieces) in_buffer[i] = std::make_unique_for_overwrite<char[]>(kPieceBytes);
    if (out_pieces) out_buffer[i] = std::make_unique_for_overwrite<char[]>(kPieceBytes);
  }
  auto post = [&](uint64_t i) {
    if (i < in_pieces)
      in_handle[i % 2] =
          group.receive(in_buffer[i % 2].get(), piece(i, theirs.size).second, job.from, job.tag);
    if (i < out_pieces) {
      auto [begin, size] = piece(i, mine.size);
      pread_all(job.own_fd, out_buffer[i % 2].get(), size, begin, job.own_path);
      out_handle[i % 2] = group.send(out_buffer[i % 2].get(), size, job.to, job.tag);
    }
  };
  const uint64_t rounds = std::max(in_pieces, out_pieces);
  if (rounds) post(0);
  for (uint64_t i = 0; i < rounds; ++i) {
    if (i + 1 < rounds) post(i + 1);
    if (i < in_pieces) {
      wait(*in_handle[i % 2], job, "receiving the copy of", job.from);
      auto [begin, size] = piece(i, theirs.size);
      incoming.take(in_buffer[i % 2].get(), size, begin);
    }
    if (i < out_pieces) wait(*out_handle[i % 2], job, "sending a copy to", job.to);
  }
  return incoming.finish();
}

}  // namespace mso
