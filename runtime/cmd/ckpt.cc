// mso ckpt: list a run's snapshots, show what one holds, verify every byte, compare two, export one.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "ckpt/inspect.h"
#include "ckpt/kill_points.h"
#include "cmd/ckpt_export.h"
#include "cmd/command.h"
#include "node/ram_disk.h"
#include "record/format.h"

namespace mso {
namespace {

struct CkptOptions {
  std::string what, other, level0, record, type = "float32";
  bool verify = false, json = false;
  double tolerance = 0;
};

// --level0-path, else what the run's own configuration says.
std::filesystem::path level0_of(const CkptOptions& options) {
  if (!options.level0.empty()) return options.level0;
  std::string run = options.what;
  if (size_t at = run.rfind('@'); at != std::string::npos && !std::filesystem::exists(run)) run.resize(at);
  std::string path = "auto";
  try {
    const YAML::Node config = YAML::LoadFile((std::filesystem::path(run) / "config.yaml").string());
    if (config["ecm"] && config["ecm"]["level0_path"]) path = config["ecm"]["level0_path"].as<std::string>();
  } catch (const YAML::Exception&) {
  }
  return level0_folder(path);
}

std::string age_of(double time) {
  if (time <= 0) return "?";
  return format_duration(
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count() - time);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string state_of(const StateSummary& state, bool verified) {
  // A delta says which state it is rolled forward from: "whole, base+2".
  const std::string base = state.delta > 0 ? ", base+" + std::to_string(state.delta) : "";
  if (!state.whole()) {
    if (!state.problems.empty()) return "DAMAGED" + base;
    return (state.parts < state.writers || state.reached ? "incomplete" : "not reached") + base;
  }
  if (!state.problems.empty()) return "whole, a copy is DAMAGED" + base;
  return (verified ? "valid" : "whole") + base;
}

int list(const CkptOptions& options) {
  FoundFiles found = find_run_files(options.what, level0_of(options));
  const std::vector<StateSummary> states = summarise_run(found, options.verify);
  if (options.json) {
    nlohmann::json out = {{"states", nlohmann::json::array()}, {"unknown", found.unknown}};
    for (const StateSummary& s : states)
      out["states"].push_back({{"level", static_cast<int>(s.level)},
                               {"step", s.step},
                               {"attempt", s.attempt},
                               {"writers", s.writers},
                               {"parts", s.parts},
                               {"partner_copies", s.copies},
                               {"exact", s.exact},
                               {"delta", s.delta},
                               {"base_step", s.step - static_cast<uint64_t>(s.delta)},
                               {"size", s.size},
                               {"time", s.time},
                               {"path", s.path},
                               {"whole", s.whole()},
                               {"verified", options.verify},
                               {"problems", s.problems}});
    std::cout << out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  } else {
    std::printf("%-5s %10s %6s %7s %7s %10s %8s  %s\n", "level", "step", "start", "parts", "copies", "size",
                "age", "state");
    for (const StateSummary& s : states) {
      const std::string parts = std::to_string(s.parts) + "/" + (s.writers ? std::to_string(s.writers) : "?");
      std::printf("%-5s %10llu %6lld %7s %7d %10s %8s  %s%s\n", name_of(s.level),
                  static_cast<unsigned long long>(s.step), static_cast<long long>(s.attempt), parts.c_str(),
                  s.copies, format_bytes(static_cast<double>(s.size)).c_str(), age_of(s.time).c_str(),
                  state_of(s, options.verify).c_str(), s.exact ? "" : ", weights only");
    }
    for (const StateSummary& s : states)
      for (const std::string& problem : s.problems) std::printf("damaged: %s\n", problem.c_str());
    for (const std::string& path : found.unknown)
      std::printf("not a snapshot of this run, never read: %s\n", path.c_str());
    if (states.empty()) std::printf("no snapshots\n");
  }
  const bool damaged = std::any_of(states.begin(), states.end(), [](const auto& s) { return !s.problems.empty(); });
  return options.verify && damaged ? static_cast<int>(ExitCode::kNoValidState) : 0;
}

// Damage is told by its exit code: 1 would mean "states differ" for diff.
StoredState open_valid_state(const std::string& what, const std::filesystem::path& level0, bool deltas = false) {
  try {
    return open_state(state_files(what, level0, deltas));
  } catch (const Error& e) {
    if (e.exit_code() != ExitCode::kFailure) throw;
    throw Error(e.what_failed(), e.on(), e.hint(), ExitCode::kNoValidState);
  }
}

int show(const CkptOptions& options) {
  const StoredState state = open_valid_state(options.what, level0_of(options), true);
  if (!options.record.empty()) {
    auto it = state.records.find(options.record);
    if (it == state.records.end())
      throw Error("no such record", options.record, "see mso ckpt show", ExitCode::kBadUsage);
    std::cout << it->second << "\n";
    return 0;
  }
  const ShardHeader& header = state.headers.front();
  std::printf("step %llu, %s, start %lld of run %s, %zu of %d file(s)%s\n",
              static_cast<unsigned long long>(header.step), name_of(header.level),
              static_cast<long long>(header.attempt), header.run_id.c_str(), state.files.size(),
              header.writers, header.exact ? "" : ", weights only");
  if (header.delta > 0)
    std::printf("base+%d: this step's gradient; resuming rolls the state of step %llu forward\n", header.delta,
                static_cast<unsigned long long>(header.step - static_cast<uint64_t>(header.delta)));
  for (const std::string& file : state.files) std::printf("  %s\n", file.c_str());
  std::printf("records\n");
  for (const auto& [name, text] : state.records)
    std::printf("  %-16s %10s\n", name.c_str(), format_bytes(static_cast<double>(text.size())).c_str());
  std::string buffer;
  uint64_t elements = 0;
  for (const StoredTensor& tensor : state.tensors) {
    if (tensor.buffer != buffer)
      std::printf("buffer %s (%s)\n", tensor.buffer.c_str(), name_of(tensor.dtype));
    buffer = tensor.buffer;
    elements += tensor.elements();
    std::printf("  %-70s %s%s\n", tensor.name.c_str(), shape_text(tensor.shape).c_str(),
                tensor.whole() ? "" : "  (a part is in other files)");
  }
  std::printf("%zu tensors, %llu elements\n", state.tensors.size(),
              static_cast<unsigned long long>(elements));
  return 0;
}

int verify(const CkptOptions& options) {
  bool damaged = false, any = false;
  auto check = [&](const std::string& path, const std::string& known_problem) {
    any = true;
    std::string problem = known_problem;
    if (problem.empty()) {
      try {
        verify_shard(path);
      } catch (const Error& e) {
        problem = e.what();
      }
    }
    damaged = damaged || !problem.empty();
    std::printf("%-8s %s%s%s\n", problem.empty() ? "ok" : "DAMAGED", path.c_str(),
                problem.empty() ? "" : ": ", problem.c_str());
  };
  const std::filesystem::path what(options.what);
  if (std::filesystem::exists(what / "run_id")) {
    for (const ShardFile& file : find_run_files(what, level0_of(options)).files)
      check(file.path, file.problem);
  } else {
    try {
      for (const std::string& path : state_files(options.what, level0_of(options), true)) check(path, "");
    } catch (const Error& e) {
      if (e.exit_code() == ExitCode::kBadUsage) throw;
      check(options.what, e.what());
    }
  }
  if (!any) std::printf("no snapshots\n");
  return damaged ? static_cast<int>(ExitCode::kNoValidState) : 0;
}

int diff(const CkptOptions& options) {
  const std::filesystem::path level0 = level0_of(options);
  CkptOptions second = options;
  second.what = options.other;
  const StoredState a = open_valid_state(options.what, level0),
                    b = open_valid_state(options.other, level0_of(second));
  size_t equal = 0, differ = 0;
  for (const TensorDifference& d : compare_states(a, b)) {
    if (d.problem.empty() && d.max_difference <= options.tolerance) {
      ++equal;
      continue;
    }
    ++differ;
    if (d.problem.empty())
      std::printf("%-12s %-70s max |difference| %.9g of %.9g\n", d.buffer.c_str(), d.name.c_str(),
                  d.max_difference, d.max_value);
    else
      std::printf("%-12s %-70s %s\n", d.buffer.c_str(), d.name.c_str(), d.problem.c_str());
  }
  for (const auto& [name, text] : a.records)
    if (!b.records.contains(name) || b.records.at(name) != text)
      std::printf("record %s differs\n", name.c_str());
  for (const auto& [name, text] : b.records)
    if (!a.records.contains(name)) std::printf("record %s differs\n", name.c_str());
  std::printf("%zu tensors equal%s, %zu differ\n", equal,
              options.tolerance > 0 ? " within the tolerance" : "", differ);
  return differ == 0 ? 0 : 1;
}

#ifdef MSO_WITH_EXPORT_COMMAND
int export_model(const CkptOptions& options) {
  const std::string note = export_state(open_valid_state(options.what, level0_of(options)), options.other, options.type);
  std::printf("exported to %s: load it with transformers' LlavaForConditionalGeneration.from_pretrained\n%s",
              options.other.c_str(), note.c_str());
  return 0;
}
#endif

int list_kill_points(bool explain) {
  auto print = [explain](const KillPoint& point) {
    std::printf("%-28.*s %s\n", static_cast<int>(point.name.size()), point.name.data(),
                explain ? std::string(point.state).c_str() : "");
  };
  for (const KillPoint& point : kTrainingKillPoints) print(point);
  for (const KillPoint& point : kKillPoints) print(point);
  return 0;
}

}  // namespace

Command ckpt_command() {
  Command command;
  command.name = "ckpt";
  command.summary = "list, show, verify, compare and export snapshots";
  command.setup = [](CLI::App& app) -> std::function<int()> {
    auto options = std::make_shared<CkptOptions>();
    auto chosen = std::make_shared<std::function<int()>>();
    const char* what = "a snapshot file, a state's folder, a run's folder (its best state) or RUN@STEP";
    auto add = [&](const char* name, const char* summary, const char* example, int (*act)(const CkptOptions&)) {
      CLI::App* sub = app.add_subcommand(name, summary);
      sub->footer(std::string("\nExample:\n  mso ckpt ") + example + "\n");
      sub->add_option("--level0-path", options->level0, "RAM disk (default: the run's ecm.level0_path)")
          ->type_name("DIR");
      sub->callback([options, chosen, act] { *chosen = [options, act] { return act(*options); }; });
      return sub;
    };
    CLI::App* ls = add("ls", "all states of all levels: step, age, size, whether whole", "ls runs/demo --verify", list);
    ls->add_option("run", options->what, "the run's folder")->required();
    ls->add_flag("--verify", options->verify, "read every byte, not only headers and manifests; exit 4 where one is damaged");
    ls->add_flag("--json", options->json, "as one JSON object");
    CLI::App* show_app = add("show", "tensors and records of a state", "show runs/demo@300 --record cursor", show);
    show_app->add_option("state", options->what, what)->required();
    show_app->add_option("--record", options->record, "print this record instead")->type_name("NAME");
    CLI::App* verify_app = add("verify", "check every byte; exit 4 where one is damaged", "verify runs/demo", verify);
    verify_app
        ->add_option("state", options->what,
                     "a run's folder (all its snapshots), a state's folder or a snapshot file")
        ->required();
    CLI::App* diff_app = add("diff", "largest difference of each tensor; exit 1 where states differ", "diff runs/a runs/b --tolerance 1e-6", diff);
    diff_app->add_option("a", options->what, what)->required();
    diff_app->add_option("b", options->other, "the same")->required();
    diff_app->add_option("--tolerance", options->tolerance,
                         "largest difference that counts as equal (default 0)");
#ifdef MSO_WITH_EXPORT_COMMAND
    CLI::App* export_app = add("export", "write a state's weights as a Hugging Face folder", "export runs/demo exported --dtype bfloat16", export_model);
    export_app->add_option("state", options->what, what)->required();
    export_app->add_option("folder", options->other, "new folder for config.json, safetensors and tokenizer")->required();
    export_app->add_option("--dtype", options->type, "float32 (default) or bfloat16");
#endif
    CLI::App* points =
        app.add_subcommand("kill-points", "moments MSO_KILL_AT can name, for tests")->group("");
    points->footer("\nExample:\n  mso ckpt kill-points --explain\n");
    points->add_flag("--explain", options->verify, "say what has happened by then");
    points->callback(
        [options, chosen] { *chosen = [options] { return list_kill_points(options->verify); }; });
    app.require_subcommand(1);
    app.footer(
        "\nExamples:\n"
        "  mso ckpt ls runs/demo\n"
        "  mso ckpt show runs/demo@300 --record cursor\n"
        "  mso ckpt verify runs/demo\n"
        "  mso ckpt diff runs/a runs/b --tolerance 1e-6\n"
        "  mso ckpt export runs/demo exported\n");
    return [chosen] { return (*chosen)(); };
  };
  return command;
}

}  // namespace mso
