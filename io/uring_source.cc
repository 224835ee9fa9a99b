// Direct asynchronous reads: a range is cut into aligned blocks, several of which are in flight at a time into buffers
// that the kernel knows beforehand (registered), and copied out from there.
#if __has_include(<config.h>)
#include <config.h>
#endif
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "io/source.h"
#include "io/source_files.h"

#ifdef MSO_HAVE_URING
#include <liburing.h>
#endif

namespace mso {

#ifdef MSO_HAVE_URING
namespace {

constexpr unsigned kInFlight = 8;
constexpr size_t kBlock = size_t{256} << 10;  // a multiple of every alignment there is

// A ring with its buffers, used by one read at a time.
class Ring {
 public:
  // errno of io_uring_queue_init or of registering the buffers; 0: ready.
  int open() {
    const int result = ::io_uring_queue_init(kInFlight, &ring_, 0);
    if (result < 0) return -result;
    ready_ = true;
    void* memory = ::mmap(nullptr, kInFlight * kBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return errno;
    memory_ = static_cast<std::byte*>(memory);
    iovec buffers[kInFlight];
    for (unsigned i = 0; i < kInFlight; ++i) buffers[i] = {memory_ + i * kBlock, kBlock};
    // The limit of locked memory may forbid it; reads then go to the same buffers unregistered.
    registered_ = ::io_uring_register_buffers(&ring_, buffers, kInFlight) == 0;
    return 0;
  }
  ~Ring() {
    if (ready_) ::io_uring_queue_exit(&ring_);
    if (memory_) ::munmap(memory_, kInFlight * kBlock);
  }
  bool registered() const { return registered_; }

  void read(int fd, uint64_t alignment, uint64_t offset, std::span<std::byte> to, const std::filesystem::path& path) {
    const uint64_t end = offset + to.size();
    uint64_t next = offset / alignment * alignment;  // the next block to ask for
    struct Asked {
      uint64_t at = 0;
      size_t size = 0;
    } asked[kInFlight];
    unsigned in_flight = 0;
    std::vector<unsigned> free;
    for (unsigned i = kInFlight; i-- > 0;) free.push_back(i);
    int failed = 0;
    bool short_file = false;
    auto submit = [&](unsigned buffer) {
      io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);  // there is one: never more in flight than the ring has
      std::byte* place = memory_ + buffer * kBlock;
      if (registered_)
        ::io_uring_prep_read_fixed(sqe, fd, place, static_cast<unsigned>(asked[buffer].size), asked[buffer].at,
                                   static_cast<int>(buffer));
      else
        ::io_uring_prep_read(sqe, fd, place, static_cast<unsigned>(asked[buffer].size), asked[buffer].at);
      ::io_uring_sqe_set_data64(sqe, buffer);
      ++in_flight;
    };
    while (true) {
      while (!failed && !short_file && next < end && !free.empty()) {
        const unsigned buffer = free.back();
        free.pop_back();
        const uint64_t up_to = (end + alignment - 1) / alignment * alignment;
        asked[buffer] = {next, static_cast<size_t>(std::min<uint64_t>(kBlock, up_to - next))};
        next += asked[buffer].size;
        submit(buffer);
      }
      if (in_flight == 0) break;
      const int submitted = ::io_uring_submit_and_wait(&ring_, 1);
      if (submitted < 0 && submitted != -EINTR && submitted != -EAGAIN && submitted != -EBUSY)
        throw system_error("cannot read", path.string(), -submitted);
      io_uring_cqe* cqe = nullptr;
      while (::io_uring_peek_cqe(&ring_, &cqe) == 0 && cqe) {
        const auto buffer = static_cast<unsigned>(::io_uring_cqe_get_data64(cqe));
        const int got = cqe->res;
        ::io_uring_cqe_seen(&ring_, cqe);
        --in_flight;
        Asked& block = asked[buffer];
        if (got == -EINTR || got == -EAGAIN) {
          if (!failed) {
            submit(buffer);
            continue;
          }
        } else if (got < 0) {
          failed = -got;
        } else {
          // The part of the block that was asked for. Only the end of the file may cut it.
          const uint64_t from = std::max(block.at, offset), upto = std::min(block.at + block.size, end);
          const uint64_t have = block.at + static_cast<uint64_t>(got);
          if (have > from)
            std::memcpy(to.data() + (from - offset), memory_ + buffer * kBlock + (from - block.at),
                        std::min(have, upto) - from);
          if (have < upto) short_file = true;
        }
        free.push_back(buffer);
      }
    }
    if (failed) throw system_error("cannot read", path.string(), failed);
    if (short_file) throw Error("file ends too early", path.string() + " before byte " + std::to_string(end), "the file is truncated");
  }

 private:
  io_uring ring_{};
  std::byte* memory_ = nullptr;
  bool ready_ = false, registered_ = false;
};

class UringSource : public Source {
 public:
  UringSource(std::string name, std::filesystem::path folder, unsigned direct, std::unique_ptr<Ring> first)
      : name_(std::move(name)), folder_(std::move(folder)), alignment_(direct > 0 ? direct : 1),
        files_(folder_, O_RDONLY | (direct > 0 ? O_DIRECT : 0)) {
    rings_.push_back(std::move(first));
  }

  const std::string& name() const override { return name_; }
  const std::filesystem::path& folder() const override { return folder_; }
  bool try_read(const std::string&, uint64_t, std::span<std::byte>) override { return false; }  // nothing is cached
  void forget(const std::string& shard) override { files_.forget(shard); }

  void read(const std::string& shard, uint64_t offset, std::span<std::byte> to) override {
    if (to.empty()) return;
    const auto fd = files_.open(shard);
    std::unique_ptr<Ring> ring = take();
    if (!ring) {
      ring = std::make_unique<Ring>();
      if (const int error = ring->open()) throw system_error("cannot set up io_uring", name_, error);
    }
    ring->read(fd->get(), alignment_, offset, to, files_.path(shard));
    std::lock_guard lock(mutex_);  // a ring whose read failed half-way is not used again
    rings_.push_back(std::move(ring));
  }

  uint64_t size(const std::string& shard) override {
    struct stat info;
    if (::stat(files_.path(shard).c_str(), &info) != 0) throw system_error("cannot stat", files_.path(shard).string());
    return static_cast<uint64_t>(info.st_size);
  }

 private:
  std::unique_ptr<Ring> take() {
    std::lock_guard lock(mutex_);
    if (rings_.empty()) return nullptr;
    std::unique_ptr<Ring> ring = std::move(rings_.back());
    rings_.pop_back();
    return ring;
  }

  const std::string name_;
  const std::filesystem::path folder_;
  const uint64_t alignment_;
  SourceFiles files_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Ring>> rings_;  // not in use
};

}  // namespace

std::shared_ptr<Source> make_uring_source(const std::string& name, const std::filesystem::path& folder, unsigned direct,
                                          std::string* why) {
  auto ring = std::make_unique<Ring>();
  if (const int error = ring->open()) {
    *why = std::string("io_uring is not permitted here (") + std::strerror(error) + ")";
    return nullptr;
  }
  return std::make_shared<UringSource>(name, folder, direct, std::move(ring));
}

#else

std::shared_ptr<Source> make_uring_source(const std::string&, const std::filesystem::path&, unsigned, std::string* why) {
  *why = "built without liburing";
  return nullptr;
}

#endif

}  // namespace mso
