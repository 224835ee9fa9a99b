#include "io/ledger_summary.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "io/category.h"

namespace mso {
namespace {

void count(LedgerCounts* counts, const std::string& event) {
  ++(event == "replaced" ? counts->replaced : event == "deferred" ? counts->deferred : counts->skipped);
}

std::string fixed3(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.3f", value);
  return buffer;
}

}  // namespace

std::string text_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      if (i == widths.size()) widths.push_back(0);
      widths[i] = std::max(widths[i], row[i].size());
    }
  std::string out;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      out += (i > 0 ? "  " : "") + (i == 0 ? row[i] + space : space + row[i]);
    }
    while (out.ends_with(' ')) out.pop_back();
    out += "\n";
  }
  return out;
}

LedgerSummary summarise_ledger(const std::filesystem::path& ledger,
                               const std::function<std::string(const std::string&, const std::string&)>& category_of) {
  LedgerSummary summary;
  std::ifstream file(ledger, std::ios::binary);
  if (!file) throw system_error("cannot read", ledger.string());
  for (std::string line; std::getline(file, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      const auto json = parse_shallow_json(line);
      const std::string event = json.value("event", "skipped"), key = json.at("key"), shard = json.at("shard"),
                        reason = json.at("reason");
      const uint64_t step = json.at("step"), epoch = json.at("epoch"), id = json.at("id");
      std::string category = json.value("category", "");
      if (category.empty()) category = category_of ? category_of(shard, key) : first_folder(key);
      CategoryOfLedger& own = summary.categories[category];
      for (LedgerCounts* counts : {&summary.all, &own.counts, &own.reasons[reason], &summary.reasons[reason]})
        count(counts, event);
      if (event != "deferred") own.lost.insert(id);
      if (event == "replaced") {
        const double similarity = json.value("similarity", 0.0);
        const std::string by_key = json.value("by_key", ""), by_shard = json.value("by_shard", "");
        own.similarity_sum += similarity;
        own.similarity_least = std::min(own.similarity_least, similarity);
        summary.similarities.push_back(similarity);
        ++summary.stand_ins[by_shard + ": " + by_key];
        if (summary.replacements.size() < LedgerSummary::kListed)
          summary.replacements.push_back({step, category, key, shard, reason, by_key, by_shard, similarity});
      }
      summary.steps = std::max(summary.steps, step + 1);
      summary.epochs = std::max(summary.epochs, epoch + 1);
    } catch (const nlohmann::json::exception&) {
      ++summary.unreadable;
    }
  }
  return summary;
}

std::string to_text(const LedgerSummary& s) {
  auto number = [](uint64_t n) { return std::to_string(n); };
  std::vector<std::vector<std::string>> rows = {
      {"category", "replaced", "skipped", "deferred", "samples lost", "mean similarity", "least"}};
  for (const auto& [category, c] : s.categories)
    rows.push_back({category.empty() ? "(none)" : category, number(c.counts.replaced), number(c.counts.skipped),
                    number(c.counts.deferred), number(c.lost.size()),
                    c.counts.replaced > 0 ? fixed3(c.similarity_sum / static_cast<double>(c.counts.replaced)) : "",
                    c.counts.replaced > 0 ? fixed3(c.similarity_least) : ""});
  uint64_t lost = 0;
  for (const auto& [category, c] : s.categories) lost += c.lost.size();
  rows.push_back({"all", number(s.all.replaced), number(s.all.skipped), number(s.all.deferred), number(lost)});
  std::string out = text_table(rows);
  rows = {{"reason", "replaced", "skipped", "deferred"}};
  for (const auto& [reason, c] : s.reasons) rows.push_back({reason, number(c.replaced), number(c.skipped), number(c.deferred)});
  if (rows.size() > 1) out += "\n" + text_table(rows);
  if (s.unreadable > 0) out += "\n" + number(s.unreadable) + " lines could not be read\n";
  return out;
}

nlohmann::ordered_json to_json(const LedgerSummary& s) {
  auto counts = [](const LedgerCounts& c) {
    return nlohmann::ordered_json{{"replaced", c.replaced}, {"skipped", c.skipped}, {"deferred", c.deferred}};
  };
  nlohmann::ordered_json json = {{"all", counts(s.all)}, {"unreadable_lines", s.unreadable}};
  json["categories"] = nlohmann::ordered_json::object();
  for (const auto& [category, c] : s.categories) {
    nlohmann::ordered_json& own = json["categories"][category] = counts(c.counts);
    own["lost"] = c.lost.size();
    if (c.counts.replaced > 0) {
      own["mean_similarity"] = c.similarity_sum / static_cast<double>(c.counts.replaced);
      own["least_similarity"] = c.similarity_least;
    }
    for (const auto& [reason, of] : c.reasons) own["reasons"][reason] = counts(of);
  }
  json["reasons"] = nlohmann::ordered_json::object();
  for (const auto& [reason, of] : s.reasons) json["reasons"][reason] = counts(of);
  return json;
}

}  // namespace mso
