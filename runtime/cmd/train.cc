// mso train: train or resume a run.
#include <filesystem>
#include <iostream>

#include "base/kill_point.h"
#include "base/log.h"
#include "base/shell.h"
#include "ckpt/kill_points.h"
#include "cmd/command.h"
#include "comm/world.h"
#include "elastic/standby.h"
#include "exec/rank_zero.h"
#include "exec/trainer.h"
#include "exec/training_setup.h"

namespace mso {
namespace {

constexpr const char* kFooter =
    "\nA run that was started before in the same train.run_dir is resumed from its best state.\n"
    "SIGUSR1 (or SIGTERM where the launcher leaves time): a full snapshot, then exit code 75.\n"
    "\nExamples:\n"
    "  mso train -c demo.yaml data.path=/data/shards                      one rank\n"
    "  mpirun -n 2 --bind-to none mso train -c demo.yaml train.steps=300  two ranks\n"
    "  mso run -n 2 -- train -c demo.yaml                                 the same, started again after a failure\n";

struct TrainOptions {
  ConfigOptions config;
  bool fresh = false;
};

// A misspelled MSO_KILL_AT would make a test pass that kills nothing.
void check_kill_order() {
  const KillOrder order = kill_order();
  if (order.point.empty()) return;
  for (const KillPoint& point : kTrainingKillPoints)
    if (point.name == order.point) return;
  for (const KillPoint& point : kKillPoints)
    if (point.name == order.point) return;
  throw Error("MSO_KILL_AT names no kill point", order.point, "mso ckpt kill-points lists them", ExitCode::kBadUsage);
}

void print_error(const Error& error, const World& world) {
  std::string who = world.rank() > 0 ? "rank " + std::to_string(world.rank()) + ": " : "";
  std::string text = "mso: error: " + who + error.what_failed() + (error.on().empty() ? "" : ": " + error.on()) + "\n";
  if (!error.hint().empty()) text += "hint: " + error.hint() + "\n";
  std::cerr << text << std::flush;
}

void print_how_to_go_on(const World& world, const Config& config, ExitCode code, const TrainOptions& options) {
  // Nothing to go on with before there is a run.
  if (world.rank() != 0 || !std::filesystem::exists(std::filesystem::path(config.train.run_dir) / "run_id")) return;
  std::vector<std::string> arguments = {"train"};
  if (!options.config.file.empty()) arguments.insert(arguments.end(), {"-c", options.config.file});
  arguments.insert(arguments.end(), options.config.overrides.begin(), options.config.overrides.end());
  const std::string command = resume_command(world.size(), arguments);
  if (code == ExitCode::kSuccess)
    std::cerr << "report: mso report " << shell_word(config.train.run_dir)
              << "\nto train on, raise train.steps: " << command << std::endl;
  else if (code == ExitCode::kNoValidState)  // the same command would end the same way
    std::cerr << "look with: mso ckpt ls " << shell_word(config.train.run_dir) << " --verify" << std::endl;
  else
    std::cerr << "resume with: " << command << std::endl;
}

int run_training(const TrainOptions& options) {
  World world;
  stand_by();
  if (world.size() > 1) set_log_rank(world.rank());
  set_kill_point_rank(world.rank());
  std::unique_ptr<Trainer> trainer;
  LoadedConfig loaded;
  ExitCode code = ExitCode::kFailure;
  bool everywhere = true;  // all ranks find the same mistake at this point
  try {
    check_kill_order();
    loaded = options.config.load();
    everywhere = false;
    if (world.rank() == 0) {
      log_info("effective configuration:\n{}", format_effective_values(loaded));
      log_info("marked (not in force): {} keys of later work, accepted at their default only", defaults_not_in_force().size());
    }
    trainer = std::make_unique<Trainer>(world, set_up_training(world, loaded, options.fresh));
    code = trainer->run();
  } catch (const std::exception& e) {
    const Error* known = dynamic_cast<const Error*>(&e);
    const Error error = known ? *known : Error("unexpected error", e.what());
    if (trainer) trainer->record_failure(error);
    if (dynamic_cast<const RankZeroFailed*>(&e) || dynamic_cast<const AgreedError*>(&e) || error.exit_code() == ExitCode::kNoValidState) everywhere = true;
    if (world.rank() == 0 || !everywhere) print_error(error, world);
    if (error.exit_code() != ExitCode::kBadUsage) print_how_to_go_on(world, loaded.config, error.exit_code(), options);
    // Others may be waiting for this rank: leave at once, the launcher ends them.
    if (world.size() > 1) world.abandon(static_cast<int>(error.exit_code()));
    return static_cast<int>(error.exit_code());
  }
  trainer.reset();
  print_how_to_go_on(world, loaded.config, code, options);
  return static_cast<int>(code);
}

}  // namespace

Command train_command() {
  return {"train", "Train a model, or resume its run", [](CLI::App& app) {
            auto options = std::make_shared<TrainOptions>();
            options->config.add_to(app);
            app.add_flag("--fresh", options->fresh, "start anew; an earlier run in train.run_dir is kept beside it");
            app.footer(kFooter);
            return [options] { return run_training(*options); };
          }};
}

}  // namespace mso
