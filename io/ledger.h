// The ledger: an append-only file of JSON lines with every sample that was not trained on, and why.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/file.h"

namespace mso {

struct LedgerEntry {
  uint64_t step = 0;
  uint64_t epoch = 0;
  uint64_t position = 0;  // in the endless sample stream: step·N + index in the global batch
  uint64_t id = 0;        // sample id in the data set
  std::string key;        // of the sample in its shard
  std::string shard;      // file name of the shard
  std::string reason;     // one word: "decode_error", "too_long", …
  std::string detail;     // a sentence

  bool operator==(const LedgerEntry&) const = default;
};

std::string to_json_line(const LedgerEntry& entry);                                    // with the newline
LedgerEntry ledger_entry_from_json(const std::string& line, const std::string& where);  // Error (kBadData)

// One writer at a time (rank 0). Appending an entry for a position that is already there (a step repeated after a
// restart) changes nothing, and is an Error when it names another sample.
class Ledger {
 public:
  // Reads what is there; a torn last line (the writer was killed) is cut off. Error (kBadData) naming the line for
  // damage elsewhere.
  static Ledger open(const std::filesystem::path& path);
  // Only read, for other ranks and tools; the file is not touched. A missing file is an empty ledger.
  static std::vector<LedgerEntry> load(const std::filesystem::path& path);

  // Appends and syncs, so that the entries are durable before the step trains.
  void append(const std::vector<LedgerEntry>& entries);

  const std::vector<LedgerEntry>& entries() const { return entries_; }
  std::vector<LedgerEntry> from_step(uint64_t step) const;  // entries of steps ≥ step
  // Entries with position in [first, first + count), as index in the batch → entry: what the batch of one step loses.
  std::map<uint64_t, LedgerEntry> of_positions(uint64_t first, uint64_t count) const;

 private:
  std::filesystem::path path_;
  FileDescriptor fd_;
  std::vector<LedgerEntry> entries_;
  std::unordered_map<uint64_t, uint64_t> id_at_;  // position → sample id, of entries_
};

// The last `count` entries as a JSON array (record "ledger_tail" of a snapshot) and back.
std::string serialize_tail(const std::vector<LedgerEntry>& entries, size_t count = 1024);
std::vector<LedgerEntry> parse_tail(const std::string& json);
// Entries of both, without doubles, by position: a snapshot's tail may know more than a ledger file that was lost.
std::vector<LedgerEntry> merge_entries(const std::vector<LedgerEntry>& a, const std::vector<LedgerEntry>& b);

// Checks exactly-once from the start of the stream: every position in [0, positions) must be trained on once or be in
// the ledger once, not both, and no sample may come twice in an epoch of `samples_of_epoch` positions (so each sample of
// a finished epoch comes exactly once). Returns one sentence per violation (at most 20), empty when all is right.
struct TrainedSample {
  uint64_t position = 0, id = 0;
};
std::vector<std::string> audit_exactly_once(uint64_t samples_of_epoch, uint64_t positions,
                                            const std::vector<TrainedSample>& trained,
                                            const std::vector<LedgerEntry>& ledger);

}  // namespace mso
