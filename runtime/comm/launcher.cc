#include "comm/launcher.h"

#include <charconv>
#include <cstring>

#include "base/error.h"

namespace mso {

LaunchInfo detect_launcher(const std::function<const char*(const char*)>& env) {
  const auto number = [&](const char* name, int otherwise) {
    const char* text = env(name);
    int value = otherwise;
    if (text != nullptr) std::from_chars(text, text + std::strlen(text), value);
    return value;
  };
  // Inside a job step. A batch script or an salloc shell has SLURM_NTASKS, but is no step of that many tasks.
  const int slurm_tasks = env("SLURM_STEP_ID") != nullptr ? number("SLURM_STEP_NUM_TASKS", 0) : 0;

  LaunchInfo info;
  if (env("OMPI_COMM_WORLD_SIZE") != nullptr) {
    info = {true, number("OMPI_COMM_WORLD_SIZE", 0), number("OMPI_COMM_WORLD_RANK", 0), "mpirun"};
  } else if (env("PMIX_RANK") != nullptr) {
    info = {true, slurm_tasks, number("PMIX_RANK", 0), slurm_tasks > 0 ? "srun" : "PMI launcher"};
  } else if (env("PMI_RANK") != nullptr || env("PMI_ID") != nullptr || env("PMI_FD") != nullptr) {
    info = {true, number("PMI_SIZE", slurm_tasks), number("PMI_RANK", number("PMI_ID", 0)),
            slurm_tasks > 0 ? "srun" : "PMI launcher"};
  } else if (slurm_tasks > 1) {
    throw Error("srun started several tasks without an interface through which MPI finds the others",
                "SLURM_STEP_NUM_TASKS=" + std::to_string(slurm_tasks), "use srun --mpi=pmix",
                ExitCode::kBadUsage);
  }
  return info;
}

}  // namespace mso
