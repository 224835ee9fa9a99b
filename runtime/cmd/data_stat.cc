// mso data stat: what a data set holds, as text and as a page of histograms.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "cmd/data_tools.h"
#include "cmd/progress_line.h"
#include "io/dataset_report.h"
#include "record/data_page.h"
#include "record/format.h"
#include "record/metrics.h"

namespace mso {
namespace {

struct StatArguments {
  DataPaths paths;
  std::string html;
  bool no_categories = false, json = false;
};

std::string number(uint64_t value) { return format_count(static_cast<int64_t>(value)); }

// Bars of a histogram without the empty ranges at its ends; `label` names a range by its first and last value (none: no
// upper end).
template <typename Label>
BarChart chart_of(const std::string& title, const std::string& unit, const Histogram& histogram, Label label) {
  BarChart chart;
  chart.title = title;
  chart.unit = unit;
  chart.narrow = true;
  size_t first = 0, end = histogram.counts.size();
  while (first < end && histogram.counts[first] == 0) ++first;
  while (end > first && histogram.counts[end - 1] == 0) --end;
  for (size_t i = first; i < end; ++i) {
    const bool open = i + 1 == histogram.counts.size();
    chart.bars.push_back({label(histogram.edges[i], open ? histogram.edges[i] : histogram.edges[i + 1] - 1, open),
                          histogram.counts[i], ""});
  }
  return chart;
}

std::string plain_range(uint64_t first, uint64_t last, bool open) {
  return open ? std::to_string(first) + "+" : first == last ? std::to_string(first) : std::to_string(first) + "–" + std::to_string(last);
}

std::string byte_range(uint64_t first, uint64_t last, bool open) {
  auto text = [](uint64_t n) {
    return n >= 1000000 ? std::to_string(n / 1000000) + " MB" : n >= 1000 ? std::to_string(n / 1000) + " kB" : std::to_string(n);
  };
  return open ? text(first) + "+" : "to " + text(last + 1);
}

std::string aspect_range(uint64_t first, uint64_t last, bool open) {
  return open ? "over 4" : "to " + format_fixed(static_cast<double>(last) / 100, 2);
}

std::string seconds_range(uint64_t first, uint64_t last, bool open) {
  auto text = [](uint64_t ms) {
    return ms >= 3600000 ? std::to_string(ms / 3600000) + " h" : ms >= 60000 ? std::to_string(ms / 60000) + " min" : std::to_string(ms / 1000) + " s";
  };
  return open ? text(first) + "+" : "to " + text(last + 1);
}

std::string duration_text(uint64_t us) {
  const double seconds = static_cast<double>(us) / 1e6;
  return seconds < 600 ? format_fixed(seconds, 1) + " s" : format_fixed(seconds / 3600, 2) + " h";
}

std::map<std::string, uint64_t> samples_of(const std::map<std::string, Share>& shares, const char* none) {
  std::map<std::string, uint64_t> counts;
  for (const auto& [name, share] : shares) counts[name.empty() ? none : name] += share.samples;
  return counts;
}

std::map<std::string, uint64_t> named(const std::map<uint64_t, uint64_t>& counts, const std::string& unit) {
  std::map<std::string, uint64_t> names;
  for (const auto& [value, count] : counts) names[std::to_string(value) + unit] = count;
  return names;
}

DataTable shares_table(const std::string& title, const std::string& column, const std::map<std::string, Share>& shares, const char* none) {
  DataTable table;
  table.title = title;
  table.columns = {{column}, {"Samples", true}, {"Bytes", true}};
  for (const auto& [name, share] : shares)
    table.rows.push_back({name.empty() ? none : name, number(share.samples), format_bytes(static_cast<double>(share.bytes))});
  constexpr size_t kMost = 200;
  if (table.rows.size() > kMost) {
    table.note = "The first " + number(kMost) + " of " + number(table.rows.size()) + " by name.";
    table.rows.resize(kMost);
  }
  return table;
}

BarChart names_chart(const std::string& title, const std::string& note, const std::map<std::string, uint64_t>& counts, bool narrow) {
  BarChart chart;
  chart.title = title;
  chart.note = note;
  chart.lying = true;
  chart.narrow = narrow;
  std::vector<std::pair<uint64_t, std::string>> sorted;
  uint64_t total = 0;
  for (const auto& [name, count] : counts) {
    sorted.emplace_back(count, name.empty() ? "(none)" : name);
    total += count;
  }
  std::ranges::sort(sorted, [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  constexpr size_t kMost = 40;
  for (size_t i = 0; i < sorted.size() && i < kMost; ++i)
    chart.bars.push_back({sorted[i].second, sorted[i].first,
                          format_percent(static_cast<double>(sorted[i].first) / static_cast<double>(total))});
  if (sorted.size() > kMost) {
    uint64_t rest = 0;
    for (size_t i = kMost; i < sorted.size(); ++i) rest += sorted[i].first;
    chart.bars.push_back({number(sorted.size() - kMost) + " smaller ones", rest,
                          format_percent(static_cast<double>(rest) / static_cast<double>(total))});
  }
  return chart;
}

DataPage page_of(const DatasetStatistics& s, const std::vector<std::string>& paths) {
  DataPage page;
  std::string names;
  for (const std::string& path : paths) names += (names.empty() ? "" : ", ") + path;
  page.title = "Data set " + names;
  page.subtitle = number(s.samples) + " samples in " + number(s.shards) + (s.shards == 1 ? " shard" : " shards");
  page.made_by = "mso data stat";
  page.tiles.push_back({"Samples", number(s.samples), number(s.shards) + (s.shards == 1 ? " shard" : " shards"), ""});
  page.tiles.push_back({"Size", format_bytes(static_cast<double>(s.bytes)),
                        format_bytes(static_cast<double>(s.bytes) / static_cast<double>(std::max<uint64_t>(1, s.samples))) + " a sample", ""});
  page.tiles.push_back({"With picture", number(s.with_picture), number(s.text_only) + " text only", ""});
  if (s.conversations > 0) page.tiles.push_back({"Conversations", number(s.conversations), "loss on what the assistant says", ""});
  uint64_t unusable = 0;
  std::string reasons;
  for (const auto& [reason, count] : s.unusable) {
    unusable += count;
    reasons += (reasons.empty() ? "" : " · ") + number(count) + " " + reason;
  }
  page.tiles.push_back({"Ruled out by the index", number(unusable), reasons.empty() ? "mso data verify looks inside" : reasons,
                        unusable > 0 ? "warn" : ""});
  if (s.truncated_shards > 0)
    page.alerts.push_back(number(s.truncated_shards) + (s.truncated_shards == 1 ? " shard is" : " shards are") + " cut off.");
  if (!s.categories.empty())
    page.charts.push_back(names_chart("Categories", number(s.categories.size()) + " in all", samples_of(s.categories, "(none)"), false));
  for (const auto& [kind, sources] : s.sources)
    if (names_sources(sources)) page.charts.push_back(names_chart("Sources of " + kind, "samples", samples_of(sources, "(not named)"), true));
  page.charts.push_back(names_chart("Modalities", "A sample counts as the most costly kind in it.", s.modalities, true));
  page.charts.push_back(names_chart("Files by extension", "", s.extensions, true));
  page.charts.push_back(chart_of("Longer side of pictures", "pixels", s.longer_side, plain_range));
  page.charts.push_back(chart_of("Aspect ratio of pictures", "width : height", s.aspect, aspect_range));
  page.charts.push_back(chart_of("Length of captions", "characters", s.caption_length, plain_range));
  if (s.conversations > 0) page.charts.push_back(chart_of("Media of a conversation", "files", s.media_of_conversation, plain_range));
  for (const auto* m : {&s.video, &s.sound}) {
    const bool video = m == &s.video;
    if (m->files == 0) continue;
    page.tiles.push_back({video ? "Video" : "Sound", duration_text(m->total_us), number(m->files) + (m->files == 1 ? " file" : " files"), ""});
    const std::string names = video ? "videos" : "sounds";
    if (m->unreadable > 0) page.alerts.push_back(number(m->unreadable) + " of " + number(m->files) + " " + names + " have a header that cannot be read.");
    if (m->cut > 0) page.alerts.push_back(number(m->cut) + " of " + number(m->files) + " " + names + " are cut off.");
    page.charts.push_back(chart_of("Length of " + names, "", m->milliseconds, seconds_range));
    if (m->not_counted > 0)
      page.charts.back().note = number(m->not_counted) + " large ones as their header claims; mso data index --count-frames reads them";
    page.charts.push_back(names_chart("Codecs of " + names, "", m->codecs, true));
    if (video) {
      page.charts.push_back(chart_of("Longer side of videos", "pixels", m->longer_side, plain_range));
      page.charts.push_back(chart_of("Frames of videos", "frames", m->frames, plain_range));
      page.charts.push_back(chart_of("Frame rate of videos", "frames a second", m->frame_rate, plain_range));
    } else {
      page.charts.push_back(names_chart("Sample rates", "", named(m->sample_rates, " Hz"), true));
      page.charts.push_back(names_chart("Channels", "", named(m->channels, ""), true));
    }
  }
  page.charts.push_back(chart_of("Size of samples", "bytes", s.sample_bytes, byte_range));
  DataTable files;
  files.title = "Files";
  files.columns = {{"Extension"}, {"Files", true}, {"Bytes", true}, {"Share", true}};
  for (const auto& [extension, count] : s.extensions)
    files.rows.push_back({"." + extension, number(count), format_bytes(static_cast<double>(s.extension_bytes.at(extension))),
                          format_percent(static_cast<double>(s.extension_bytes.at(extension)) /
                                         static_cast<double>(std::max<uint64_t>(1, s.bytes)))});
  page.tables.push_back(files);
  for (const auto& [kind, sources] : s.sources)
    if (names_sources(sources)) page.tables.push_back(shares_table("Sources of " + kind, "Source", sources, "(not named)"));
  if (!s.categories.empty()) page.tables.push_back(shares_table("Categories", "Category", s.categories, "(none)"));
  return page;
}

int run(const StatArguments& arguments) {
  if (!arguments.html.empty()) check_may_replace(arguments.html, kDataPageGenerator, "a page of mso data");
  const DatasetStatistics statistics =
      dataset_statistics(*arguments.paths.open(), !arguments.no_categories, progress_line("counting sample"));
  if (arguments.json)
    std::cout << to_json(statistics).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
  else
    std::cout << to_text(statistics);
  if (!arguments.html.empty()) {
    write_file_durably(arguments.html, data_page_html(page_of(statistics, arguments.paths.paths), MetricsWriter::now()));
    if (!arguments.json) std::cout << "\n" << arguments.html << "\n";
  }
  return 0;
}

}  // namespace

void add_data_stat(CLI::App& data, const ChosenCommand& chosen) {
  auto arguments = std::make_shared<StatArguments>();
  CLI::App* sub = data.add_subcommand("stat", "counts, sizes, lengths, codecs, categories and sources");
  sub->footer("\nExamples:\n  mso data stat shards\n  mso data stat shards --html stat.html\n");
  arguments->paths.add_to(*sub);
  sub->add_option("--html", arguments->html, "write a page of histograms, too; only such a page is overwritten")->type_name("FILE");
  sub->add_flag("--no-categories", arguments->no_categories, "leave categories out");
  sub->add_flag("--json", arguments->json, "one JSON document in place of text");
  sub->callback([=] { *chosen = [=] { return run(*arguments); }; });
}

}  // namespace mso
