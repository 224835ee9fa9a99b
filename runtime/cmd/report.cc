// mso report: a run's folder → one HTML page.
#include <iostream>
#include <memory>

#include "base/file.h"
#include "cmd/command.h"
#include "record/report_html.h"

namespace mso {

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
                   "file to write (default: report.html in the folder; -: standard output)")
        ->type_name("FILE");
    app.footer(
        "\nThe page needs no network and can be sent as it is. A run that is still going on can be reported, "
        "too.\n"
        "\nExamples:\n"
        "  mso report runs/demo                 writes runs/demo/report.html\n"
        "  mso report runs/demo -o demo.html\n");
    return [options]() -> int {
      RunHistory history = read_run(options->run);
      double now = MetricsWriter::now();
      std::string page = report_html(history, now);
      if (options->output == "-") {
        std::cout << page << std::flush;
        if (!std::cout) throw Error("cannot write", "standard output");
        return 0;
      }
      std::filesystem::path output =
          options->output.empty() ? history.folder / "report.html" : std::filesystem::path(options->output);
      write_file_durably(output, page);
      std::cout << output.string() << "\n" << report_sentence(history, now) << "\n";
      return 0;
    };
  };
  return command;
}

}  // namespace mso
