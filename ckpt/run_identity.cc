#include "ckpt/run_identity.h"

#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"

namespace mso {

namespace fs = std::filesystem;

namespace {

std::string new_run_id() {
  uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != sizeof bits)
    bits = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  return hex64(bits);
}

// place.json. It holds the id too: of a copy that is killed between its two files, this one counts.
struct PlaceRecord {
  RunPlace place;
  std::string run_id;
  std::vector<std::string> earlier;
};

fs::path place_file(const fs::path& run_dir) { return run_dir / "place.json"; }

// Nothing where it is missing (a run of an earlier version) or damaged: then the folder counts as the run's own.
std::optional<PlaceRecord> read_place(const fs::path& run_dir) {
  std::error_code ignored;
  if (!fs::exists(place_file(run_dir), ignored)) return {};
  try {
    const auto json = nlohmann::json::parse(read_file(place_file(run_dir), 1 << 20));
    return PlaceRecord{{json.at("path"), json.at("inode")}, json.at("run_id"), json.at("earlier_run_ids")};
  } catch (const std::exception&) {
    log_warn("{} is damaged: whether this folder is a copy of another run is not known, it counts as the run's own",
             place_file(run_dir).string());
    return {};
  }
}

void write_place(const fs::path& run_dir, const PlaceRecord& record) {
  const nlohmann::ordered_json json = {{"path", record.place.path},
                                       {"inode", record.place.inode},
                                       {"run_id", record.run_id},
                                       {"earlier_run_ids", record.earlier}};
  write_file_durably(place_file(run_dir),
                     json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

bool same_folder(const fs::path& a, const fs::path& b) {
  struct stat x, y;
  return ::stat(a.c_str(), &x) == 0 && ::stat(b.c_str(), &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

RunPlace place_of(const fs::path& run_dir) {
  struct stat info;
  if (::stat(run_dir.c_str(), &info) != 0) throw system_error("cannot stat", run_dir.string());
  std::error_code error;
  const fs::path path = fs::canonical(run_dir, error);
  return {error ? run_dir.string() : path.string(), static_cast<uint64_t>(info.st_ino)};
}

bool lives_at(const std::string& path, const std::string& run_id, const fs::path& here) {
  if (path.empty() || same_folder(path, here)) return false;
  try {
    return read_run_id(path) == run_id;
  } catch (const Error&) {
    return false;
  }
}

struct Judged {
  std::string run_id;
  std::optional<PlaceRecord> record;
  RunPlace now;
  PlaceVerdict verdict = PlaceVerdict::kSame;
};

Judged judge(const fs::path& run_dir) {
  Judged judged;
  judged.run_id = read_run_id(run_dir);
  if (judged.run_id.empty()) return judged;
  judged.now = place_of(run_dir);
  judged.record = read_place(run_dir);
  if (judged.record)
    judged.verdict = judge_place(judged.record->place, judged.now,
                                 lives_at(judged.record->place.path, judged.record->run_id, run_dir));
  return judged;
}

}  // namespace

PlaceVerdict judge_place(const RunPlace& recorded, const RunPlace& now, bool original_lives) {
  if (recorded.inode != now.inode) return PlaceVerdict::kCopy;
  if (recorded.path == now.path) return PlaceVerdict::kSame;
  // Renamed, or seen under another name; two file systems may give the same number.
  return original_lives ? PlaceVerdict::kCopy : PlaceVerdict::kMoved;
}

std::string read_run_id(const fs::path& run_dir) {
  const fs::path file = run_dir / "run_id";
  if (!fs::exists(fs::symlink_status(file))) return "";
  std::string id = read_file(file, 4096);
  while (!id.empty() && (id.back() == '\n' || id.back() == ' ')) id.pop_back();
  if (id.empty() || id.size() > 64 || id[0] == '.' || id.find_first_of("/\n \t") != std::string::npos)
    throw Error("damaged run id", file.string(),
                "write the \"run_id\" of a \"start\" line of metrics.jsonl into it, or start anew with --fresh",
                ExitCode::kBadUsage);
  return id;
}

RunIdentity read_identity(const fs::path& run_dir) {
  const Judged judged = judge(run_dir);
  RunIdentity identity{judged.run_id, {}, judged.run_id.empty(), false};
  if (!judged.record) return identity;
  identity.earlier = judged.record->earlier;
  identity.run_id = judged.record->run_id;
  if (judged.verdict == PlaceVerdict::kCopy) {
    // It will get an id when it is started; none of the original's Level 0 is its own.
    identity.earlier.push_back(identity.run_id);
    identity.run_id = "copy-of-" + identity.run_id;
    identity.changed = true;
  }
  return identity;
}

RunIdentity settle_identity(const fs::path& run_dir) {
  Judged judged = judge(run_dir);
  RunIdentity identity;
  if (judged.run_id.empty()) {
    identity.is_new = true;
    identity.run_id = new_run_id();
    write_place(run_dir, {place_of(run_dir), identity.run_id, {}});
    write_file_durably(run_dir / "run_id", identity.run_id + "\n");
    return identity;
  }
  PlaceRecord record = judged.record.value_or(PlaceRecord{judged.now, judged.run_id, {}});
  if (judged.verdict == PlaceVerdict::kCopy) {
    const std::string from = record.place.path;
    record.earlier.push_back(record.run_id);
    record.run_id = new_run_id();
    identity.changed = true;
    log_warn("{} is a copy of the run in {}: it goes on as run {} of its own, from its Level 1 or 2 snapshots; Level 0 "
             "stays with the original",
             run_dir.string(), from, record.run_id);
  }
  record.place = judged.now;
  if (!judged.record || judged.verdict != PlaceVerdict::kSame) write_place(run_dir, record);
  if (record.run_id != judged.run_id) write_file_durably(run_dir / "run_id", record.run_id + "\n");
  identity.run_id = record.run_id;
  identity.earlier = record.earlier;
  return identity;
}

}  // namespace mso
