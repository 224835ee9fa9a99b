// The program `mso`: global options, dispatch to a subcommand, and the one place where errors are printed.
#include <config.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "base/error.h"
#include "base/log.h"
#include "base/suggest.h"
#include "cmd/command.h"

namespace mso {
namespace {

std::string version_text() {
  std::string parts;
  auto part = [&](const char* name, bool built) {
    parts +=
        std::string("\n  ") + name + std::string(24 - std::string(name).size(), ' ') + (built ? "yes" : "no");
  };
#ifdef MSO_HAVE_TRAIN
  part("training (libtorch)", true);
#else
  part("training (libtorch)", false);
#endif
#ifdef MSO_HAVE_MPI
  part("several ranks (MPI)", true);
#else
  part("several ranks (MPI)", false);
#endif
#ifdef MSO_HAVE_CUDA
  part("CUDA module", true);
#else
  part("CUDA module", false);
#endif
#ifdef MSO_HAVE_IO
  part("data pipeline", true);
#else
  part("data pipeline", false);
#endif
#ifdef MSO_HAVE_CKPT
  part("checkpoints (HDF5)", true);
#else
  part("checkpoints (HDF5)", false);
#endif
  return std::string("mso (MegaScale-Omni) ") + PACKAGE_VERSION + "\nbuilt with:" + parts;
}

constexpr const char* kFooter =
    "\nExamples:\n"
    "  mso plan -c demo.yaml                                what a run would need\n"
    "  mpirun -n 2 mso train -c demo.yaml train.steps=300   train on two ranks\n"
    "  mso COMMAND --help                                   options and examples of a command\n"
    "\nExit codes: 0 done, 1 failure, 2 configuration or command line refused, 3 data unusable,\n"
    "  4 no valid snapshot, 5 a rank was lost, 75 stopped by a signal after a snapshot (start again to go "
    "on).\n";

int fail(const Error& error) {
  std::cerr << "mso: error: " << error.what_failed();
  if (!error.on().empty()) std::cerr << ": " << error.on();
  std::cerr << "\n";
  if (!error.hint().empty()) std::cerr << "hint: " << error.hint() << "\n";
  return static_cast<int>(error.exit_code());
}

Error bad_usage(const std::string& message, const std::string& hint) {
  return Error("command line refused", message, hint, ExitCode::kBadUsage);
}

int run(int argc, char** argv) {
  CLI::App app("MegaScale-Omni: train multimodal language models that heal themselves", "mso");
  app.set_version_flag("--version", version_text());
  const char* level = std::getenv("MSO_LOG_LEVEL");
  std::string log_level = level && *level ? level : "info";
  app.add_option("--log-level", log_level, "debug, info, warn or error (default: $MSO_LOG_LEVEL, else info)")
      ->type_name("LEVEL");
  app.footer(kFooter);
  app.require_subcommand(1);

  std::vector<std::string> names;
  std::function<int()> chosen;
  for (const Command& command : all_commands()) {
    names.push_back(command.name);
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    std::function<int()> action = command.setup(*sub);
    sub->callback([&chosen, action = std::move(action)] { chosen = action; });
  }

  // CLI11 would call a misspelled command an unexpected argument.
  if (argc > 1 && argv[1][0] != '-' && std::ranges::find(names, argv[1]) == names.end()) {
    const std::string near = nearest_name(argv[1], names);
    throw bad_usage(std::string("unknown command \"") + argv[1] + "\"",
                    near.empty() ? "mso --help lists the commands" : "did you mean mso " + near + "?");
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    return app.exit(wanted);
  } catch (const CLI::ParseError& error) {
    std::string command = "mso";
    for (const CLI::App* sub : app.get_subcommands()) command += " " + sub->get_name();
    throw bad_usage(error.what(), command + " --help shows what is possible");
  }
  init_logging(log_level);
  return chosen ? chosen() : static_cast<int>(ExitCode::kBadUsage);
}

}  // namespace
}  // namespace mso

int main(int argc, char** argv) {
  try {
    mso::init_logging("info");
    return mso::run(argc, argv);
  } catch (const mso::Error& error) {
    return mso::fail(error);
  } catch (const std::filesystem::filesystem_error& error) {
    return mso::fail(mso::system_error("cannot use", error.path1().string(), error.code().value()));
  } catch (const std::exception& error) {
    return mso::fail(mso::Error("unexpected error", error.what()));
  }
}
