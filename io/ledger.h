// The ledger: an append-only file of JSON lines with every sample that was not trained on in its place, and why.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"

namespace mso {

// What became of a sample: left out, another one in its stead, or a later step (its slot went to the next of its
// modality). A sample may be deferred several times, and then skipped or replaced once.
enum class LedgerEvent : uint8_t { kSkipped, kReplaced, kDeferred };

struct LedgerEntry {
  LedgerEvent event = LedgerEvent::kSkipped;
  uint64_t step = 0;
  uint64_t epoch = 0;
  uint64_t position = 0;  // in the endless sample stream
  uint64_t id = 0;        // sample id in the data set
  std::string key;        // of the sample in its shard
  std::string shard;      // file name of the shard
  std::string reason;     // one word: "decode_error", "too_long", …; "late" for a deferral
  std::string detail;     // a sentence
  std::string category;   // of the sample, where healing knows it

  // kReplaced: the sample trained on instead, and the cosine similarity that chose it.
  uint64_t by_id = 0;
  std::string by_key, by_shard;
  double similarity = 0;
  // kDeferred: the position whose sample stood in; none where an earlier deferred sample took the slot.
  std::optional<uint64_t> stand_in;

  bool operator==(const LedgerEntry&) const = default;
};

std::string to_json_line(const LedgerEntry& entry);                                    // with the newline
LedgerEntry ledger_entry_from_json(const std::string& line, const std::string& where);  // Error (kBadData)

// One writer at a time (rank 0). Appending what is already there (a step repeated after a restart) changes nothing, and
// is an Error when it names another sample: of a position there is one deferral a step, and one other entry in all.
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

 private:
  std::filesystem::path path_;
  FileDescriptor fd_;
  std::vector<LedgerEntry> entries_;
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> id_at_;  // ledger_key() → sample id, of entries_
};

// The last `count` entries as a JSON array (record "ledger_tail" of a snapshot) and back.
std::string serialize_tail(const std::vector<LedgerEntry>& entries, size_t count = 1024);
std::vector<LedgerEntry> parse_tail(const std::string& json);
// Entries of both, without doubles, by step and position: a snapshot's tail may know more than a ledger file that was lost.
std::vector<LedgerEntry> merge_entries(const std::vector<LedgerEntry>& a, const std::vector<LedgerEntry>& b);

// Checks exactly-once from the start of the stream: every position in [0, positions) must be trained on once or be in
// the ledger once as skipped or replaced, not both, and no sample may come twice in an epoch of `samples_of_epoch`
// positions (so each sample of a finished epoch comes exactly once). Deferrals do not count: a deferred sample is trained
// on later. Returns one sentence per violation (at most 20), empty when all is right.
struct TrainedSample {
  uint64_t position = 0, id = 0;
};
std::vector<std::string> audit_exactly_once(uint64_t samples_of_epoch, uint64_t positions,
                                            const std::vector<TrainedSample>& trained,
                                            const std::vector<LedgerEntry>& ledger);

}  // namespace mso
