// The request of a job as srun, sbatch and salloc make it: options, variables, configuration file, profile
// and the admin's defaults put together and checked where the user stands. Knows nothing of Slurm but its
// environment.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "node/job_request.h"
#include "spank/plugin_arguments.h"

namespace mso {

// Carries the request to the nodes. The name begins with SLURM so that --export=NONE keeps it.
inline constexpr const char* kRequestVariable = "SLURM_MSO_REQUEST";
// What Slurm makes of the request that is kept for prolog and epilog. sbatch --export-file replaces the whole environment and
// puts only such variables back.
inline constexpr const char* kKeptRequestVariable = "SLURM_SPANK_MSO_REQUEST";
// Set in a step by the plugin of its node: "NODE:STEP". Its absence beside a request means that the node has
// no plugin.
inline constexpr const char* kPreparedVariable = "MSO_PREPARED";
// Where nodes tell srun that they are prepared (confirmation.h).
inline constexpr const char* kConfirmVariable = "SLURM_MSO_CONFIRM";

// What was typed: texts of the plugin's options. asked: any of them was there.
struct TypedOptions {
  bool asked = false;
  std::optional<std::string> profile;  // of --mso=PROFILE
  std::optional<std::string> config;   // of --mso-config
  RequestSource fields;
};

struct UserSide {
  const char* const* environment = nullptr;
  std::vector<std::string> command_line;  // of srun, sbatch or salloc, for --mem; may be empty
  std::optional<std::string> inherited;   // the request of the job around this step
  std::string memory_variable;            // SLURM_MEM_PER_NODE, SBATCH_MEM_PER_NODE…
};

// Everything wrong is in `mistakes`; the request is only of use where that is empty.
JobRequest make_user_request(const TypedOptions& typed, const PluginArguments& arguments,
                             const UserSide& side, std::vector<RequestMistake>& mistakes);

// Bytes of --mem in the command line of srun, sbatch or salloc (its own options only, as far as they can be
// told from the command's; else from the #SBATCH lines of a script), or of the variable; none: not known
// here, or --mem=0.
std::optional<uint64_t> memory_asked(const UserSide& side);
// "4G", "512" (MiB), "4096K": as Slurm reads --mem.
std::optional<uint64_t> parse_slurm_memory(std::string_view text);

// Runs `mso config -c FILE --node-request` as the user and reads the fields from what it prints.
RequestSource read_config_file(const std::string& file, const PluginArguments& arguments,
                               std::vector<RequestMistake>& mistakes);
// Lines "key<TAB>value<TAB>where" of that program.
RequestSource parse_config_answer(std::string_view text, std::vector<RequestMistake>& mistakes);

}  // namespace mso
