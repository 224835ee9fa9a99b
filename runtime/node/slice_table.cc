#include "node/slice_table.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/units.h"

namespace mso {

namespace {

constexpr uint64_t kMagic = 0x316c62742d6f736d;  // "mso-tbl1"

// Where a process started, so that a number given to another process since is not taken for it.
uint64_t start_time(pid_t pid) {
  const int fd = ::open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[1024];
  const ssize_t size = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (size <= 0) return 0;
  text[size] = 0;
  const char* at = std::strrchr(text, ')');  // the name may hold blanks
  for (int field = 2; at && field < 22; ++field) at = std::strchr(at + 1, ' ');
  return at ? std::strtoull(at + 1, nullptr, 10) : 0;
}

// False after ten seconds: whoever sets up a table holds the lock for microseconds.
bool lock_file(int fd) {
  for (int i = 0; i < 1000; ++i) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) return false;
    ::usleep(10'000);
  }
  return false;
}

}  // namespace

struct SliceTable::Shared {
  struct Row {
    std::atomic<uint64_t> pid, started;
    std::atomic<uint64_t> used[kMaxSlices];
  };
  uint64_t magic;
  uint64_t slice_count;
  uint64_t limit[kMaxSlices];
  std::atomic<uint64_t> used[kMaxSlices];  // of all rows together
  Row rows[kMaxTasks];
};

SliceTable::SliceTable(const std::vector<Slice>& slices, const std::string& file, int task)
    : slices_(slices), task_(task), peak_(slices.size()) {
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  if (slices.empty() || slices.size() > kMaxSlices) throw Error("not a table of slices", std::to_string(slices.size()) + " slices");
  if (task < 0 || task >= kMaxTasks)
    throw Error("too many tasks share a device", "task " + std::to_string(task), "at most " + std::to_string(kMaxTasks));
  mapped_bytes_ = sizeof(Shared);
  int fd = -1;
  if (!file.empty()) {
    fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || !lock_file(fd) || ::ftruncate(fd, static_cast<off_t>(mapped_bytes_)) != 0) {
      const int error = errno;
      if (fd >= 0) ::close(fd);
      throw system_error("cannot open the table of slices", file, error);
    }
  }
  void* memory = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    throw system_error("cannot map the table of slices", file, error);
  }
  shared_ = static_cast<Shared*>(memory);  // zeros where it is new
  const bool fits = shared_->magic == kMagic && shared_->slice_count == slices.size() &&
                    std::equal(slices.begin(), slices.end(), shared_->limit,
                               [](const Slice& slice, uint64_t limit) { return slice.bytes == limit; });
  if (!fits) {  // new, or of a step with other slices
    std::memset(memory, 0, mapped_bytes_);
    shared_->slice_count = slices.size();
    for (size_t s = 0; s < slices.size(); ++s) shared_->limit[s] = slices[s].bytes;
    shared_->magic = kMagic;
  }
  for (int t = 0; t < kMaxTasks; ++t) {
    Shared::Row& row = shared_->rows[t];
    const uint64_t pid = row.pid;
    if (pid == 0 || (t != task && row.started == start_time(static_cast<pid_t>(pid)))) continue;
    for (size_t s = 0; s < slices.size(); ++s) shared_->used[s] -= row.used[s].exchange(0);
    row.pid = 0;
  }
  shared_->rows[task].started = start_time(::getpid());
  shared_->rows[task].pid = static_cast<uint64_t>(::getpid());
  if (fd >= 0) {
    ::flock(fd, LOCK_UN);  // the mapping keeps the open file, and with it the lock, beyond close()
    ::close(fd);
  }
}

SliceTable::~SliceTable() {
  if (!shared_) return;
  Shared::Row& row = shared_->rows[task_];
  for (size_t s = 0; s < slices_.size(); ++s) shared_->used[s] -= row.used[s].exchange(0);
  row.pid = 0;
  ::munmap(shared_, mapped_bytes_);
}

std::unique_ptr<SliceTable> SliceTable::from_environment() {
  const char* text = std::getenv("MSO_GPU_SLICES");
  if (!text || !*text) return nullptr;
  const std::optional<TaskSlices> told = parse_task_slices(text);
  if (!told)
    throw Error("MSO_GPU_SLICES is damaged", text, "it is set by srun --mso-gpu-slices", ExitCode::kBadUsage);
  const char* local = std::getenv("SLURM_LOCALID");
  const char* folder = std::getenv("MSO_SNAPSHOT_DIR");
  const char* step = std::getenv("SLURM_STEP_ID");
  const int task = local && *local ? std::atoi(local) : 0;
  std::string file;
  if (told->sharers > 1 && folder && *folder)
    file = std::string(folder) + "/slices-" + (step && *step ? step : "0") + "-" + std::to_string(told->table);
  return std::make_unique<SliceTable>(told->slices, file, task);
}

int SliceTable::slice_of_stage(std::string_view stage) const {
  static constexpr std::pair<std::string_view, std::string_view> kStages[] = {
      {"vision_encoder", "vision"}, {"audio_encoder", "audio"}, {"projector", "projector"},
      {"audio_projector", "projector"}, {"llm_decoder", "llm"},
      {"cross_attention", "cross"}, {"experts", "experts"}};
  std::string_view wanted = "shared";
  for (const auto& [name, slice] : kStages)
    if (stage.starts_with(name)) wanted = slice;
  int shared = -1;
  for (size_t s = 0; s < slices_.size(); ++s) {
    if (slices_[s].name == wanted) return static_cast<int>(s);
    if (slices_[s].name == "shared") shared = static_cast<int>(s);
  }
  return shared;
}

bool SliceTable::take(int slice, uint64_t bytes) {
  if (slice < 0) return true;
  const size_t s = static_cast<size_t>(slice);
  std::atomic<uint64_t>& used = shared_->used[s];
  uint64_t now = used;
  do {
    if (bytes > shared_->limit[s] || now > shared_->limit[s] - bytes) return false;
  } while (!used.compare_exchange_weak(now, now + bytes));
  shared_->rows[task_].used[s] += bytes;
  uint64_t peak = peak_[s];
  while (peak < now + bytes && !peak_[s].compare_exchange_weak(peak, now + bytes)) {
  }
  return true;
}

void SliceTable::give(int slice, uint64_t bytes) {
  if (slice < 0) return;
  const size_t s = static_cast<size_t>(slice);
  shared_->rows[task_].used[s] -= bytes;
  shared_->used[s] -= bytes;
}

std::vector<SliceTable::Use> SliceTable::use() const {
  std::vector<Use> list;
  for (size_t s = 0; s < slices_.size(); ++s)
    list.push_back({slices_[s].name, slices_[s].bytes, shared_->used[s], shared_->rows[task_].used[s], peak_[s]});
  return list;
}

std::string SliceTable::describe() const {
  std::string text;
  for (const Use& use : use())
    text += (text.empty() ? "" : ", ") + use.name + " " + format_bytes(static_cast<double>(use.used)) + " of " +
            format_bytes(static_cast<double>(use.limit)) + " (peak " + format_bytes(static_cast<double>(use.peak)) + ")";
  return text;
}

}  // namespace mso
