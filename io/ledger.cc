#include "io/ledger.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <unordered_map>

#include "base/error.h"
#include "base/log.h"

namespace mso {
namespace {

using Json = nlohmann::ordered_json;

// In the file a skipped sample has no "event", as in ledgers written before there were others.
constexpr const char* kReplaced = "replaced";
constexpr const char* kDeferred = "deferred";

Json to_json(const LedgerEntry& e) {
  Json json;
  if (e.event == LedgerEvent::kReplaced) json["event"] = kReplaced;
  if (e.event == LedgerEvent::kDeferred) json["event"] = kDeferred;
  for (const auto& [name, value] : {std::pair("step", e.step), {"epoch", e.epoch}, {"position", e.position}, {"id", e.id}})
    json[name] = value;
  json["key"] = e.key;
  json["shard"] = e.shard;
  json["reason"] = e.reason;
  json["detail"] = e.detail;
  if (!e.category.empty()) json["category"] = e.category;
  if (e.event == LedgerEvent::kReplaced) {
    json["by_id"] = e.by_id;
    json["by_key"] = e.by_key;
    json["by_shard"] = e.by_shard;
    json["similarity"] = e.similarity;
  }
  if (e.stand_in) json["stand_in"] = *e.stand_in;
  return json;
}

LedgerEntry from_json(const Json& json) {
  LedgerEntry e;
  const std::string event = json.value("event", "");
  if (event == kReplaced)
    e.event = LedgerEvent::kReplaced;
  else if (event == kDeferred)
    e.event = LedgerEvent::kDeferred;
  else if (!event.empty())
    throw Error("unknown event in a ledger line", event, "it was written by a newer program", ExitCode::kBadData);
  json.at("step").get_to(e.step);
  json.at("epoch").get_to(e.epoch);
  json.at("position").get_to(e.position);
  json.at("id").get_to(e.id);
  json.at("key").get_to(e.key);
  json.at("shard").get_to(e.shard);
  json.at("reason").get_to(e.reason);
  json.at("detail").get_to(e.detail);
  e.category = json.value("category", "");
  if (e.event == LedgerEvent::kReplaced) {
    json.at("by_id").get_to(e.by_id);
    json.at("by_key").get_to(e.by_key);
    json.at("by_shard").get_to(e.by_shard);
    json.at("similarity").get_to(e.similarity);
  }
  if (json.contains("stand_in")) e.stand_in = json.at("stand_in").get<uint64_t>();
  return e;
}

// Two entries with one key speak of the same thing: {step + 1, position} of a deferral, {0, position} of a final fate.
std::pair<uint64_t, uint64_t> ledger_key(const LedgerEntry& e) {
  return {e.event == LedgerEvent::kDeferred ? e.step + 1 : 0, e.position};
}

// Keys and details may hold any bytes of a file name or picture: what is not UTF-8 becomes U+FFFD.
std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Parses whole lines; `*good_bytes` is where the first torn one begins. Only the last line may be torn.
std::vector<LedgerEntry> parse_lines(const std::string& content, const std::string& where, size_t* good_bytes) {
  std::vector<LedgerEntry> entries;
  size_t start = 0;
  for (int number = 1; start < content.size(); ++number) {
    const size_t end = content.find('\n', start);
    const bool last = end == std::string::npos || end + 1 == content.size();
    const std::string line = content.substr(start, end == std::string::npos ? end : end - start);
    const std::string place = where + ":" + std::to_string(number);
    if (end == std::string::npos) break;  // torn: no newline
    try {
      entries.push_back(ledger_entry_from_json(line, place));
    } catch (const Error&) {
      if (!last) throw;  // a torn page may leave zeros and a newline at the very end only
      break;
    }
    start = end + 1;
  }
  *good_bytes = start;
  return entries;
}

std::string read_if_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? read_file(path) : std::string();
}

}  // namespace

std::string to_json_line(const LedgerEntry& entry) { return dump(to_json(entry)) + "\n"; }

LedgerEntry ledger_entry_from_json(const std::string& line, const std::string& where) {
  try {
    return from_json(Json::parse(line));
  } catch (const nlohmann::json::exception& error) {
    throw Error("damaged ledger line", where + ": " + error.what(),
                "restore the file, or take its content from a snapshot", ExitCode::kBadData);
  }
}

Ledger Ledger::open(const std::filesystem::path& path) {
  Ledger ledger;
  ledger.path_ = path;
  const std::string content = read_if_there(path);
  size_t good = 0;
  ledger.entries_ = parse_lines(content, path.string(), &good);
  for (const LedgerEntry& entry : ledger.entries_) ledger.id_at_.emplace(ledger_key(entry), entry.id);
  ledger.fd_ = open_file(path, O_WRONLY | O_CREAT | O_APPEND);
  if (good < content.size()) {
    log_info("{}: a torn last line was cut off", path.string());
    if (::ftruncate(ledger.fd_.get(), static_cast<off_t>(good)) != 0) throw system_error("cannot mend", path.string());
  }
  return ledger;
}

std::vector<LedgerEntry> Ledger::load(const std::filesystem::path& path) {
  size_t good = 0;
  return parse_lines(read_if_there(path), path.string(), &good);
}

void Ledger::append(const std::vector<LedgerEntry>& entries) {
  std::string lines;
  std::vector<LedgerEntry> fresh;
  for (const LedgerEntry& entry : entries) {
    auto [known, is_fresh] = id_at_.emplace(ledger_key(entry), entry.id);
    if (is_fresh) {
      lines += to_json_line(entry);
      fresh.push_back(entry);
    } else if (known->second != entry.id) {
      throw Error("the ledger disagrees with the order of samples",
                  path_.string() + ", position " + std::to_string(entry.position) + ": sample " +
                      std::to_string(known->second) + " there, " + std::to_string(entry.id) + " now",
                  "the data or the seed have changed; start with --fresh", ExitCode::kBadData);
    }
  }
  if (lines.empty()) return;
  write_all(fd_.get(), lines.data(), lines.size(), path_);
  if (::fdatasync(fd_.get()) != 0) throw system_error("cannot sync", path_.string());
  entries_.insert(entries_.end(), fresh.begin(), fresh.end());
}

std::vector<LedgerEntry> Ledger::from_step(uint64_t step) const {
  std::vector<LedgerEntry> found;
  for (const LedgerEntry& entry : entries_)
    if (entry.step >= step) found.push_back(entry);
  return found;
}

std::string serialize_tail(const std::vector<LedgerEntry>& entries, size_t count) {
  Json tail = Json::array();
  for (size_t i = entries.size() - std::min(count, entries.size()); i < entries.size(); ++i)
    tail.push_back(to_json(entries[i]));
  return dump(tail);
}

std::vector<LedgerEntry> parse_tail(const std::string& text) {
  try {
    std::vector<LedgerEntry> entries;
    for (const Json& item : Json::parse(text)) entries.push_back(from_json(item));
    return entries;
  } catch (const nlohmann::json::exception& error) {
    throw Error("damaged ledger tail", error.what(), "", ExitCode::kBadData);
  }
}

std::vector<LedgerEntry> merge_entries(const std::vector<LedgerEntry>& a, const std::vector<LedgerEntry>& b) {
  std::map<std::pair<uint64_t, uint64_t>, LedgerEntry> by_key;
  for (const auto* list : {&a, &b})
    for (const LedgerEntry& entry : *list) by_key.emplace(ledger_key(entry), entry);
  std::vector<LedgerEntry> merged;
  for (auto& [key, entry] : by_key) merged.push_back(std::move(entry));
  std::ranges::sort(merged, {}, [](const LedgerEntry& e) { return std::tuple(e.step, e.position, e.event); });
  return merged;
}

std::vector<std::string> audit_exactly_once(uint64_t samples_of_epoch, uint64_t positions,
                                            const std::vector<TrainedSample>& trained,
                                            const std::vector<LedgerEntry>& ledger) {
  constexpr size_t kMostSentences = 20;
  std::vector<std::string> wrong;
  auto complain = [&](const std::string& sentence) {
    if (wrong.size() < kMostSentences) wrong.push_back(sentence);
  };
  // What happened to each position: 0 nothing, 1 trained, 2 in the ledger.
  std::vector<uint8_t> fate(positions, 0);
  std::vector<uint64_t> id_at(positions, 0);
  auto enter = [&](uint64_t position, uint64_t id, uint8_t what) {
    if (position >= positions) return complain("position " + std::to_string(position) + " is beyond the end");
    if (fate[position] != 0)
      return complain("position " + std::to_string(position) +
                      (fate[position] == what ? (what == 1 ? " was trained on twice" : " is in the ledger twice")
                                              : " was trained on and is in the ledger"));
    fate[position] = what;
    id_at[position] = id;
  };
  for (const TrainedSample& sample : trained) enter(sample.position, sample.id, 1);
  for (const LedgerEntry& entry : ledger)
    if (entry.event != LedgerEvent::kDeferred) enter(entry.position, entry.id, 2);
  std::unordered_map<uint64_t, uint64_t> seen;  // of the present epoch: id → position
  for (uint64_t p = 0; p < positions; ++p) {
    if (p % samples_of_epoch == 0) seen.clear();
    if (fate[p] == 0) {
      complain("position " + std::to_string(p) + " was neither trained on nor is it in the ledger");
      continue;
    }
    if (id_at[p] >= samples_of_epoch)
      complain("position " + std::to_string(p) + ": there is no sample " + std::to_string(id_at[p]));
    auto [at, fresh] = seen.emplace(id_at[p], p);
    if (!fresh)
      complain("sample " + std::to_string(id_at[p]) + " twice in epoch " + std::to_string(p / samples_of_epoch) +
               ": positions " + std::to_string(at->second) + " and " + std::to_string(p));
  }
  return wrong;
}

}  // namespace mso
