#include "spank/user_request.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/subprocess.h"
#include "base/suggest.h"
#include "base/units.h"
#include "node/request_text.h"
#include "spank/log_line.h"

namespace mso {

namespace {

constexpr uint64_t kMaxProfileBytes = 64 << 10;
constexpr double kConfigDeadlineS = 30;

std::optional<std::string> variable(const char* const* environment, std::string_view name) {
  for (; environment && *environment; ++environment) {
    const std::string_view entry = *environment;
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=' &&
        entry.size() > name.size() + 1)
      return std::string(entry.substr(name.size() + 1));
  }
  return std::nullopt;
}

std::vector<std::string> profile_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (names.size() >= 1000) break;
    if (entry.path().extension() == ".conf") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

RequestSource read_profile(const std::string& name, const std::string& where,
                           const PluginArguments& arguments, std::vector<RequestMistake>& mistakes) {
  if (!is_profile_name(name)) {
    mistakes.push_back({where, "\"" + shown(name) + "\" is not a profile's name (letters, digits, - and _)"});
    return {};
  }
  const std::filesystem::path path = arguments.profiles_dir / (name + ".conf");
  struct stat info;
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
    const std::vector<std::string> names = profile_names(arguments.profiles_dir);
    const std::string near = nearest_name(name, names);
    std::string message = "there is no profile \"" + name + "\" in " + arguments.profiles_dir.string();
    if (!near.empty()) {
      message += "; did you mean " + near + "?";
    } else if (!names.empty()) {
      message += "; there are:";
      for (size_t i = 0; i < names.size() && i < 10; ++i) message += " " + shown(names[i]);
    }
    mistakes.push_back({where, message});
    return {};
  }
  try {
    return parse_profile(read_file(path, kMaxProfileBytes), name, mistakes);
  } catch (const Error& error) {
    mistakes.push_back({where, error.what()});
    return {};
  }
}

// Options of srun, sbatch and salloc of one letter that take a value as the next word.
constexpr std::string_view kShortWithValue = "ABCDGJLMNSTWcdeimnopqrtw";

// The value of --mem among the words before the command; `rest` is where those end (the command or script),
// 0: unknown.
std::optional<std::string> mem_option(const std::vector<std::string>& words, size_t first, size_t& rest) {
  std::optional<std::string> found;
  rest = 0;
  for (size_t i = first; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      rest = i + 1;
      break;
    }
    if (word.size() < 2 || word[0] != '-') {
      // The command, unless it is the value of a long option before it: then nobody but Slurm can tell.
      const bool unclear =
          i > first && words[i - 1].starts_with("--") && words[i - 1].find('=') == std::string::npos;
      if (!unclear) rest = i;
      break;
    }
    if (word.starts_with("--mem=")) found = word.substr(6);
    if (word == "--mem" && i + 1 < words.size()) found = words[++i];
    if (word.size() == 2 && kShortWithValue.find(word[1]) != std::string_view::npos) ++i;
  }
  return found;
}

std::optional<std::string> mem_of_script(const std::string& path) {
  std::string text;
  try {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > (1 << 20))
      return std::nullopt;
    text = read_file(path, 1 << 20);
  } catch (const Error&) {
    return std::nullopt;
  }
  std::optional<std::string> found;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("#SBATCH")) {
      std::vector<std::string> words;
      line = line.substr(0, line.find('#', 1));
      for (size_t at = 7; at < line.size();) {
        at = line.find_first_not_of(" \t\r", at);
        if (at == std::string::npos) break;
        const size_t stop = std::min(line.find_first_of(" \t\r", at), line.size());
        words.push_back(line.substr(at, stop - at));
        at = stop;
      }
      size_t rest;
      if (auto value = mem_option(words, 0, rest)) found = value;
    } else if (!line.empty() && line[0] != '#') {
      break;  // Slurm too stops at the first command
    }
  }
  return found;
}

}  // namespace

std::optional<uint64_t> parse_slurm_memory(std::string_view text) {
  uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || number == 0) return std::nullopt;
  std::string unit(stop, end);
  std::transform(unit.begin(), unit.end(), unit.begin(), [](char c) { return static_cast<char>(c & ~0x20); });
  if (unit.size() == 2 && unit[1] == 'B') unit.pop_back();
  int shift = 20;
  if (unit == "K")
    shift = 10;
  else if (unit == "G")
    shift = 30;
  else if (unit == "T")
    shift = 40;
  else if (!unit.empty() && unit != "M")
    return std::nullopt;
  if (number > (~uint64_t{0} >> shift)) return std::nullopt;
  return number << shift;
}

std::optional<uint64_t> memory_asked(const UserSide& side) {
  size_t rest = 0;
  std::optional<std::string> text = mem_option(side.command_line, 1, rest);
  if (!text && rest > 0 && rest < side.command_line.size() && side.memory_variable == "SBATCH_MEM_PER_NODE")
    text = mem_of_script(side.command_line[rest]);
  if (!text && !side.memory_variable.empty()) text = variable(side.environment, side.memory_variable);
  return text ? parse_slurm_memory(*text) : std::nullopt;
}

RequestSource parse_config_answer(std::string_view text, std::vector<RequestMistake>& mistakes) {
  RequestSource source;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t first = line.find('\t'),
                 second = first == std::string_view::npos ? first : line.find('\t', first + 1);
    if (second == std::string_view::npos) continue;
    for (const RequestFieldNames& names : request_fields())
      if (line.substr(0, first) == names.key)
        source[names.field] = RequestSource::Value{std::string(line.substr(first + 1, second - first - 1)),
                                                   std::string(line.substr(second + 1, 200))};
  }
  (void)mistakes;
  return source;
}

RequestSource read_config_file(const std::string& file, const PluginArguments& arguments,
                               std::vector<RequestMistake>& mistakes) {
  const Outcome outcome = run_program({arguments.program.string(), "config", "-c", file, "--node-request"},
                                      kConfigDeadlineS, 64 << 10);
  if (outcome.not_started) {
    mistakes.push_back({"--mso-config", "cannot run " + arguments.program.string() +
                                            ", which reads the file: " + std::strerror(outcome.not_started)});
  } else if (outcome.timed_out) {
    mistakes.push_back({"--mso-config", arguments.program.string() + " did not end within 30 s"});
  } else if (outcome.exit_code != 0) {
    // The program's own words: one line each, with the file's line numbers.
    std::string_view text = outcome.errors;
    size_t lines = 0;
    while (!text.empty() && lines < 20) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      if (line.empty()) continue;
      mistakes.push_back({"--mso-config", printable(line, 300)});
      ++lines;
    }
    if (lines == 0)
      mistakes.push_back({"--mso-config", arguments.program.string() + " ended with code " +
                                              std::to_string(outcome.exit_code)});
  } else {
    return parse_config_answer(outcome.output, mistakes);
  }
  return {};
}

JobRequest make_user_request(const TypedOptions& typed, const PluginArguments& arguments,
                             const UserSide& side, std::vector<RequestMistake>& mistakes) {
  for (const std::string& mistake : arguments.mistakes)
    mistakes.push_back({"plugstack.conf", mistake + " (for the administrator)"});

  std::optional<JobRequest> around;
  if (side.inherited) {
    std::string why;
    around = parse_request(*side.inherited, why);
    if (!around)
      mistakes.push_back({kRequestVariable, why + "; it is set by sbatch or salloc, do not change it"});
  }

  std::vector<RequestSource> sources = {typed.fields};
  if (around) sources.push_back(request_as_source(*around, "the job's options", true));
  sources.push_back(read_request_variables(side.environment, mistakes));

  std::optional<std::string> config = typed.config;
  // Inside a job the file was read when the job was made.
  if (!config && !around) config = variable(side.environment, kConfigVariable);
  if (config) {
    if (config->empty() || config->size() > 4096)
      mistakes.push_back({"--mso-config", "is not a file's name"});
    else
      sources.push_back(read_config_file(*config, arguments, mistakes));
  }

  std::optional<std::string> profile = typed.profile;
  std::string profile_where = "--mso";
  if (!profile && !around) {
    profile = variable(side.environment, kProfileVariable);
    profile_where = kProfileVariable;
  }
  if (profile) sources.push_back(read_profile(*profile, profile_where, arguments, mistakes));
  if (around) sources.push_back(request_as_source(*around, "the job's request", false));
  if (arguments.mistakes.empty()) sources.push_back(arguments.defaults);

  const std::string name = profile  ? (is_profile_name(*profile) ? *profile : "")
                           : around ? around->profile
                                    : "";
  JobRequest request = merge_request(sources, name, mistakes);
  for (size_t i = 0; i < kRequestFields; ++i)
    request.by_option[i] = typed.fields.values[i].has_value() || (around && around->by_option[i]);

  if (request.snapshot_bytes && *request.snapshot_bytes > 0) {
    const std::string size = format_bytes(static_cast<double>(*request.snapshot_bytes));
    const auto memory = memory_asked(side);
    if (memory && *request.snapshot_bytes >= *memory)
      mistakes.push_back({"--mso-snapshot", size + " does not fit into the job's memory, " +
                                                format_bytes(static_cast<double>(*memory)) +
                                                " a node (--mem); its pages count against it"});
    if (*request.snapshot_bytes > arguments.snapshot_max)
      mistakes.push_back({"--mso-snapshot", size + " is more than this cluster allows, " +
                                                format_bytes(static_cast<double>(arguments.snapshot_max))});
  }
  if (arguments.nvme_max > 0 && lanes_of(request.nvme) > arguments.nvme_max)
    mistakes.push_back({"--mso-nvme", format_nvme_request(request.nvme) + " are " + std::to_string(lanes_of(request.nvme)) +
                                          " lanes, this cluster allows a job " + std::to_string(arguments.nvme_max) +
                                          " on a node"});
  return request;
}

}  // namespace mso
