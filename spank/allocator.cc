// Context of sbatch and salloc: checks the request before the job is queued.
#include <unistd.h>

#include "base/file.h"
#include "spank/hooks.h"

namespace mso {

void allocator_init_post_opt(const HookCall& call) {
  // Both commands share the context; only the variable that stands for --mem differs.
  bool is_batch = true;
  try {
    is_batch = read_file("/proc/self/comm", 64).starts_with("sbatch");
  } catch (const Error&) {
  }
  submit_request(call, false, is_batch ? "SBATCH_MEM_PER_NODE" : "SALLOC_MEM_PER_NODE");
}

}  // namespace mso
