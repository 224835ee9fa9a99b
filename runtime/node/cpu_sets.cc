#include "node/cpu_sets.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "node/request_text.h"

namespace mso {

namespace {

struct Core {
  int numa = 0;
  CpuSet cpus;
};

// The allocated part of every core, by lowest CPU.
std::vector<Core> allocated_cores(const CpuSetInput& input) {
  std::map<int, CpuFact> facts;
  for (const CpuFact& fact : input.cpus) facts[fact.cpu] = fact;
  std::map<std::pair<bool, int>, Core> cores;  // (known, core or CPU number)
  for (int cpu : input.allocated) {
    const auto fact = facts.find(cpu);
    const bool known = fact != facts.end();
    Core& core = cores[{known, known ? fact->second.core : cpu}];
    if (known) core.numa = fact->second.numa;
    core.cpus.push_back(cpu);
  }
  std::vector<Core> list;
  for (auto& [key, core] : cores) list.push_back(std::move(core));
  std::ranges::sort(list, {}, [](const Core& core) { return core.cpus.front(); });
  return list;
}

// Cores that some tasks need for one purpose.
struct Need {
  enum Kind { kCompute, kImage, kVideo } kind = kCompute;
  std::vector<size_t> tasks;  // that share them
  int wish = -1;              // NUMA node; -1: none
  int quota = 0;
  std::map<int, int> granted;  // NUMA node → cores
  int got = 0;
  CpuSet cpus;
};

// `cores` for one kind of decoding: tasks get their own where there are as many cores as tasks, else neighbours share one.
// `order`: tasks sorted so that neighbours are near each other.
void add_needs(std::vector<Need>& needs, Need::Kind kind, int cores, const std::vector<size_t>& order,
               const std::vector<int>& wishes) {
  const int tasks = static_cast<int>(order.size()), groups = std::min(cores, tasks);
  for (int g = 0; g < groups; ++g) {
    Need need;
    need.kind = kind;
    need.quota = cores / groups + (g < cores % groups ? 1 : 0);
    const int begin = g * tasks / groups, end = (g + 1) * tasks / groups;
    for (int i = begin; i < end; ++i) need.tasks.push_back(order[static_cast<size_t>(i)]);
    need.wish = wishes[need.tasks.front()];
    needs.push_back(std::move(need));
  }
}

// Decoder cores out of `cores`, of which one a task computes.
CpuRequest scale(const CpuRequest& asked, int cores, int tasks) {
  const int sum = asked.image + asked.video;
  if (sum <= cores - tasks) return asked;
  const int budget = std::max(std::min(cores - tasks, cores / 2), 0);
  if (asked.image == 0) return {0, std::min(asked.video, budget)};
  if (asked.video == 0) return {std::min(asked.image, budget), 0};
  if (budget < 2) return {budget, 0};  // the two kinds share it
  const int image = static_cast<int>((static_cast<int64_t>(asked.image) * budget + sum / 2) / sum);
  const int given_image = std::clamp(image, 1, budget - 1);
  return {given_image, budget - given_image};
}

std::string plural(int64_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string scaling_note(const CpuSetInput& input, const CpuRequest& given, int cores) {
  const int tasks = static_cast<int>(input.tasks.size());
  std::string note = format_cpu_request(input.request) + " asked beside one core for each of " + plural(tasks, "task") +
                     ", but there " + (cores == 1 ? "is 1 core" : "are " + std::to_string(cores) + " cores") + " (CPUs " +
                     format_cpu_list(input.allocated) + "): ";
  const bool both = input.request.image > 0 && input.request.video > 0;
  if (given.image + given.video == 0)
    note += cores < tasks ? "tasks share cores, and decoding shares them too" : "decoding shares the compute cores";
  else if (both && (given.image == 0 || given.video == 0))
    note += "pictures and videos share one decoder core";
  else
    note += "scaled down to " + format_cpu_request(given);
  return note;
}

}  // namespace

std::optional<CpuRequest> parse_cpu_request(std::string_view text, std::vector<std::string>& mistakes) {
  CpuRequest request;
  const auto items = parse_request_items(text, "CPU", {"image", "video"}, "image:4,video:8", mistakes);
  if (!items) return std::nullopt;
  bool good = true;
  for (const RequestItem& item : *items) {
    const std::optional<int64_t> cores = parse_small_number(item.value, 0, kMaxDecoderCores);
    if (!cores) {
      mistakes.push_back(item.name + ": \"" + shown(item.value) + "\" is not a number of cores from 0 to " +
                         std::to_string(kMaxDecoderCores));
      good = false;
    } else {
      (item.name == "image" ? request.image : request.video) = static_cast<int>(*cores);
    }
  }
  if (!good) return std::nullopt;
  return request;
}

std::string format_cpu_request(const CpuRequest& request) {
  return "image:" + std::to_string(request.image) + ",video:" + std::to_string(request.video);
}

CpuSetPlan plan_cpu_sets(const CpuSetInput& input) {
  if (input.tasks.empty()) throw Error("no CPU sets", "no task on this node");
  const std::vector<Core> cores = allocated_cores(input);
  if (cores.empty()) throw Error("no CPU sets", "no CPU is allocated on this node");
  const int core_count = static_cast<int>(cores.size()), task_count = static_cast<int>(input.tasks.size());

  CpuSetPlan plan;
  plan.tasks.resize(input.tasks.size());
  plan.given = scale(input.request, core_count, task_count);
  const bool short_of_cores = core_count < task_count;
  if (plan.given != input.request || short_of_cores) plan.note = scaling_note(input, plan.given, core_count);

  std::map<int, std::vector<size_t>> free;  // NUMA node → cores, lowest first
  for (size_t c = 0; c < cores.size(); ++c) free[cores[c].numa].push_back(c);

  // Tasks without a wish are spread over the NUMA nodes in proportion to the cores there.
  std::vector<int> by_core;
  for (const auto& [numa, list] : free) by_core.insert(by_core.end(), list.size(), numa);
  std::vector<int> compute_wish, image_wish, video_wish;
  for (size_t t = 0; t < input.tasks.size(); ++t) {
    const TaskPlace& place = input.tasks[t];
    const int compute = place.compute >= 0 ? place.compute : by_core[t * by_core.size() / input.tasks.size()];
    compute_wish.push_back(compute);
    image_wish.push_back(place.image >= 0 ? place.image : compute);
    video_wish.push_back(place.video >= 0 ? place.video : compute);
  }
  std::vector<size_t> order(input.tasks.size());
  for (size_t t = 0; t < order.size(); ++t) order[t] = t;
  std::ranges::stable_sort(order, {}, [&](size_t t) { return compute_wish[t]; });

  std::vector<Need> needs;
  add_needs(needs, Need::kCompute, core_count - plan.given.image - plan.given.video, order, compute_wish);
  add_needs(needs, Need::kImage, plan.given.image, order, image_wish);
  add_needs(needs, Need::kVideo, plan.given.video, order, video_wish);

  // First how many cores of which NUMA node, one core at a time in turn so that nobody is left out; then which.
  std::map<int, int> left;
  for (const auto& [numa, list] : free) left[numa] = static_cast<int>(list.size());
  auto deal = [&](auto&& node_for) {
    for (bool any = true; any;) {
      any = false;
      for (Need& need : needs) {
        if (need.got == need.quota) continue;
        const int numa = node_for(need);
        if (const auto there = left.find(numa); there == left.end() || there->second == 0) continue;
        --left[numa], ++need.granted[numa], ++need.got;
        any = true;
      }
    }
  };
  deal([](const Need& need) { return need.wish; });
  deal([&](const Need&) {
    return std::ranges::max_element(left, {}, [](const auto& entry) { return entry.second; })->first;
  });
  // In the order of tasks, so that what a task has lies together.
  std::ranges::stable_sort(needs, {}, [&](const Need& need) {
    return std::tuple(std::ranges::find(order, need.tasks.front()) - order.begin(), need.kind);
  });
  std::map<int, size_t> next;
  for (Need& need : needs) {
    for (const auto& [numa, count] : need.granted)
      for (int i = 0; i < count; ++i) need.cpus = cpu_union(need.cpus, cores[free[numa][next[numa]++]].cpus);
    for (size_t t : need.tasks) {
      TaskCpus& task = plan.tasks[t];
      (need.kind == Need::kCompute ? task.compute : need.kind == Need::kImage ? task.image : task.video) = need.cpus;
    }
  }
  // Kinds without cores of their own: video goes with the pictures where one core was left for both, else on the compute cores.
  const bool one_for_both = plan.given.video == 0 && plan.given.image > 0 && input.request.video > 0;
  for (TaskCpus& task : plan.tasks) {
    if (task.image.empty()) task.image = task.compute;
    if (task.video.empty()) task.video = one_for_both ? task.image : task.compute;
  }
  return plan;
}

}  // namespace mso
