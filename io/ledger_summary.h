// What a run's ledger says, counted: replaced, skipped and deferred samples by category and reason (`mso data report`).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

namespace mso {

struct LedgerCounts {
  uint64_t replaced = 0, skipped = 0, deferred = 0;  // events; a sample that is bad counts again in every epoch
  uint64_t events() const { return replaced + skipped + deferred; }
};

struct CategoryOfLedger {
  LedgerCounts counts;
  std::map<std::string, LedgerCounts> reasons;
  std::set<uint64_t> lost;  // ids of distinct samples replaced or skipped: what the cap counts
  double similarity_sum = 0, similarity_least = 1;  // of the replaced
};

// A replaced sample, for the list.
struct Replacement {
  uint64_t step = 0;
  std::string category, key, shard, reason, by_key, by_shard;
  double similarity = 0;
};

struct LedgerSummary {
  LedgerCounts all;
  std::map<std::string, CategoryOfLedger> categories;
  std::map<std::string, LedgerCounts> reasons;
  std::map<std::string, uint64_t> stand_ins;   // "shard: key" of a sample that stood in → how often
  std::vector<Replacement> replacements;       // the first `kListed` of them
  std::vector<double> similarities;            // of all replacements
  uint64_t epochs = 0, steps = 0;              // the largest of each, plus one
  uint64_t unreadable = 0;                     // lines
  static constexpr size_t kListed = 500;
};

// Reads a ledger.jsonl. `category_of(shard, key)` is asked where an entry has no category itself; may be empty: then the
// first folder of the key counts. Lines that cannot be read are counted. Error where there is no file.
LedgerSummary summarise_ledger(const std::filesystem::path& ledger,
                               const std::function<std::string(const std::string&, const std::string&)>& category_of = {});

// As a table for a terminal.
std::string to_text(const LedgerSummary& summary);
// For programs.
nlohmann::ordered_json to_json(const LedgerSummary& summary);
// Columns of text: the first flush left, the others right.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace mso
