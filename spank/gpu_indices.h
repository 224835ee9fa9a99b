// Which GPUs of the node a step has.
#pragma once

#include <vector>

#include "node/cpu_list.h"
#include "node/node_facts.h"
#include "spank/preparation.h"

namespace mso {

// The node's numbers of the step's GPUs, as Slurm wrote them: not those of CUDA_VISIBLE_DEVICES, which are counted anew where
// devices are constrained. Empty: none.
inline std::vector<int> step_gpu_indices(const StepVariables& variables) {
  for (const char* name : {"SLURM_STEP_GPUS", "SLURM_JOB_GPUS"})
    if (const auto text = variables.get(name); text && !text->empty())
      if (const auto list = parse_cpu_list(*text)) return *list;
  return {};
}

inline std::vector<int> numa_of_gpus(const std::vector<GpuFact>& gpus, const std::vector<int>& indices) {
  std::vector<int> nodes;
  for (int index : indices)
    for (const GpuFact& gpu : gpus)
      if (gpu.index == index) nodes.push_back(gpu.numa);
  return nodes;
}

}  // namespace mso
