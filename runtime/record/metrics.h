// The run's diary `metrics.jsonl`: one JSON object a line, written by rank 0, read by `mso report`, tests and
// people.
//
// `step` is everywhere the number of finished steps (the first step of a run writes "step":1; a snapshot or a
// resume with "step":17 holds the state after step 17, the next step is 18). Times are Unix seconds. Loss and
// grad_norm carry 17 significant digits, so they read back bit for bit. JSON knows no NaN or infinity: they
// are written as the strings "nan", "inf", "-inf" (readable by Python's float() and by MetricsReader).
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/file.h"

namespace mso {

inline constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

// Where a field is missing in a file, the reader leaves the value that stands here.
// `time` 0 in a record to be written: the writer sets the current time.

struct StartRecord {
  double time = 0;
  int attempt = 0;
  int ranks = 0;
  int64_t step = 0;   // finished steps when the attempt began (0, or where it resumed)
  int64_t steps = 0;  // planned in all; 0: not known
  std::string run_id;
  int64_t parameters = 0;
};

struct StepRecord {
  double time = 0;
  int64_t step = -1;
  int attempt = 0;
  double loss = kNotANumber;       // mean over the global batch's label tokens
  double grad_norm = kNotANumber;  // global, before clipping
  double lr = kNotANumber;
  int64_t tokens = 0;        // packed positions of the global batch
  int64_t label_tokens = 0;  // those that have a label
  int64_t samples = 0;
  std::string sample_digest;    // 16 hexadecimal digits over the ids of the samples trained on
  double step_s = 0;            // wall time of the step; the next two are parts of it
  double data_wait_s = 0;       // training stood still for want of decoded data
  double snapshot_stall_s = 0;  // training stood still for a snapshot's fence
};

struct EvalRecord {
  double time = 0;
  int64_t step = -1;
  int attempt = 0;
  double loss = kNotANumber;
  int64_t label_tokens = 0;
};

struct SnapshotRecord {
  double time = 0;  // when it was finished (or given up)
  int attempt = 0;
  int level = 0;
  int64_t step = -1;
  double write_s = 0;
  int64_t bytes = 0;  // of rank 0's file; those of the other ranks differ by little
  bool ok = true;
  bool degraded = false;  // written, but with less than it should hold (no partner copy, say)
  std::string error;      // empty: none
};

struct ResumeRecord {
  double time = 0;
  int attempt = 0;
  int level = 0;
  int64_t step = -1;
  std::string source;      // local | partner | shared
  double recovery_s = 0;   // finding, reading and placing the state
  int64_t lost_steps = 0;  // finished before, to be done again
};

struct IncidentRecord {
  double time = 0;
  int attempt = 0;
  std::string kind;  // rank_lost | level_degraded | level_recovered | bad_sample | signal | metrics_lost |
                     // source_slow | source_hung | source_probing | source_healthy | cache_degraded | cache_recovered | …
  std::string message;
};

// A source of data as rank 0 sees it. Cumulative in an attempt, but for state and latencies.
struct StorageRecord {
  double time = 0;
  int64_t step = -1;
  int attempt = 0;
  std::string source;  // folder or URL
  std::string state;   // healthy | slow | hung | probing
  int64_t reads = 0, bytes = 0, errors = 0;
  double p50_ms = 0, p99_ms = 0;  // of the last five seconds; 0: no read
  int64_t cached = 0;     // reads that cache or read-ahead served instead
  int64_t missed = 0;     // those they should have served and did not have
  int64_t elsewhere = 0;  // late or failed here and then served another way
  int64_t given_up = 0;   // reads past their deadline
  int64_t cache_bytes = 0, cache_fills = 0;  // of the cache, whatever the source
};

// Samples of one modality as rank 0 sees them. Counters are cumulative in an attempt.
struct DataRecord {
  double time = 0;
  int64_t step = -1;
  int attempt = 0;
  std::string modality;  // text | image | video | audio
  int64_t samples = 0, deferred = 0;
  int64_t waits = 0;               // steps that waited for a sample of it
  double decode_s = 0;             // of its decoder threads
  int64_t depth = 0, ready = 0;    // now: samples the buffer aims at, samples decoded in it
  int64_t memory_share = 0, memory_used = 0, memory_borrowed = 0, memory_peak = 0;  // bytes of batch memory
  double fragmentation = 0;        // of free batch memory, as a sample of it sees it, at the last step boundary
  int64_t compactions = 0, compacted_bytes = 0, overflow_bytes = 0;  // of batch memory as a whole
};

struct EndRecord {
  double time = 0;
  int attempt = 0;
  int64_t step = 0;
  int exit_code = 0;  // ExitCode of base/error.h
  std::string message;
};

// A line of a type that this version does not know (or a step without a number): kept as it is.
struct UnknownRecord {
  std::string type;
  std::string text;
};

using Record = std::variant<StartRecord, StepRecord, EvalRecord, SnapshotRecord, ResumeRecord, IncidentRecord,
                            StorageRecord, DataRecord, EndRecord, UnknownRecord>;

// One line without the newline. Bytes that are not UTF-8 become U+FFFD. Locale does not matter.
std::string to_json(const StartRecord& record);
std::string to_json(const StepRecord& record);
std::string to_json(const EvalRecord& record);
std::string to_json(const SnapshotRecord& record);
std::string to_json(const ResumeRecord& record);
std::string to_json(const IncidentRecord& record);
std::string to_json(const StorageRecord& record);
std::string to_json(const DataRecord& record);
std::string to_json(const EndRecord& record);

// False: the line is not a JSON object. Fields of a wrong type count as missing.
bool parse_record(std::string_view line, Record& record);
bool is_json(std::string_view line);

// What MetricsWriter found when it opened the file.
struct MetricsFound {
  bool existed = false;
  int64_t torn_bytes = 0;  // cut off: the end of a line whose writer was killed, or zeros after a power loss
  // Of the last lines (0 where there are none): to state how many steps a resume repeats and how long nothing
  // ran.
  int64_t last_step = 0;
  double last_time = 0;
  bool finished = false;  // after the last step stands an end with exit code 0
};

// Whole lines of a diary that are no JSON object.
struct DamagedLines {
  static constexpr size_t kNamed = 5;
  int64_t count = 0;
  std::vector<int64_t> first;  // their numbers, from 1, at most kNamed
  std::string text() const;    // "line 17", "lines 3 and 9", "lines 1, 2, 3, 4, 5 and 12 more"
};
// Checks every line; much faster than reading the records. Error when the file cannot be read.
DamagedLines find_damaged_lines(const std::filesystem::path& path);

// Appends to metrics.jsonl: one write(2) a line with O_APPEND, so a killed run tears at most the last line.
// Storage trouble never throws: it is logged once, lines are counted as lost, the file is tried again with
// each line (an open that fails, every ten seconds), and the first line that gets through is preceded by an
// incident "metrics_lost" that says how many are missing. Thread-safe.
class MetricsWriter {
 public:
  explicit MetricsWriter(std::filesystem::path path);
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  const MetricsFound& found() const { return found_; }

  template <typename T>
  void write(T record) {
    if (record.time == 0) record.time = now();
    write_line(to_json(record), record.attempt);
  }

  void
  sync();  // fdatasync; failures are ignored (the page cache survives kill -9, and that is what matters here)
  int64_t lost_lines() const;
  static double now();  // Unix seconds

 private:
  bool open();
  void mend();
  void write_line(std::string line, int attempt);
  bool append(const std::string& line);
  void fail(const std::string& why);

  mutable std::mutex mutex_;
  std::filesystem::path path_;
  FileDescriptor fd_;
  MetricsFound found_;
  bool opened_once_ = false;
  bool newline_first_ = false;  // part of a line is in the file and could not be taken back
  bool warned_ = false;
  int64_t lost_ = 0, lost_now_ = 0;  // in all; since the last line that got through
  double next_open_ = 0;
};

// Reads a metrics.jsonl as a stream, also while it is being written. Damaged lines are skipped and counted;
// a last line without its newline is used when it is whole, and else counted as torn.
class MetricsReader {
 public:
  explicit MetricsReader(const std::filesystem::path& path);  // Error when it cannot be opened
  bool next(Record& record);                                  // false at the end
  const DamagedLines& damaged() const { return damaged_; }
  bool torn() const { return torn_; }

 private:
  friend DamagedLines find_damaged_lines(const std::filesystem::path& path);
  bool next_line(std::string_view& line, bool& whole);
  void note_damaged();

  std::filesystem::path path_;
  FileDescriptor fd_;
  std::string buffer_;
  size_t at_ = 0;
  bool end_ = false, torn_ = false;
  int64_t line_ = 0;  // number of the line next_line() gave last
  DamagedLines damaged_;
};

}  // namespace mso
