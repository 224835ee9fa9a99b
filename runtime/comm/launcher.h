// What the environment says about how this process was started: decides whether MPI is initialised. Pure, so
// that every launcher's habits are unit tests.
#pragma once

#include <functional>
#include <string>

namespace mso {

struct LaunchInfo {
  bool use_mpi = false;  // a launcher that MPI can ask for its peers has started this process
  int ranks = 1;         // how many it started; 0: the variables do not say
  int rank = 0;  // of this process, as the launcher counts; for messages and for logging before MPI starts
  std::string launcher;  // "mpirun", "srun", "PMI launcher" or "" (by hand)
};

// `env` returns a variable's value or nullptr (normally getenv). Throws Error(kBadUsage) for several Slurm
// tasks without a process management interface, each of which would take itself for the whole job.
LaunchInfo detect_launcher(const std::function<const char*(const char*)>& env);

}  // namespace mso
