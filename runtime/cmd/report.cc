// mso report: a run's folder → one HTML page.
#include <iostream>
#include <memory>

#include "base/file.h"
#include "base/log.h"
#include "cmd/command.h"
#include "record/report_html.h"

namespace mso {

namespace {

// report.html of the run's folder; a diary under another name (a copy, an older one) gets a page of its own name.
std::filesystem::path default_output(const std::filesystem::path& given, const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(given) && given.filename() != "metrics.jsonl")
    return std::filesystem::path(given).replace_extension(".html");
  return folder / "report.html";
}

}  // namespace

Command report_command() {
  Command command;
  command.name = "report";
  command.summary = "make one HTML page of a run: curves, snapshots, recoveries";
  command.setup = [](CLI::App& app) -> std::function<int()> {
    struct Options {
      std::string run, output;
    };
    auto options = std::make_shared<Options>();
    app.add_option("run", options->run, "folder of the run (train.run_dir), or its metrics.jsonl")
        ->required()
        ->type_name("RUN_DIR");
    app.add_option("-o,--output", options->output,
                   "file to write (default: report.html in the folder; -: standard output); only a report of mso is "
                   "overwritten")
        ->type_name("FILE");
    app.footer(
        "\nThe page needs no network and can be sent as it is. A run that is still going on can be reported, "
        "too.\n"
        "\nExamples:\n"
        "  mso report runs/demo                 writes runs/demo/report.html\n"
        "  mso report runs/demo -o demo.html\n");
    return [options]() -> int {
      RunHistory history = read_run(options->run);
      auto tell_of_damage = [&] {
        if (history.damaged.count > 0)
          log_warn("{}: {} cannot be read and left out", options->run, history.damaged.text());
      };
      double now = MetricsWriter::now();
      std::string page = report_html(history, now);
      if (options->output == "-") {
        std::cout << page << std::flush;
        if (!std::cout) throw Error("cannot write", "standard output");
        tell_of_damage();
        return 0;
      }
      std::filesystem::path output = options->output;
      if (output.empty()) output = default_output(options->run, history.folder);
      check_may_replace(output, kReportGenerator, "a report of mso");
      write_file_durably(output, page);
      std::cout << output.string() << "\n" << report_sentence(history, now) << std::endl;
      tell_of_damage();
      return 0;
    };
  };
  return command;
}

}  // namespace mso
