#include "node/thread_place.h"

#include <fcntl.h>
#include <linux/ioprio.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace mso {

namespace {

const char* cpus_variable(ThreadClass thread_class) {
  switch (thread_class) {
    case ThreadClass::kImage: return kImageCpusVariable;
    case ThreadClass::kVideo: return kVideoCpusVariable;
    default: return kComputeCpusVariable;
  }
}

// Moves the calling thread into a cgroup of decoder threads: a v1 folder has "tasks", a threaded v2 one "cgroup.threads".
bool enter_cgroup(const std::string& folder) {
  for (const char* name : {"cgroup.threads", "tasks"}) {
    const int fd = ::open((folder + "/" + name).c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) continue;
    const std::string id = std::to_string(::syscall(SYS_gettid));
    const bool moved = ::write(fd, id.data(), id.size()) == static_cast<ssize_t>(id.size());
    const int error = errno;
    ::close(fd);
    errno = error;
    return moved;
  }
  return false;
}

}  // namespace

bool set_io_priority(const std::string& text) {
  int value = 0;
  if (text == "idle") {
    value = IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0);
  } else if (text.size() == 4 && text.starts_with("be:") && text[3] >= '0' && text[3] <= '7') {
    value = IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, text[3] - '0');
  } else {
    errno = EINVAL;
    return false;
  }
  return ::syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, value) == 0;
}

bool set_thread_priority(const std::string& text) {
  if (text == "normal") return true;
  const size_t colon = text.find(':');
  const std::string_view kind = std::string_view(text).substr(0, colon);
  int value = 0;
  const char *begin = text.data() + (colon == std::string::npos ? text.size() : colon + 1), *end = text.data() + text.size();
  const auto parsed = std::from_chars(begin, end, value);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == end;
  if (whole && kind == "nice" && value >= -20 && value <= 19)
    return ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), value) == 0;
  if (whole && kind == "rr" && value >= 1 && value <= 49) {
    sched_param parameters{};
    parameters.sched_priority = value;
    // What the thread starts is ordinary again.
    return ::sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &parameters) == 0;
  }
  errno = EINVAL;
  return false;
}

bool raise_thread_priority() {
  if (set_thread_priority("nice:" + std::to_string(kDecoderNice))) return true;
  // A user may do so as far as RLIMIT_NICE reaches (20 - nice).
  rlimit limit{};
  if (::getrlimit(RLIMIT_NICE, &limit) != 0) return false;
  const int permitted = limit.rlim_cur > 40 ? -20 : 20 - static_cast<int>(limit.rlim_cur);
  return permitted < 0 && set_thread_priority("nice:" + std::to_string(std::max(permitted, kDecoderNice)));
}

bool permit_nice(int nice) {
  rlimit limit{};
  if (nice < -20 || nice > 19) {
    errno = EINVAL;
    return false;
  }
  if (::getrlimit(RLIMIT_NICE, &limit) != 0) return false;
  const auto wanted = static_cast<rlim_t>(20 - nice);
  if (limit.rlim_cur >= wanted && limit.rlim_max >= wanted) return true;
  limit.rlim_cur = std::max(limit.rlim_cur, wanted);
  limit.rlim_max = std::max(limit.rlim_max, wanted);
  return ::setrlimit(RLIMIT_NICE, &limit) == 0;
}

std::string place_this_thread(ThreadClass thread_class) {
  std::string problems;
  auto failed = [&](const std::string& what, const char* value) {
    const int error = errno;
    problems += (problems.empty() ? "" : "; ") + what + " " + value + ": " + std::strerror(error);
  };
  // The cgroup first: entering one resets the mask on older kernels.
  if (thread_class != ThreadClass::kCompute) {
    const char* folder = std::getenv(thread_class == ThreadClass::kImage ? kImageCgroupVariable : kVideoCgroupVariable);
    if (folder && *folder && !enter_cgroup(folder)) failed("cannot enter cgroup", folder);
    const char* priority = std::getenv(kIoPriorityVariable);
    if (priority && *priority && !set_io_priority(priority)) failed("cannot set I/O priority", priority);
  }
  const char* text = std::getenv(cpus_variable(thread_class));
  if (thread_class != ThreadClass::kCompute) {
    const char* wanted = std::getenv(kDecoderPriorityVariable);
    if (wanted && *wanted) {
      if (!set_thread_priority(wanted)) failed("cannot set the decoders' priority", wanted);
    } else if (text && *text) {
      (void)raise_thread_priority();
    }
  }
  if (text && *text) {
    const std::optional<CpuSet> cpus = parse_cpu_list(text);
    errno = EINVAL;
    if (!cpus || cpus->empty() || !set_current_cpus(*cpus)) failed(std::string("cannot run on ") + cpus_variable(thread_class), text);
  }
  return problems;
}

int decoder_cpus_given(ThreadClass thread_class) {
  const char* text = std::getenv(cpus_variable(thread_class));
  const std::optional<CpuSet> cpus = text ? parse_cpu_list(text) : std::nullopt;
  return cpus ? static_cast<int>(cpus->size()) : 0;
}

}  // namespace mso
