#include "io/run_lineage.h"

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "io/ledger_summary.h"

namespace mso {

std::vector<SourceOfKind> sources_of(const ShardSample& sample) {
  const LineageView& l = sample.lineage;
  std::vector<SourceOfKind> sources;
  const bool text = sample.find("txt") || (sample.flags & kSampleConversation) || !l.text_source.empty();
  if ((sample.modalities & kHasText) && text) sources.push_back({"text", kHasText, l.text_source});
  if (sample.modalities & kHasImage) sources.push_back({"image", kHasImage, l.image_source});
  if (sample.modalities & kHasVideo) sources.push_back({"video", kHasVideo, l.video_source});
  if (sample.modalities & kHasAudio) sources.push_back({"audio", kHasAudio, l.audio_source});
  return sources;
}

RunLineage lineage_of_run(const Dataset& dataset, const SampleOrder& order, uint64_t steps, uint64_t batch_samples,
                          const std::vector<LedgerEntry>& ledger) {
  RunLineage lineage;
  lineage.steps = steps;
  std::vector<int32_t> trained(dataset.size(), 0), stood_in(dataset.size(), 0);
  const uint64_t end = steps * batch_samples;
  for (uint64_t position = 0; position < end; ++position) ++trained.at(order.id_at(position));

  auto add = [&](uint64_t id, const auto& count) {
    const ShardSample sample = dataset.sample(id);
    for (const SourceOfKind& of : sources_of(sample)) count(lineage.sources[of.kind][std::string(of.source)]);
    count(lineage.categories[std::string(sample.lineage.category)]);
    count(lineage.all);
  };
  std::set<uint64_t> ahead;
  for (const LedgerEntry& entry : ledger) {
    if (entry.step >= steps) continue;
    if (entry.id >= dataset.size() || order.id_at(entry.position) != entry.id || entry.by_id >= dataset.size())
      throw Error("the ledger does not fit the data", "position " + std::to_string(entry.position) + ": sample " + std::to_string(entry.id),
                  "data, seed or batch size have changed since", ExitCode::kBadData);
    if (entry.event == LedgerEvent::kDeferred) {
      add(entry.id, [](LineageCounts& c) { ++c.deferred; });
      if (entry.step + 1 == steps) {  // nothing came after it
        --trained[entry.id];
        ++lineage.waiting;
      }
      if (entry.stand_in && *entry.stand_in >= end && ahead.insert(*entry.stand_in).second) ++trained.at(order.id_at(*entry.stand_in));
      continue;
    }
    --trained[entry.id];
    if (entry.event == LedgerEvent::kReplaced) {
      add(entry.id, [](LineageCounts& c) { ++c.replaced; });
      ++trained[entry.by_id];
      ++stood_in[entry.by_id];
    } else {
      add(entry.id, [](LineageCounts& c) { ++c.left_out; });
    }
  }
  for (uint64_t id = 0; id < dataset.size(); ++id) {
    if (trained[id] < 0)
      throw Error("the ledger does not fit the data", dataset.describe(id), "it leaves the sample out more often than it came", ExitCode::kBadData);
    const auto times = static_cast<uint64_t>(trained[id]), instead = static_cast<uint64_t>(stood_in[id]);
    add(id, [&](LineageCounts& c) { c.trained += times, c.stood_in += instead; });
  }
  return lineage;
}

std::vector<std::string> kinds_with_sources(const RunLineage& lineage) {
  std::vector<std::string> kinds;
  for (const auto& [kind, sources] : lineage.sources)
    if (sources.size() > 1 || !sources.begin()->first.empty()) kinds.push_back(kind);
  return kinds;
}

std::string to_text(const RunLineage& lineage) {
  auto rows_of = [](const std::string& title, const std::map<std::string, LineageCounts>& of, const char* none) {
    std::vector<std::vector<std::string>> rows = {{title, "trained on", "as stand-in", "replaced", "left out", "deferred"}};
    for (const auto& [name, c] : of)
      rows.push_back({name.empty() ? none : name, std::to_string(c.trained), std::to_string(c.stood_in), std::to_string(c.replaced),
                      std::to_string(c.left_out), std::to_string(c.deferred)});
    return text_table(rows);
  };
  std::string out;
  for (const std::string& kind : kinds_with_sources(lineage)) out += rows_of("source of " + kind, lineage.sources.at(kind), "(not named)") + "\n";
  out += rows_of("category of the index", lineage.categories, "(none)");
  out += "\n" + std::to_string(lineage.all.trained) + " samples trained on in " + std::to_string(lineage.steps) +
         (lineage.steps == 1 ? " step" : " steps");
  if (lineage.waiting > 0) out += ", " + std::to_string(lineage.waiting) + " deferred to later ones";
  return out + "\n";
}

nlohmann::ordered_json to_json(const RunLineage& lineage) {
  auto counts = [](const LineageCounts& c) {
    return nlohmann::ordered_json{{"trained", c.trained}, {"stood_in", c.stood_in}, {"replaced", c.replaced}, {"left_out", c.left_out}, {"deferred", c.deferred}};
  };
  nlohmann::ordered_json json = {{"steps", lineage.steps}, {"all", counts(lineage.all)}, {"waiting", lineage.waiting}};
  json["sources"] = nlohmann::ordered_json::object();
  for (const auto& [kind, sources] : lineage.sources)
    for (const auto& [source, c] : sources) json["sources"][kind][source] = counts(c);
  json["categories"] = nlohmann::ordered_json::object();
  for (const auto& [category, c] : lineage.categories) json["categories"][category] = counts(c);
  return json;
}

}  // namespace mso
