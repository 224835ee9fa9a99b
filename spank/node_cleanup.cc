// mso-node-cleanup: what the plugin does at the end of a job, for the admin's own prolog and epilog
// (contrib/slurm) and by hand. Needs no environment.
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>

#include "spank/tear_down.h"

namespace {

constexpr const char* kUsage =
    "usage: mso-node-cleanup --job ID | --sweep [--run DIR] [--squeue FILE]\n"
    "  --job ID   remove all that is kept of a job that has ended on this node\n"
    "  --sweep    remove what is kept of jobs that no longer exist\n";

}  // namespace

int main(int argc, char** argv) {
  uint32_t job = 0;
  bool sweep = false, bad = false;
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (!std::strcmp(argv[i], "--sweep")) {
      sweep = true;
    } else if (!std::strcmp(argv[i], "--job") && has_value) {
      const char* text = argv[++i];
      const auto [end, error] = std::from_chars(text, text + std::strlen(text), job);
      bad = bad || error != std::errc() || *end || job == 0;
    } else if (!std::strcmp(argv[i], "--run") && has_value) {
      arguments.push_back(std::string("run=") + argv[++i]);
    } else if (!std::strcmp(argv[i], "--squeue") && has_value) {
      arguments.push_back(std::string("squeue=") + argv[++i]);
    } else if (!std::strcmp(argv[i], "--help")) {
      std::fputs(kUsage, stdout);
      return 0;
    } else {
      bad = true;
    }
  }
  const mso::PluginArguments parsed = mso::parse_plugin_arguments(
      arguments, {MSO_BINDIR "/mso", MSO_SLURM_BINDIR "/squeue", MSO_PKGLIBEXECDIR "/mso-node-facts"});
  for (const std::string& mistake : parsed.mistakes)
    std::fprintf(stderr, "mso-node-cleanup: %s\n", mistake.c_str());
  if (bad || (job == 0) == !sweep || !parsed.mistakes.empty()) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  if (::geteuid() != 0) {
    std::fputs("mso-node-cleanup: must run as root\n", stderr);
    return 2;
  }
  if (job != 0) return mso::tear_down_job(job, parsed, "cleanup_by_hand") ? 0 : 1;
  try {
    mso::sweep_dead_jobs(parsed, mso::controller_at(parsed.squeue), 0, "sweep_by_hand");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mso-node-cleanup: %s\n", error.what());
    return 1;
  }
  return 0;
}
