#include "exec/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/log.h"
#include "base/shell.h"
#include "exec/rank_zero.h"

namespace mso {

namespace fs = std::filesystem;

namespace {

std::string timestamp() {
  std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  return text;
}

// What rank 0 does; the others get the result by broadcast.
RunDirectory prepare(const fs::path& path, bool fresh) {
  RunDirectory run{path, false};
  try {
    make_folders(path);
  } catch (const Error& e) {
    throw Error("train.run_dir cannot be made", e.on(), e.hint(), ExitCode::kBadUsage);
  }
  const bool is_run = fs::exists(path / "run_id");
  if (fresh && is_run) {
    // Not under a live run, which would go on writing by the old name.
    FileDescriptor lock = open_file(path / "attempt.lock", O_RDWR | O_CREAT);
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
      throw Error("another live run uses this folder", path.string(), "wait for it, or give another train.run_dir",
                  ExitCode::kBadUsage);
    fs::path aside = path.string() + ".before-" + timestamp();
    for (int i = 2; fs::exists(aside); ++i) aside = path.string() + ".before-" + timestamp() + "-" + std::to_string(i);
    fs::rename(path, aside);
    log_info("--fresh: the earlier run is kept in {}", aside.string());
    return run;
  }
  if (is_run) {
    run.existed = true;
    return run;
  }
  if (fs::exists(path / "metrics.jsonl") && fs::exists(path / "attempt"))
    throw Error("the run in this folder has lost its identity", (path / "run_id").string() + " is missing",
                "write the \"run_id\" of a \"start\" line of metrics.jsonl into it, or move the folder away",
                ExitCode::kBadUsage);
  // What a start that was killed before it made its identity may have left.
  const std::set<std::string> leftovers = {"lock", "attempt", "attempt.lock", "place.json"};
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename();
    if (name.find(".tmp") == std::string::npos && !leftovers.contains(name))
      throw Error("train.run_dir holds files but no run", path.string() + " (" + name + ")", "give a new or empty folder",
                  ExitCode::kBadUsage);
  }
  return run;
}

}  // namespace

RunDirectory open_run_directory(World& world, const fs::path& path, bool fresh, double timeout_s) {
  if (path.empty()) throw Error("train.run_dir is empty", "", "give a folder for the run", ExitCode::kBadUsage);
  RunDirectory run{fs::absolute(path).lexically_normal(), false};
  on_rank_zero(world.communicator(), timeout_s, [&] { run = prepare(run.path, fresh); });
  char existed = run.existed;
  broadcast_now(world.communicator(), &existed, 1, 0, timeout_s);
  run.existed = existed != 0;
  return run;
}

void refuse_unsafe_changes(const Config& before, const Config& now) {
  std::string refused;
  for (const ConfigDifference& difference : diff_config(before, now)) {
    const std::string line = difference.key + ": " + difference.old_value + " → " + difference.new_value;
    if (difference.safe)
      log_info("changed since the last attempt: {}", line);
    else
      refused += (refused.empty() ? "" : "; ") + line;
  }
  if (!refused.empty())
    throw Error("the run in this folder was made with another configuration", refused,
                "undo the change to resume, or --fresh to start anew beside it", ExitCode::kBadUsage);
}

std::optional<Config> recorded_configuration(const RunDirectory& run) {
  const fs::path file = run.path / "config.json";
  if (!fs::exists(file)) return {};
  try {
    return config_from_json(nlohmann::json::parse(read_file(file)), file.string());
  } catch (const nlohmann::json::exception& e) {
    throw Error("cannot read the configuration of the run", file.string() + ": " + e.what(),
                "restore the file, or --fresh to start anew beside it", ExitCode::kBadUsage);
  }
}

void record_configuration(const RunDirectory& run, const Config& config) {
  write_file_durably(run.path / "config.json", to_json(config).dump(1) + "\n");
  write_file_durably(run.path / "config.yaml", to_yaml(config));
}

void record_process(const RunDirectory& run, const World& world) {
  char name[32];
  std::snprintf(name, sizeof name, "rank-%04d", world.rank());
  fs::create_directories(run.path / "pids");
  FileDescriptor fd = open_file(run.path / "pids" / name, O_WRONLY | O_CREAT | O_TRUNC);
  std::string line = std::to_string(::getpid()) + " " + world.node() + "\n";
  write_all(fd.get(), line.data(), line.size(), run.path / "pids" / name);
}

std::string resume_command(int ranks, const std::vector<std::string>& arguments) {
  const std::string n = std::to_string(ranks);
  std::string command = "mso";
  if (std::getenv("MSO_SUPERVISED"))
    command = "mso run -n " + n + " --";
  else if (ranks > 1 && std::getenv("SLURM_STEP_ID") && !std::getenv("OMPI_COMMAND"))
    command = "srun -n " + n + " --mpi=pmix mso";
  else if (ranks > 1)
    command = "mpirun -n " + n + " --bind-to none mso";
  for (const std::string& argument : arguments)
    if (argument != "--fresh") command += " " + shell_word(argument);  // --fresh would leave this run behind
  return command;
}

}  // namespace mso
