// mso data report: what became of bad and late samples in a run, from its ledger.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "base/config.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cmd/data_tools.h"
#include "exec/model_setup.h"
#include "io/ledger_summary.h"
#include "io/mixture.h"
#include "io/neighbours.h"
#include "io/run_lineage.h"
#include "io/storage_options.h"
#include "record/data_page.h"
#include "record/format.h"
#include "record/metrics.h"
#include "record/run_history.h"

namespace mso {
namespace {

namespace fs = std::filesystem;

struct ReportArguments {
  std::string run, output;
  std::vector<std::string> data;
  bool json = false;
};

// Categories of samples and their sizes, by the data the run was trained on; nothing where that is not there any more.
struct Categories {
  std::unordered_map<std::string, std::string> of;  // "shard\nkey"
  std::map<std::string, uint64_t> sizes;
};

Categories read_categories(const std::shared_ptr<const Dataset>& dataset, const std::string& rule) {
  Categories categories;
  const auto neighbours = Neighbours::open(dataset, CategoryRule(rule));
  for (uint64_t id = 0; id < dataset->size(); ++id) {
    const std::string category = neighbours->category(id);
    const std::string shard = dataset->shard_path(dataset->locate(id).shard).filename().string();
    categories.of[shard + "\n" + std::string(dataset->sample(id).key)] = category;
    ++categories.sizes[category];
  }
  return categories;
}

// The order in which the run trained on `data`: as the trainer makes it (exec/training_setup.cc).
SampleOrder order_of(const Config& config, const std::shared_ptr<const Dataset>& data, const std::vector<std::string>& paths) {
  const auto seed = static_cast<uint64_t>(config.train.seed);
  const BatchRecipe& recipe = config.mdp.batch_recipe;
  const std::pair<Modality, int64_t> wanted[] = {
      {Modality::kText, recipe.text}, {Modality::kImage, recipe.image}, {Modality::kVideo, recipe.video}, {Modality::kAudio, recipe.audio}};
  int64_t parts = 0;
  for (const auto& [modality, count] : wanted) parts += count;
  if (parts > 0) {
    PerModality<uint64_t> per_batch;
    for (const auto& [modality, count] : wanted)
      per_batch[modality] = static_cast<uint64_t>(count * (config.train.global_batch_samples / parts));
    // What a sample counts as hangs on what the model takes.
    Config as_here = config;
    as_here.data.video_decoder = "cpu";  // nothing is decoded, and there may be no GPU here
    const ModelInputs inputs = check_model_inputs(as_here);
    const auto assembler = std::make_shared<const SampleAssembler>(data, inputs.tokenizer, PictureDecoder(), inputs.samples, inputs.media);
    return SampleOrder::recipe(
        std::make_shared<const ModalityIndex>(assembler->modality_blocks(), [assembler](uint64_t id) { return assembler->modality(id); }),
        per_batch, seed);
  }
  if (!config.data.weights.empty()) return SampleOrder::mixture(mixture_parts(*data, paths, config.data.weights), seed);
  return SampleOrder::shuffled(data->size(), seed);
}

// What was trained on, by source; nothing where the run's data, model or ledger are not there as they were (told in *why).
std::optional<RunLineage> read_lineage(const Config& config, const fs::path& home, const fs::path& ledger, std::shared_ptr<const Dataset> data,
                                       const std::vector<std::string>& paths, std::string* why) {
  try {
    if (config.data.eval_path.empty() && config.data.eval_shards > 0)
      data = Dataset::split(data, static_cast<uint32_t>(config.data.eval_shards)).first;
    const int64_t steps = read_run(home).steps_finished;
    return lineage_of_run(*data, order_of(config, data, paths), static_cast<uint64_t>(std::max<int64_t>(0, steps)),
                          static_cast<uint64_t>(config.train.global_batch_samples), Ledger::load(ledger));
  } catch (const Error& error) {
    *why = error.what();
    return {};
  }
}

std::string shown(const std::string& category) { return category.empty() ? "(none)" : category; }
std::string number(uint64_t value) { return format_count(static_cast<int64_t>(value)); }

void add_lineage(const RunLineage& lineage, DataPage* page) {
  page->tiles.push_back({"Trained on", number(lineage.all.trained), "samples in " + number(lineage.steps) + (lineage.steps == 1 ? " step" : " steps"), ""});
  auto add = [&](const std::string& title, const std::string& column, const std::map<std::string, LineageCounts>& of, const char* none) {
    DataTable table;
    table.title = title;
    table.columns = {{column}, {"Trained on", true}, {"of these as stand-in", true}, {"Replaced", true}, {"Left out", true}, {"Deferred", true}};
    for (const auto& [name, c] : of)
      table.rows.push_back({name.empty() ? none : name, number(c.trained), number(c.stood_in), number(c.replaced), number(c.left_out), number(c.deferred)});
    constexpr size_t kMost = 500;
    if (table.rows.size() > kMost) {
      table.note = "The first " + number(kMost) + " of " + number(table.rows.size()) + " by name.";
      table.rows.resize(kMost);
    }
    page->tables.push_back(std::move(table));
  };
  for (const std::string& kind : kinds_with_sources(lineage)) add("By source of " + kind, "Source", lineage.sources.at(kind), "(not named)");
  add("By category of the index", "Category", lineage.categories, "(none)");
}

DataPage page_of(const LedgerSummary& s, const Categories& known, const std::optional<RunLineage>& lineage, const std::string& title) {
  DataPage page;
  page.title = title;
  page.subtitle = "Samples that were not trained on in their place, and what became of them";
  page.made_by = "mso data report";
  uint64_t lost = 0;
  for (const auto& [category, c] : s.categories) lost += c.lost.size();
  const std::string most = s.reasons.empty() ? "" : std::max_element(s.reasons.begin(), s.reasons.end(), [](const auto& a, const auto& b) {
                                                      return a.second.events() < b.second.events();
                                                    })->first;
  double sum = 0;
  for (double similarity : s.similarities) sum += similarity;
  page.tiles.push_back({"Replaced", number(s.all.replaced),
                        s.all.replaced > 0 ? "mean similarity " + format_fixed(sum / static_cast<double>(s.all.replaced), 3) : "", ""});
  page.tiles.push_back({"Skipped", number(s.all.skipped), s.all.skipped > 0 ? "no neighbour was near enough, or none was asked for" : "",
                        s.all.skipped > 0 ? "warn" : ""});
  page.tiles.push_back({"Deferred", number(s.all.deferred), "late, trained on in a later step", ""});
  page.tiles.push_back({"Distinct samples lost", number(lost), most.empty() ? "" : "mostly " + most, ""});
  if (s.unreadable > 0) page.alerts.push_back(number(s.unreadable) + " lines of the ledger could not be read and are left out.");
  if (s.all.events() == 0) page.alerts.push_back("The ledger is empty: every sample was trained on in its place.");

  BarChart by_category;
  by_category.title = "Lost samples by category";
  by_category.note = "Distinct samples that were replaced or skipped; the cap of a category counts these.";
  by_category.lying = true;
  std::vector<std::pair<std::string, const CategoryOfLedger*>> sorted;
  for (const auto& [category, c] : s.categories) sorted.emplace_back(category, &c);
  std::ranges::stable_sort(sorted, [](const auto& a, const auto& b) { return a.second->lost.size() > b.second->lost.size(); });
  for (const auto& [category, c] : sorted) {
    if (c->lost.empty() || by_category.bars.size() == 40) continue;
    const auto size = known.sizes.find(category);
    by_category.bars.push_back({shown(category), c->lost.size(),
                                size == known.sizes.end()
                                    ? ""
                                    : format_percent(static_cast<double>(c->lost.size()) / static_cast<double>(size->second)) +
                                          " of " + number(size->second)});
  }
  page.charts.push_back(by_category);
  BarChart by_reason;
  by_reason.title = "Why";
  by_reason.note = "Events; a bad sample counts in every epoch.";
  by_reason.lying = true;
  by_reason.narrow = true;
  std::vector<std::pair<uint64_t, std::string>> reasons;
  for (const auto& [reason, c] : s.reasons) reasons.emplace_back(c.events(), reason);
  std::ranges::sort(reasons, std::greater<>());
  for (const auto& [events, reason] : reasons) by_reason.bars.push_back({reason, events, ""});
  BarChart similarity;
  similarity.title = "Similarity of replacements";
  similarity.note = "Cosine of the embeddings of the broken sample and of the one in its stead.";
  similarity.narrow = true;
  if (!s.similarities.empty()) {
    // From the lowest that occurs, in steps of 0.01, at most twenty columns.
    const double least = *std::ranges::min_element(s.similarities);
    const int first = std::max(80, static_cast<int>(least * 100 + 1e-6));
    for (int step = first; step <= 100; ++step) similarity.bars.push_back({format_fixed(step / 100.0, 2), 0, ""});
    for (double value : s.similarities)
      ++similarity.bars[static_cast<size_t>(std::clamp(static_cast<int>(value * 100 + 1e-6), first, 100) - first)].count;
  }
  page.charts.push_back(by_reason);
  page.charts.push_back(similarity);
  if (lineage) add_lineage(*lineage, &page);

  DataTable table;
  table.title = "By category and reason";
  table.columns = {{"Category"}, {"Reason"}, {"Replaced", true}, {"Skipped", true}, {"Deferred", true}};
  for (const auto& [category, c] : s.categories)
    for (const auto& [reason, counts] : c.reasons)
      table.rows.push_back({shown(category), reason, number(counts.replaced), number(counts.skipped), number(counts.deferred)});
  page.tables.push_back(table);
  DataTable stand_ins;
  stand_ins.title = "Samples that stood in most often";
  stand_ins.note = "One that replaces many others is trained on that much more often.";
  stand_ins.columns = {{"Sample"}, {"Times", true}};
  std::vector<std::pair<uint64_t, std::string>> often;
  for (const auto& [name, times] : s.stand_ins)
    if (times > 1) often.emplace_back(times, name);
  std::ranges::sort(often, [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  for (size_t i = 0; i < often.size() && i < 20; ++i) stand_ins.rows.push_back({often[i].second, number(often[i].first)});
  page.tables.push_back(stand_ins);
  DataTable list;
  list.title = "Replacements";
  if (s.all.replaced > s.replacements.size()) list.note = "The first " + number(s.replacements.size()) + " of " + number(s.all.replaced) + ".";
  list.columns = {{"Step", true}, {"Category"}, {"Broken sample"}, {"Why"}, {"Similarity", true}, {"Replaced by"}};
  for (const Replacement& r : s.replacements)
    list.rows.push_back({number(r.step + 1), shown(r.category), r.shard + ": " + r.key, r.reason, format_fixed(r.similarity, 3),
                         r.by_shard + ": " + r.by_key});
  page.tables.push_back(list);
  return page;
}

int run(const ReportArguments& arguments) {
  const fs::path given(arguments.run);
  const bool folder = fs::is_directory(given);
  const fs::path ledger = folder ? given / "ledger.jsonl" : given;
  const fs::path home = folder ? given : given.parent_path();
  std::vector<std::string> paths = arguments.data;
  std::optional<Config> config;
  std::string why = "there is no " + (home / "config.yaml").string();
  std::error_code ignored;
  if (fs::exists(home / "config.yaml", ignored)) {
    try {
      config = load_config(home / "config.yaml", {}).config;
      if (paths.empty()) paths = config->data.path;
    } catch (const Error& error) {
      why = error.what();
      log_warn("{}", why);
    }
  }
  Categories categories;
  std::optional<RunLineage> lineage;
  if (!paths.empty()) {
    try {
      const auto dataset = Dataset::open(paths, std::make_shared<Storage>(config ? storage_options(*config) : StorageOptions{}));
      categories = read_categories(dataset, config ? config->mdp.healing.category : "auto");
      if (config) lineage = read_lineage(*config, home, ledger, dataset, paths, &why);
    } catch (const Error& error) {
      why = error.what();
      log_warn("categories are taken from the keys: {}", why);
    }
  }
  const LedgerSummary summary = summarise_ledger(ledger, [&](const std::string& shard, const std::string& key) {
    const auto at = categories.of.find(shard + "\n" + key);
    return at == categories.of.end() ? first_folder(key) : at->second;
  });
  if (arguments.json) {
    nlohmann::ordered_json json = {{"ledger", to_json(summary)}, {"lineage", lineage ? to_json(*lineage) : nlohmann::ordered_json()}};
    if (!lineage) json["no_lineage"] = why;
    std::cout << json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
  } else {
    std::cout << to_text(summary) << "\n" << (lineage ? to_text(*lineage) : "what was trained on is not known by source: " + why + "\n");
  }
  const fs::path output = arguments.output.empty() ? home / "data-report.html" : fs::path(arguments.output);
  check_may_replace(output, kDataPageGenerator, "a page of mso data");
  const std::string name = fs::absolute(home).lexically_normal().filename().string();
  write_file_durably(output, data_page_html(page_of(summary, categories, lineage, "Samples of " + (name.empty() ? "the run" : name)),
                                            MetricsWriter::now()));
  if (!arguments.json) std::cout << "\n" << output.string() << "\n";
  return 0;
}

}  // namespace

void add_data_report(CLI::App& data, const ChosenCommand& chosen) {
  auto arguments = std::make_shared<ReportArguments>();
  CLI::App* sub = data.add_subcommand("report", "what a run replaced, skipped and deferred, by category and reason, and what it was trained on, by source");
  sub->footer(
      "\nPrints tables and writes one HTML page that needs no network. Categories come from the ledger, else from the\n"
      "run's data where it still is. What each source gave is told where data, model and configuration are as they were.\n"
      "\nExample:\n  mso data report runs/demo\n");
  sub->add_option("RUN", arguments->run, "folder of the run (train.run_dir), or its ledger.jsonl")->required()->type_name("RUN_DIR");
  sub->add_flag("--json", arguments->json, "one JSON document in place of text");
  sub->add_option("--data", arguments->data, "shards for categories and sources, in place of the run's data.path")->type_name("PATH");
  sub->add_option("-o,--output", arguments->output, "page to write (default: data-report.html in the folder)")->type_name("FILE");
  sub->callback([=] { *chosen = [=] { return run(*arguments); }; });
}

}  // namespace mso
