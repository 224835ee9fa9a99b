#include "node/job_request.h"

#include <algorithm>
#include <cstring>

#include "base/suggest.h"
#include "base/units.h"
#include "node/request_text.h"

namespace mso {

namespace {

constexpr std::string_view kVersion = "mso1";
constexpr const char* kVariablePrefix = "MSO_REQUEST_";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t' || text.front() == '\r'))
    text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

// "off" and "0": none wanted; "auto": the node decides.
void parse_snapshot(std::string_view text, JobRequest& request, std::vector<std::string>& mistakes) {
  request.snapshot_bytes.reset();
  if (text == "auto") return;
  if (text == "off" || text == "0") {
    request.snapshot_bytes = 0;
    return;
  }
  const auto bytes = text.size() <= 32 ? parse_bytes(text) : std::nullopt;
  if (!bytes) {
    mistakes.push_back("\"" + shown(text) + "\" is not a size; give for example 1G, auto or off");
  } else if (*bytes < static_cast<int64_t>(kMinSnapshotBytes) ||
             *bytes > static_cast<int64_t>(kMaxSnapshotBytes)) {
    mistakes.push_back("\"" + shown(text) + "\" is not between 1M and 16T");
  } else {
    request.snapshot_bytes = static_cast<uint64_t>(*bytes);
  }
}

void parse_check(std::string_view text, JobRequest& request, std::vector<std::string>& mistakes) {
  for (CheckMode mode : {CheckMode::kProd, CheckMode::kStaging, CheckMode::kOff})
    if (text == check_mode_name(mode)) {
      request.check = mode;
      return;
    }
  const std::string near = nearest_name(text.substr(0, 100), {"prod", "staging", "off"});
  mistakes.push_back("\"" + shown(text) + "\" is none of prod, staging, off" +
                     (near.empty() ? "" : "; did you mean " + near + "?"));
}

// Puts one field's text into `request`; mistakes are sentences.
void parse_field(RequestField field, std::string_view text, JobRequest& request,
                 std::vector<std::string>& mistakes) {
  if (text.size() > kMaxRequestText) {
    mistakes.push_back("is longer than " + std::to_string(kMaxRequestText) + " letters");
    return;
  }
  switch (field) {
    case RequestField::kSnapshot:
      return parse_snapshot(text, request, mistakes);
    case RequestField::kGpuSlices:
      if (auto slices = parse_slices(text, mistakes)) request.gpu_slices = std::move(*slices);
      return;
    case RequestField::kCpus:
      if (auto cpus = parse_cpu_request(text, mistakes)) request.cpus = *cpus;
      return;
    case RequestField::kNvme:
      if (auto nvme = parse_nvme_request(text, mistakes)) request.nvme = std::move(*nvme);
      return;
    case RequestField::kCheck:
      return parse_check(text, request, mistakes);
  }
}

// A field as parse_field reads it again; empty where nothing is asked.
std::string format_field(RequestField field, const JobRequest& request) {
  switch (field) {
    case RequestField::kSnapshot:
      return request.snapshot_bytes ? std::to_string(*request.snapshot_bytes) : "auto";
    case RequestField::kGpuSlices:
      return request.gpu_slices.empty() ? "" : format_slices(request.gpu_slices);
    case RequestField::kCpus:
      return request.cpus ? format_cpu_request(*request.cpus) : "";
    case RequestField::kNvme:
      return request.nvme.empty() ? "" : format_nvme_request(request.nvme);
    case RequestField::kCheck:
      return check_mode_name(request.check);
  }
  return "";
}

const RequestFieldNames* find_key(std::string_view key) {
  for (const RequestFieldNames& names : request_fields())
    if (key == names.key) return &names;
  return nullptr;
}

}  // namespace

const char* check_mode_name(CheckMode mode) {
  switch (mode) {
    case CheckMode::kOff:
      return "off";
    case CheckMode::kStaging:
      return "staging";
    case CheckMode::kProd:
      return "prod";
  }
  return "";
}

const std::array<RequestFieldNames, kRequestFields>& request_fields() {
  static const std::array<RequestFieldNames, kRequestFields> fields = {{
      {RequestField::kSnapshot, "snapshot", "mso-snapshot", "MSO_REQUEST_SNAPSHOT", "ecm.level0_size", "SIZE",
       "size of the snapshot directory on each node, out of the job's memory; auto, off"},
      {RequestField::kGpuSlices, "gpu-slices", "mso-gpu-slices", "MSO_REQUEST_GPU_SLICES", "ero.gpu_slices",
       "NAME:SIZE[,...]", "memory of each GPU by part of the model, such as vision:24G,llm:32G,shared:24G"},
      {RequestField::kCpus, "cpus", "mso-cpus", "MSO_REQUEST_CPUS", "ero.cpu_reserve_cores",
       "KIND:CORES[,...]", "cores of each node that decode, such as image:4,video:8"},
      {RequestField::kNvme, "nvme", "mso-nvme", "MSO_REQUEST_NVME", "ero.nvme_lanes",
       "KIND:DRIVESxLANES[,...]",
       "NVMe drives and their PCIe lanes for training data, such as image:1x4,video:2x8"},
      {RequestField::kCheck, "check", "mso-check", "MSO_REQUEST_CHECK", "ero.check", "prod|staging|off",
       "refuse (prod) or warn (staging) where a node falls short"},
  }};
  return fields;
}

JobRequest merge_request(const std::vector<RequestSource>& sources, const std::string& profile,
                         std::vector<RequestMistake>& mistakes) {
  JobRequest merged;
  merged.profile = profile;
  for (const RequestFieldNames& names : request_fields()) {
    bool taken = false;
    for (const RequestSource& source : sources) {
      const auto& value = source[names.field];
      if (!value) continue;
      JobRequest parsed = merged;
      std::vector<std::string> sentences;
      parse_field(names.field, value->text, parsed, sentences);
      for (std::string& sentence : sentences) mistakes.push_back({value->where, std::move(sentence)});
      if (!taken) merged = parsed;
      taken = true;
    }
  }
  if (mistakes.empty() && format_request(merged).size() > kMaxRequestLength)
    mistakes.push_back(
        {"--mso", "asks for more than fits into " + std::to_string(kMaxRequestLength) + " letters"});
  return merged;
}

RequestSource request_as_source(const JobRequest& request, const std::string& where, bool only_options) {
  RequestSource source;
  for (const RequestFieldNames& names : request_fields()) {
    const size_t index = static_cast<size_t>(names.field);
    if (only_options && !request.by_option[index]) continue;
    std::string text = format_field(names.field, request);
    if (!text.empty()) source.values[index] = {std::move(text), where};
  }
  return source;
}

std::string format_request(const JobRequest& request) {
  std::string text(kVersion);
  std::string options;
  for (const RequestFieldNames& names : request_fields()) {
    const std::string value = format_field(names.field, request);
    if (!value.empty()) text += std::string(";") + names.key + "=" + value;
    if (request.by_option[static_cast<size_t>(names.field)])
      options += (options.empty() ? "" : ",") + std::string(names.key);
  }
  if (!request.profile.empty()) text += ";profile=" + request.profile;
  if (!options.empty()) text += ";options=" + options;
  return text;
}

std::optional<JobRequest> parse_request(std::string_view text, std::string& why) {
  const auto refuse = [&why](const std::string& reason) {
    why = reason;
    return std::nullopt;
  };
  if (text.size() > kMaxRequestLength) return refuse("the request is too long");
  if (text.substr(0, kVersion.size()) != kVersion)
    return refuse("the request is of another version of the plugin, or damaged");
  JobRequest request;
  std::string_view rest = text.substr(kVersion.size());
  while (!rest.empty()) {
    if (rest.front() != ';') return refuse("the request is damaged");
    rest.remove_prefix(1);
    const std::string_view item = rest.substr(0, rest.find(';'));
    rest.remove_prefix(item.size());
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) return refuse("the request is damaged");
    const std::string_view key = item.substr(0, equals), value = item.substr(equals + 1);
    std::vector<std::string> mistakes;
    if (const RequestFieldNames* names = find_key(key)) {
      parse_field(names->field, value, request, mistakes);
      if (!mistakes.empty()) return refuse(std::string(names->key) + ": " + mistakes.front());
    } else if (key == "profile") {
      if (!is_profile_name(value)) return refuse("the request's profile has no proper name");
      request.profile = std::string(value);
    } else if (key == "options") {
      for (std::string_view left = value; !left.empty();) {
        const std::string_view word = left.substr(0, left.find(','));
        const RequestFieldNames* option = find_key(word);
        if (!option) return refuse("the request is damaged");
        request.by_option[static_cast<size_t>(option->field)] = true;
        left.remove_prefix(std::min(left.size(), word.size() + 1));
      }
    } else {
      return refuse("the request is damaged, or of a newer version of the plugin");
    }
  }
  // One way to write every request: whatever else parses (order, doubles, "1G" for bytes) did not come from
  // us.
  if (format_request(request) != text) return refuse("the request is damaged");
  return request;
}

bool is_profile_name(std::string_view name) {
  if (name.empty() || name.size() > 64 || name.front() == '-') return false;
  for (char c : name)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_'))
      return false;
  return true;
}

RequestSource parse_profile(std::string_view text, const std::string& name,
                            std::vector<RequestMistake>& mistakes) {
  RequestSource source;
  int number = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++number;
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::string where = "profile " + name + ", line " + std::to_string(number);
    if (mistakes.size() >= 100) return source;
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      mistakes.push_back({where, "\"" + shown(line) + "\" is not KEY = VALUE"});
      continue;
    }
    const std::string_view key = trimmed(line.substr(0, equals)), value = trimmed(line.substr(equals + 1));
    const RequestFieldNames* names = find_key(key);
    if (!names) {
      std::vector<std::string> keys;
      for (const RequestFieldNames& field : request_fields()) keys.push_back(field.key);
      const std::string near = nearest_name(key, keys);
      mistakes.push_back({where, "unknown key \"" + shown(key) + "\"" +
                                     (near.empty() ? "" : "; did you mean " + near + "?")});
    } else if (source[names->field]) {
      mistakes.push_back({where, std::string(names->key) + " is given twice"});
    } else {
      source[names->field] = {std::string(value), where};
    }
  }
  return source;
}

RequestSource read_request_variables(const char* const* environment, std::vector<RequestMistake>& mistakes) {
  RequestSource source;
  const size_t prefix = std::strlen(kVariablePrefix);
  for (; environment && *environment; ++environment) {
    if (std::strncmp(*environment, kVariablePrefix, prefix) != 0) continue;
    const char* equals = std::strchr(*environment, '=');
    if (!equals) continue;
    const std::string_view name(*environment, static_cast<size_t>(equals - *environment));
    if (name == kProfileVariable || name == kConfigVariable) continue;
    const RequestFieldNames* found = nullptr;
    std::vector<std::string> known = {kProfileVariable, kConfigVariable};
    for (const RequestFieldNames& names : request_fields()) {
      known.push_back(names.variable);
      if (name == names.variable) found = &names;
    }
    if (found) {
      if (equals[1]) source[found->field] = {equals + 1, found->variable};
      continue;
    }
    const std::string near = nearest_name(name, known);
    mistakes.push_back(
        {shown(name), "unknown variable" + (near.empty() ? "" : "; did you mean " + near + "?")});
  }
  return source;
}

std::vector<std::string> describe_mistakes(const std::vector<RequestMistake>& mistakes) {
  constexpr size_t kShown = 20;
  std::vector<std::string> lines;
  lines.push_back("mso: " + std::to_string(mistakes.size()) +
                  (mistakes.size() == 1 ? " mistake" : " mistakes") +
                  " in what was asked; nothing was queued");
  for (const RequestMistake& mistake : mistakes) {
    if (lines.size() > kShown) {
      lines.push_back("  ...");
      break;
    }
    std::string line = "  " + mistake.where + ": " + mistake.message;
    if (line.size() > 500) line.resize(500);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace mso
