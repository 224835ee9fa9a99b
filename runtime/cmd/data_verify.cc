// mso data verify: every bad sample of a data set, found before training meets it.
#include <fstream>
#include <iostream>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "cmd/data_tools.h"
#include "cmd/progress_line.h"
#include "io/dataset_verify.h"
#include "io/known_bad.h"

namespace mso {
namespace {

struct VerifyArguments {
  DataPaths paths;
  std::string list;
  VerifyOptions options;
};

int run(const VerifyArguments& arguments) {
  if (!arguments.list.empty()) check_may_replace(arguments.list, "{\"id\":", "a list of bad samples");
  const auto dataset = arguments.paths.open();
  const std::vector<SampleFault> faults = verify_dataset(*dataset, arguments.options, progress_line("checking sample"));
  std::string lines;
  std::map<std::string, uint64_t> reasons;
  std::set<uint64_t> bad;
  for (const SampleFault& fault : faults) {
    bad.insert(fault.id);
    ++reasons[fault.reason];
    if (arguments.list.empty())
      std::cout << "bad: " << dataset->describe(fault.id) << (fault.member.empty() ? "" : " ." + fault.member) << ": "
                << fault.reason << ": " << fault.detail << "\n";
    else
      lines += to_json_line({dataset->shard_path(dataset->locate(fault.id).shard).filename().string(),
                             std::string(dataset->sample(fault.id).key), fault.reason, fault.detail, fault.member},
                            fault.id);
  }
  if (!arguments.list.empty()) write_file_durably(arguments.list, lines);
  std::cout << dataset->size() - bad.size() << " of " << dataset->size() << " samples are good";
  for (const auto& [reason, count] : reasons) std::cout << ", " << count << " " << reason;
  std::cout << "\n";
  return bad.empty() ? 0 : static_cast<int>(ExitCode::kBadData);
}

}  // namespace

void add_data_verify(CLI::App& data, const ChosenCommand& chosen) {
  auto arguments = std::make_shared<VerifyArguments>();
  CLI::App* sub = data.add_subcommand("verify", "decode every sample; exit 3 if any is bad");
  sub->footer(
      "\nThe list goes into data.known_bad: training then leaves these samples out without reading them.\n"
      "\nExample:\n  mso data verify shards --list bad.jsonl\n");
  arguments->paths.add_to(*sub);
  sub->add_option("--threads", arguments->options.threads, "threads, 0 for all cores")
      ->check(CLI::Range(0, kMostThreads))
      ->capture_default_str();
  sub->add_option("--caption", arguments->options.caption, "where captions are, as data.caption")->capture_default_str();
  sub->add_option("--list", arguments->list, "write the bad samples to this file, one JSON object a line")->type_name("FILE");
  sub->callback([=] { *chosen = [=] { return run(*arguments); }; });
}

}  // namespace mso
