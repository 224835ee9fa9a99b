// mso run: starts a job's ranks on this machine and starts them again when one dies.
#include <config.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "cmd/command.h"
#include "elastic/slurm_launch.h"
#include "elastic/slurm_tools.h"
#include "elastic/supervisor.h"

namespace mso {

namespace {

struct RunOptions {
  int ranks = 0;
  RestartLimits limits;
  std::string mpirun_args, srun_args, program, run_dir;
  int spare_nodes = 0;
  bool local = false;
  double stop_timeout_s = 120;
  bool no_standby = false, standby = false;
  std::vector<std::string> command;
};

std::filesystem::path own_executable() {
  std::error_code failed;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) throw Error("cannot find the program's own file", "/proc/self/exe");
  return path;
}

// Beside mso in a build folder, else where it is installed.
std::filesystem::path find_rank_program() {
  const std::filesystem::path beside = own_executable().parent_path() / "mso-rank";
  if (access(beside.c_str(), X_OK) == 0) return beside;
  const std::filesystem::path installed = std::filesystem::path(MSO_PKGLIBEXECDIR) / "mso-rank";
  if (access(installed.c_str(), X_OK) == 0) return installed;
  throw Error("a part of mso is missing", installed.string(), "install mso as a whole (make install)");
}

// Split at blanks; no quoting, as arguments of mpirun hardly ever need it.
std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; (at = text.find_first_not_of(" \t", at)) != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(" \t", at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

// The run folder of `train -c FILE KEY=VALUE…`, which also checks the configuration before anything starts.
std::string run_dir_of(const std::vector<std::string>& command) {
  ConfigOptions config;
  for (size_t i = 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    if ((word == "-c" || word == "--config") && i + 1 < command.size())
      config.file = command[++i];
    else if (word.starts_with("--config="))
      config.file = word.substr(9);
    else if (word.starts_with("-c") && word.size() > 2)
      config.file = word.substr(2);
    else if (!word.starts_with("-") && word.find('=') != std::string::npos)
      config.overrides.push_back(word);
  }
  return load_config(config.file, config.overrides).config.train.run_dir;
}

int run_job(const RunOptions& given) {
  SupervisorOptions options;
  const std::optional<SlurmAllocation> allocation =
      given.local ? std::nullopt : slurm_allocation([](const char* name) { return std::getenv(name); });
  options.ranks = given.ranks;
  if (!allocation) {
    options.ranks = std::max(1, given.ranks);
    if (given.spare_nodes > 0 || !given.srun_args.empty())
      throw Error("not in a Slurm job", "--spare-nodes and --srun-args are for one", "see sbatch(1) and salloc(1)",
                  ExitCode::kBadUsage);
  }
  options.limits = given.limits;
  options.mpirun_args = split_words(given.mpirun_args);
  options.stop_timeout_s = given.stop_timeout_s;
  options.rank_program = find_rank_program();
  if (const char* mpirun = std::getenv("MPIEXEC"); mpirun != nullptr && *mpirun != '\0')
    options.mpirun = mpirun;
  if (given.command.empty()) {
    throw Error("nothing to run", "no command given", "mso run -n 2 -- train -c FILE", ExitCode::kBadUsage);
  }
  if (given.program.empty()) {
    if (given.command[0] != "train") {
      throw Error("mso run starts mso train", "\"" + given.command[0] + "\" given",
                  "mso run -n 2 -- train -c FILE", ExitCode::kBadUsage);
    }
    options.program = {own_executable().string()};
    options.standby = !given.no_standby;
    options.run_dir = given.run_dir.empty() ? run_dir_of(given.command) : given.run_dir;
  } else {
    options.program = {given.program};
    options.standby = given.standby;
    options.run_dir = given.run_dir;
  }
  if (allocation) {
    options.slurm = SlurmJob{allocation->job_id, expand_nodes(allocation->node_list), given.spare_nodes, allocation->tasks,
                             split_words(given.srun_args)};
    if (options.run_dir.empty())
      throw Error("no run folder", "--program without --run-dir", "give --run-dir", ExitCode::kBadUsage);
  }
  options.program.insert(options.program.end(), given.command.begin(), given.command.end());

  const SupervisorReport report = supervise(options);
  if (report.attempts.size() > 1 || report.exit_code != 0)
    std::cerr << "\nmso run:\n" << format_report(report);
  return report.exit_code;
}

}  // namespace

Command run_command() {
  Command command;
  command.name = "run";
  command.summary = "train on this machine or in a Slurm job, and start again at once when a rank dies";
  command.setup = [](CLI::App& app) -> std::function<int()> {
    auto options = std::make_shared<RunOptions>();
    app.add_option("-n,--ranks", options->ranks, "ranks to start (default 1; in a Slurm job what it was given, else one a node)")
        ->check(CLI::Range(1, 4096));
    app.add_option("--max-restarts", options->limits.max_restarts,
                   "restarts in a row without a finished step before giving up (default 10)")
        ->check(CLI::Range(0, 1 << 30));
    app.add_option("--mpirun-args", options->mpirun_args, "more arguments for mpirun, in one word")
        ->type_name("ARGS");
    app.add_option("--spare-nodes", options->spare_nodes,
                   "in a Slurm job: nodes that stay idle until one of the others is lost (default 0)")
        ->check(CLI::Range(0, 1 << 20));
    app.add_option("--srun-args", options->srun_args, "in a Slurm job: more arguments for srun, in one word")
        ->type_name("ARGS");
    app.add_flag("--local", options->local, "leave a Slurm job alone that this is in: mpirun on this machine");
    app.add_option("--stop-timeout", options->stop_timeout_s,
                   "seconds for a last snapshot when told to stop (default 120)")
        ->check(CLI::PositiveNumber);
    app.add_flag("--no-standby", options->no_standby,
                 "start a restart's ranks only when they are needed; else they are ready beforehand and wait,\n"
                 "with the libraries loaded and without a model, so that a restart takes a second or two less");
    app.add_option("--run-dir", options->run_dir, "run folder, where it is not the configuration's")
        ->type_name("DIR");
    app.add_option("--program", options->program, "start this instead of mso (for tests)")
        ->type_name("FILE")
        ->group("");
    app.add_flag("--standby", options->standby, "with --program: it knows how to stand by (for tests)")->group("");
    app.add_option("command", options->command, "after --: train and its arguments")
        ->type_name("-- train ...");
    app.footer(
        "\nA rank that dies or fails is noticed at once; the others are ended and all start again from the "
        "newest\n"
        "snapshot. Ends with the ranks' exit code where that is 0, 2, 3, 4 or 75. Ctrl-C and SIGTERM take a "
        "snapshot\n"
        "first; a second one ends at once.\n"
        "In a Slurm job (a batch script, or a shell of salloc) the ranks are started by srun on its nodes. A node that is\n"
        "lost is replaced by a spare one, or done without; sbatch --no-kill keeps the job when Slurm notices, too.\n"
        "\nExamples:\n"
        "  mso run -n 2 -- train -c demo.yaml train.steps=300\n"
        "  sbatch -N3 --no-kill --wrap 'mso run -n 4 --spare-nodes 1 -- train -c llava.yaml'\n"
        "  mso run -n 2 --mpirun-args \"--mca btl self,tcp\" -- train -c demo.yaml\n");
    return [options] { return run_job(*options); };
  };
  return command;
}

}  // namespace mso
