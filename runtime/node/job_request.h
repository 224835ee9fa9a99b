// What a job asks of every node it runs on (srun --mso and its variables, profiles and configuration keys):
// parsing, merging by source, and the one compact text that travels from the user's side to root's. Pure
// functions on text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "node/cpu_sets.h"
#include "node/gpu_slices.h"
#include "node/nvme_lanes.h"

namespace mso {

enum class CheckMode { kOff, kStaging, kProd };
const char* check_mode_name(CheckMode mode);

// One thing that can be asked for, under its name in every place where it can be.
enum class RequestField { kSnapshot, kGpuSlices, kCpus, kNvme, kCheck };
inline constexpr size_t kRequestFields = 5;
struct RequestFieldNames {
  RequestField field;
  const char* key;         // in profiles and plugstack.conf: "gpu-slices"
  const char* option;      // of srun, sbatch and salloc, without dashes: "mso-gpu-slices"
  const char* variable;    // "MSO_REQUEST_GPU_SLICES"
  const char* config_key;  // of megascale_config.yaml: "ero.gpu_slices"
  const char* argument;    // "NAME:SIZE[,…]"
  const char* help;
};
const std::array<RequestFieldNames, kRequestFields>& request_fields();
inline constexpr const char* kProfileVariable = "MSO_REQUEST_PROFILE";
inline constexpr const char* kConfigVariable = "MSO_REQUEST_CONFIG";

struct RequestMistake {
  std::string where;  // "--mso-snapshot", "MSO_REQUEST_CPUS", "profile large, line 3"
  std::string message;
};

// What one source says, as text; what it does not say is absent.
struct RequestSource {
  struct Value {
    std::string text, where;
  };
  std::array<std::optional<Value>, kRequestFields> values;
  const std::optional<Value>& operator[](RequestField field) const {
    return values[static_cast<size_t>(field)];
  }
  std::optional<Value>& operator[](RequestField field) { return values[static_cast<size_t>(field)]; }
};

struct JobRequest {
  std::string profile;                     // empty: none
  std::optional<uint64_t> snapshot_bytes;  // none: the node decides; 0: no snapshot directory
  std::vector<Slice> gpu_slices;
  std::optional<CpuRequest> cpus;
  std::vector<NvmeRequest> nvme;
  CheckMode check = CheckMode::kStaging;
  std::array<bool, kRequestFields> by_option =
      {};  // given as an option: an inner srun's variables do not override it
  bool operator==(const JobRequest&) const = default;
};

inline constexpr uint64_t kMinSnapshotBytes = uint64_t{1} << 20, kMaxSnapshotBytes = uint64_t{1} << 44;
inline constexpr size_t kMaxRequestLength = 1024;  // of the compact text

// Takes each field from the first of `sources` (strongest first) that has it; every text is checked, also
// those that a stronger source hides, so that all mistakes come at once. `profile` must be a checked name.
JobRequest merge_request(const std::vector<RequestSource>& sources, const std::string& profile,
                         std::vector<RequestMistake>& mistakes);
// The fields of a request as a source again: all of them, or those that were given as options.
RequestSource request_as_source(const JobRequest& request, const std::string& where, bool only_options);

// "mso1;snapshot=1073741824;check=staging;…": only digits, known names and checked profile names.
std::string format_request(const JobRequest& request);
// For root: accepts exactly what format_request writes, and nothing else. None: `why` says what is wrong, in
// words that are safe to log.
std::optional<JobRequest> parse_request(std::string_view text, std::string& why);

// Letters, digits, '-', '_'; at most 64; so that it can only name a file in the profiles' folder.
bool is_profile_name(std::string_view name);
// Lines "key = value" with the fields' keys, '#' begins a comment. `name` is for messages.
RequestSource parse_profile(std::string_view text, const std::string& name,
                            std::vector<RequestMistake>& mistakes);
// Environment "NAME=value": the fields' variables, and a mistake for other names that begin with
// MSO_REQUEST_.
RequestSource read_request_variables(const char* const* environment, std::vector<RequestMistake>& mistakes);

// "3 mistakes in what --mso was asked" and a line for each; printable and bounded whatever was given.
std::vector<std::string> describe_mistakes(const std::vector<RequestMistake>& mistakes);

}  // namespace mso
