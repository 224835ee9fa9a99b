#include "node/io_limits.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "base/error.h"
#include "node/first_line.h"

namespace mso {

namespace fs = std::filesystem;

namespace {

void write_value(const fs::path& file, const std::string& value) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) throw system_error("cannot open", file.string());
  const ssize_t written = ::write(fd, value.data(), value.size());
  const int error = errno;
  ::close(fd);
  if (written != static_cast<ssize_t>(value.size())) throw system_error("cannot write \"" + value + "\"", file.string(), error);
}

bool has_word(const std::string& line, const std::string& word) { return (" " + line + " ").find(" " + word + " ") != std::string::npos; }

}  // namespace

std::string format_io_limit(const IoLimit& limit) {
  const std::string rate = std::to_string(limit.bytes_per_s);
  return limit.device + " rbps=" + rate + " wbps=" + rate;
}

std::vector<IoLimit> plan_io_limits(const NvmeFacts& drives, const std::vector<NvmeHold>& holds, uint64_t bytes_per_lane,
                                    const std::function<std::string(const std::string&)>& device_number) {
  std::map<std::string, uint64_t> lanes_of;  // a drive may serve two kinds of data
  for (const NvmeHold& hold : holds) lanes_of[hold.controller] += static_cast<uint64_t>(std::max(hold.lanes, 0));
  std::vector<IoLimit> limits;
  for (const NvmeNamespace& ns : drives.namespaces) {
    uint64_t lanes = 0;
    for (const std::string& path : ns.paths)
      if (const auto held = lanes_of.find(path); held != lanes_of.end()) lanes += held->second;
    const std::string device = lanes > 0 ? device_number(ns.name) : "";
    if (!device.empty()) limits.push_back({device, lanes * bytes_per_lane});
  }
  return limits;
}

std::string device_number_of(const std::string& block_device, const fs::path& root) {
  return first_line(root / "sys/block" / block_device / "dev");
}

std::optional<fs::path> job_cgroup_above(const fs::path& task, uint32_t job, const fs::path& mount) {
  const std::string name = "job_" + std::to_string(job);
  for (fs::path at = task; at != mount && at.has_relative_path(); at = at.parent_path())
    if (at.filename() == name) return at;
  return std::nullopt;
}

void set_job_io(const fs::path& job_cgroup, const std::vector<IoLimit>& limits, int weight) {
  const fs::path above = job_cgroup.parent_path();
  if (!has_word(first_line(above / "cgroup.controllers"), "io"))
    throw Error("the io controller is not delegated", above.string(), "Delegate=yes of slurmd's service, or cgroup.subtree_control of the folders above");
  if (!has_word(first_line(above / "cgroup.subtree_control"), "io")) write_value(above / "cgroup.subtree_control", "+io");
  for (const IoLimit& limit : limits) write_value(job_cgroup / "io.max", format_io_limit(limit));
  if (weight <= 0) return;
  // By the scheduler in use: io.cost or BFQ.
  std::error_code failed;
  for (const char* file : {"io.weight", "io.bfq.weight"})
    if (fs::exists(job_cgroup / file, failed)) return write_value(job_cgroup / file, std::to_string(weight));
  throw Error("the kernel has no weights of I/O", (job_cgroup / "io.weight").string(), "it needs io.cost or the BFQ scheduler");
}

}  // namespace mso
