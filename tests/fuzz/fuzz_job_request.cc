// Fuzz target: what users and the request's way through the environment can hand to the Slurm plugin. First
// byte: which parser. Whatever root accepts is written again letter by letter the same.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "node/cgroup.h"
#include "node/job_request.h"
#include "node/mount_table.h"
#include "spank/confirmation.h"
#include "spank/fault.h"
#include "spank/job_state.h"
#include "spank/plugin_arguments.h"
#include "spank/tear_down.h"
#include "spank/user_request.h"

using namespace mso;

namespace {

void check_compact(std::string_view text) {
  std::string why;
  const auto request = parse_request(text, why);
  if (!request) {
    if (why.empty() || why.size() > 500) abort();
    return;
  }
  if (format_request(*request) != text || text.size() > kMaxRequestLength) abort();
  for (char c : text)
    if (c < ' ' || c > '~' || c == '/' || c == '%') abort();
  if (request->snapshot_bytes && *request->snapshot_bytes > kMaxSnapshotBytes) abort();
}

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(at);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos || parts.size() > 100) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::vector<RequestMistake> mistakes;
  switch (data[0] % 7) {
    case 0:
      check_compact(text);
      break;
    case 1: {  // options, one a line
      RequestSource source;
      const std::vector<std::string> lines = split(text, '\n');
      for (size_t i = 0; i < kRequestFields && i < lines.size(); ++i)
        source.values[i] = RequestSource::Value{lines[i], "option"};
      const JobRequest request = merge_request({source}, "profile", mistakes);
      if (mistakes.empty()) check_compact(format_request(request));
      break;
    }
    case 2: {
      const RequestSource source = parse_profile(text, "fuzz", mistakes);
      const JobRequest request = merge_request({source}, "", mistakes);
      if (mistakes.empty()) check_compact(format_request(request));
      break;
    }
    case 3:
      parse_plugin_arguments(split(text, ' '), {});
      break;
    case 4: {
      if (const auto state = parse_job_state(text)) parse_job_state(format_job_state(*state));
      if (const auto name = parse_job_name(text); name && format_job_name(*name) != text) abort();
      if (is_task_cgroup(text, 12, 0, "n1") && !is_cgroup_of_job(text, 12, "n1")) abort();
      parse_mount_table(text);
      if (read_squeue(12, 0, std::string(text), "") == JobKnown::kGone && text.find("12") == std::string_view::npos) abort();
      parse_fault(text);
      srun_ports(text);
      if (expand_host_list(text.substr(0, 200)).size() > 100200) abort();
      break;
    }
    case 5: {  // environment and command line
      const std::vector<std::string> lines = split(text, '\n');
      std::vector<const char*> environment;
      for (const std::string& line : lines) environment.push_back(line.c_str());
      environment.push_back(nullptr);
      const RequestSource source = read_request_variables(environment.data(), mistakes);
      merge_request({source}, "", mistakes);
      UserSide side;
      side.environment = environment.data();
      side.command_line = lines;
      side.memory_variable = "SLURM_MEM_PER_NODE";
      memory_asked(side);
      break;
    }
    default:
      parse_config_answer(text, mistakes);
      break;
  }
  for (const std::string& line : describe_mistakes(mistakes))
    if (line.size() > 600) abort();
  return 0;
}
