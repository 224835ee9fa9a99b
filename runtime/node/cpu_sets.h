// Which CPUs decode pictures, which decode video, which compute: for every task of a step on a node. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "node/cpu_list.h"
#include "node/node_facts.h"

namespace mso {

// Cores of a node that decode. By core, not by hardware thread.
struct CpuRequest {
  int image = 0, video = 0;
  bool operator==(const CpuRequest&) const = default;
};
inline constexpr int kMaxDecoderCores = 4096;
// "image:4,video:8", either alone, in any order. Mistakes are appended, one sentence each.
std::optional<CpuRequest> parse_cpu_request(std::string_view text, std::vector<std::string>& mistakes);
std::string format_cpu_request(const CpuRequest& request);  // canonical: "image:4,video:8"

// NUMA nodes a task would like to be on; -1: no wish.
struct TaskPlace {
  int compute = -1;        // of its GPU
  int image = -1, video = -1;  // of the drives its pictures and videos come from; -1: as compute
};

struct CpuSetInput {
  CpuSet allocated;            // CPUs the tasks may use together
  std::vector<CpuFact> cpus;   // of the node; an allocated CPU that is not listed counts as a core of its own
  CpuRequest request;
  std::vector<TaskPlace> tasks;  // one a task; at least one
};

struct TaskCpus {
  CpuSet compute, image, video;  // never empty where anything is allocated; may be the same CPUs where there are too few
  bool operator==(const TaskCpus&) const = default;
};
struct CpuSetPlan {
  std::vector<TaskCpus> tasks;
  CpuRequest given;   // cores that really decode and do nothing else
  std::string note;   // one line: what was asked, what there is, what was done about it; empty: all as asked
};

// Promises: every set lies inside `allocated`; hardware threads of one core never belong to different classes, unless the
// plan says so in `note`; with enough cores (image + video + one a task) the sets of all classes and tasks are disjoint,
// except that tasks share a decoder core where fewer are asked for than there are tasks; every allocated CPU is used.
// Near means: a core of the wished NUMA node where one is left.
// With too few cores: decoding shrinks, in proportion, to half of the cores at most, then shares the compute cores, and
// `note` says so. Whoever calls refuses instead where the user asked for --mso-check=prod. Error: no task, or nothing allocated.
CpuSetPlan plan_cpu_sets(const CpuSetInput& input);

}  // namespace mso
