#include "node/cpu_list.h"

#include <sched.h>

#include <algorithm>
#include <iterator>

namespace mso {

namespace {

// A number at text[*at], moved behind it; -1: none, or too large.
int take_number(std::string_view text, size_t* at) {
  int value = 0;
  const size_t start = *at;
  while (*at < text.size() && text[*at] >= '0' && text[*at] <= '9') {
    value = value * 10 + (text[*at] - '0');
    if (value >= kMaxCpus) return -1;
    ++*at;
  }
  return *at == start ? -1 : value;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

}  // namespace

std::optional<CpuSet> parse_cpu_list(std::string_view text) {
  if (text.size() > (64u << 10)) return std::nullopt;
  text = trimmed(text);
  std::vector<bool> present(kMaxCpus, false);
  for (size_t at = 0; at < text.size();) {
    const int first = take_number(text, &at);
    int last = first;
    if (first >= 0 && at < text.size() && text[at] == '-') last = take_number(text, &++at);
    if (first < 0 || last < first) return std::nullopt;
    std::fill(present.begin() + first, present.begin() + last + 1, true);
    if (at == text.size()) break;
    if (text[at] != ',' || ++at == text.size()) return std::nullopt;
  }
  CpuSet cpus;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu)
    if (present[static_cast<size_t>(cpu)]) cpus.push_back(cpu);
  return cpus;
}

std::string format_cpu_list(const CpuSet& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(cpus[i]);
    if (end > i + 1) text += '-' + std::to_string(cpus[end - 1]);
    i = end;
  }
  return text;
}

CpuSet cpu_union(const CpuSet& a, const CpuSet& b) {
  CpuSet out;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

CpuSet cpu_intersection(const CpuSet& a, const CpuSet& b) {
  CpuSet out;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

CpuSet cpu_difference(const CpuSet& a, const CpuSet& b) {
  CpuSet out;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

bool cpu_subset(const CpuSet& part, const CpuSet& whole) {
  return std::includes(whole.begin(), whole.end(), part.begin(), part.end());
}

namespace {

// The C library's cpu_set_t ends at 1024 CPUs; larger machines want a longer mask.
struct CpuMask {
  CpuMask() : mask(CPU_ALLOC(kMaxCpus)) {
    if (mask) CPU_ZERO_S(size(), mask);
  }
  ~CpuMask() { if (mask) CPU_FREE(mask); }
  CpuMask(const CpuMask&) = delete;
  static size_t size() { return CPU_ALLOC_SIZE(kMaxCpus); }
  cpu_set_t* mask;
};

}  // namespace

CpuSet current_cpus() {
  CpuMask mask;
  CpuSet cpus;
  if (!mask.mask || sched_getaffinity(0, CpuMask::size(), mask.mask) != 0) return cpus;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu)
    if (CPU_ISSET_S(cpu, CpuMask::size(), mask.mask)) cpus.push_back(cpu);
  return cpus;
}

int usable_cores() { return std::max(1, static_cast<int>(current_cpus().size())); }

bool set_current_cpus(const CpuSet& cpus) {
  CpuMask mask;
  if (!mask.mask) return false;
  for (int cpu : cpus)
    if (cpu >= 0 && cpu < kMaxCpus) CPU_SET_S(cpu, CpuMask::size(), mask.mask);
  return sched_setaffinity(0, CpuMask::size(), mask.mask) == 0;
}

}  // namespace mso
