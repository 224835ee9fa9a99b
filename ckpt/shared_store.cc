#include "ckpt/shared_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/kill_point.h"
#include "base/log.h"
#include "ckpt/run_attempt.h"

namespace mso {

namespace fs = std::filesystem;

namespace {

constexpr const char* kManifest = "manifest.json";
constexpr const char* kWrittenMark = "first-whole-step";

const char* level_name(SnapshotLevel level) {
  return level == SnapshotLevel::kL0 ? "L0" : level == SnapshotLevel::kL1 ? "L1" : "L2";
}
const char* kill_prefix(SnapshotLevel level) {
  return level == SnapshotLevel::kL1 ? "l1" : "l2";
}

nlohmann::ordered_json body_of(const Manifest& manifest) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const Manifest::File& file : manifest.files)
    files.push_back({{"name", file.name},
                     {"size", file.size},
                     {"checksum", hex64(file.checksum)},
                     {"header", hex64(file.header)}});
  return {{"format", manifest.format},
          {"run_id", manifest.run_id},
          {"attempt", manifest.attempt},
          {"step", manifest.step},
          {"level", level_name(manifest.level)},
          {"exact", manifest.exact},
          {"time", manifest.time},
          {"files", files},
          {"plan", manifest.plan}};
}

uint64_t parse_hex(const std::string& text) {
  return std::stoull(text, nullptr, 16);
}

bool path_exists(const fs::path& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

void make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw system_error("cannot create", path.string(), error.value());
}

}  // namespace

std::string encode_manifest(const Manifest& manifest) {
  nlohmann::ordered_json json = body_of(manifest);
  json["manifest_checksum"] = hex64(hash64(json.dump()));
  return json.dump(1) + "\n";
}

Manifest decode_manifest(const std::string& text, const std::string& path) {
  Manifest manifest;
  try {
    nlohmann::json json = nlohmann::json::parse(text);
    manifest.format = json.at("format");
    if (manifest.format != kShardFormat)
      throw Error("snapshot of another version", path + " has format " + std::to_string(manifest.format),
                  "read it with the version of mso that wrote it");
    manifest.run_id = json.at("run_id");
    manifest.attempt = json.at("attempt");
    manifest.step = json.at("step");
    const std::string level = json.at("level");
    manifest.level = level == "L0"   ? SnapshotLevel::kL0
                     : level == "L1" ? SnapshotLevel::kL1
                                     : SnapshotLevel::kL2;
    manifest.exact = json.at("exact");
    manifest.time = json.at("time");
    for (const nlohmann::json& file : json.at("files"))
      manifest.files.push_back(
          {file.at("name"), file.at("size"), parse_hex(file.at("checksum")), parse_hex(file.at("header"))});
    manifest.plan = json.at("plan");
  } catch (const nlohmann::json::exception& e) {
    throw Error("damaged manifest", path + ": " + e.what());
  } catch (const std::logic_error&) {  // stoull
    throw Error("damaged manifest", path + ": bad checksum field");
  }
  // Same content, same text: a change anywhere shows, in a blank as well as in the checksum itself.
  std::string again;
  try {
    again = encode_manifest(manifest);
  } catch (const nlohmann::json::exception&) {
  }
  if (again != text) throw Error("damaged manifest", path + ": checksum does not match");
  return manifest;
}

fs::path level_directory(const fs::path& run_dir, SnapshotLevel level) {
  return run_dir / "checkpoints" / level_name(level);
}

std::string step_folder(uint64_t step) {
  char text[40];
  std::snprintf(text, sizeof text, "step-%09llu", static_cast<unsigned long long>(step));
  return text;
}

std::optional<uint64_t> parse_step_folder(const std::string& name) {
  if (!name.starts_with("step-") || name.size() < 14 || name.size() > 23) return std::nullopt;
  uint64_t step = 0;
  for (char c : name.substr(5)) {
    if (c < '0' || c > '9') return std::nullopt;
    step = step * 10 + (c - '0');
  }
  return step_folder(step) == name ? std::optional(step) : std::nullopt;
}

bool is_temporary_folder(const std::string& name) {
  size_t at = name.find(".tmp-");
  return at != std::string::npos && parse_step_folder(name.substr(0, at)).has_value();
}

std::string shard_file_name(int writer, int writers) {
  char text[48];
  std::snprintf(text, sizeof text, "rank-%04d-of-%04d.h5", writer, writers);
  return text;
}

LevelListing list_level(const fs::path& run_dir, SnapshotLevel level, int part, int parts) {
  LevelListing listing;
  const fs::path directory = level_directory(run_dir, level);
  std::error_code error;
  fs::directory_iterator it(directory, error), end;
  if (error == std::errc::no_such_file_or_directory) return listing;
  if (error) throw system_error("cannot list", directory.string(), error.value());
  for (; it != end; it.increment(error)) {
    if (error) throw system_error("cannot list", directory.string(), error.value());
    const std::string name = it->path().filename().string();
    auto step = parse_step_folder(name);
    if (step && it->symlink_status().type() == fs::file_type::directory)
      listing.states.push_back({it->path(), *step, std::nullopt, ""});
    else if (is_temporary_folder(name))
      listing.temporary.push_back(it->path().string());
    else
      listing.unknown.push_back(it->path().string());
  }
  if (error) throw system_error("cannot list", directory.string(), error.value());
  std::sort(listing.states.begin(), listing.states.end(),
            [](const auto& a, const auto& b) { return a.step < b.step; });
  std::sort(listing.unknown.begin(), listing.unknown.end());
  std::sort(listing.temporary.begin(), listing.temporary.end());
  for (size_t i = 0; i < listing.states.size(); ++i) {
    if (static_cast<int>(i % parts) != part) continue;
    StateFolder& state = listing.states[i];
    try {
      const std::string path = (state.path / kManifest).string();
      state.manifest = decode_manifest(read_file(path, 256 << 20), path);
      if (state.manifest->step != state.step || state.manifest->level != level) {
        state.manifest.reset();
        throw Error("manifest of another state", path, "the folder was renamed or copied");
      }
    } catch (const Error& e) {
      state.problem = e.what();
    }
  }
  return listing;
}

ShardHeader check_against_manifest(const StateFolder& state, int writer) {
  const Manifest& manifest = *state.manifest;
  const Manifest::File& expected = manifest.files.at(writer);
  const std::string path = (state.path / expected.name).string();
  ShardHeader header = read_header(path);
  if (header.size != expected.size || header.checksum != expected.checksum ||
      hash64(encode_header(header)) != expected.header || header.step != manifest.step ||
      header.attempt != manifest.attempt || header.run_id != manifest.run_id || header.writer != writer ||
      header.writers != static_cast<int>(manifest.files.size()))
    throw Error("snapshot file of another state", path + " is not the one of the manifest");
  return header;
}

std::vector<uint64_t> states_to_prune(const std::vector<PruneEntry>& present, int keep, int64_t attempt,
                                      std::optional<uint64_t> resumed_step) {
  std::vector<PruneEntry> order = present;
  // From the first to keep to the first to go.
  auto rank_of = [&](const PruneEntry& e) {
    if (e.attempt == attempt) return 0;
    if (resumed_step && e.step == *resumed_step) return 1;
    if (!resumed_step || e.step < *resumed_step) return 2;
    return 3;
  };
  std::sort(order.begin(), order.end(), [&](const PruneEntry& a, const PruneEntry& b) {
    int ra = rank_of(a), rb = rank_of(b);
    return ra != rb ? ra < rb : a.step > b.step;
  });
  std::vector<uint64_t> result;
  for (size_t i = std::max(keep, 1); i < order.size(); ++i) result.push_back(order[i].step);
  std::sort(result.begin(), result.end());
  return result;
}

fs::path SharedStore::temporary_folder(SnapshotLevel level, uint64_t step) const {
  return level_directory(settings_.run_dir, level) / (step_folder(step) + ".tmp-" + std::to_string(settings_.attempt));
}

fs::path SharedStore::prepare_file(SnapshotLevel level, uint64_t step, int writer, int writers) const {
  if (!path_exists(settings_.run_dir)) throw Error("the run's folder has vanished", settings_.run_dir.string());
  const fs::path folder = temporary_folder(level, step);
  make_directories(folder);
  return folder / shard_file_name(writer, writers);
}

uint64_t SharedStore::commit(SnapshotLevel level, uint64_t step, int writers, const std::string& plan) const {
  const char* prefix = kill_prefix(level);
  kill_point("_commit_begin", prefix);
  const fs::path folder = temporary_folder(level, step);
  Manifest manifest;
  manifest.run_id = settings_.run_id;
  manifest.attempt = settings_.attempt;
  manifest.step = step;
  manifest.level = level;
  manifest.plan = plan;
  uint64_t bytes = 0;
  for (int writer = 0; writer < writers; ++writer) {
    const std::string name = shard_file_name(writer, writers);
    ShardHeader header = read_header((folder / name).string());
    if (header.step != step || header.attempt != settings_.attempt || header.run_id != settings_.run_id ||
        header.writer != writer || header.writers != writers)
      throw Error("snapshot file of another state", (folder / name).string());
    manifest.exact = header.exact;
    manifest.time = std::max(manifest.time, header.time);
    manifest.files.push_back({name, header.size, header.checksum, hash64(encode_header(header))});
    bytes += header.size;
  }
  write_file_durably(folder / kManifest, encode_manifest(manifest));
  kill_point("_commit_after_manifest", prefix);
  if (read_attempt(settings_.run_dir) != settings_.attempt) throw AttemptLost(settings_.run_dir);
  const fs::path parent = level_directory(settings_.run_dir, level), target = parent / step_folder(step);
  // The same step again, of an older start: exchanged in one go where the file system can, so that one is
  // always there.
  bool replaced = false;
  if (path_exists(target)) {
    if (::renameat2(AT_FDCWD, folder.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
      replaced = true;
    } else {
      const fs::path aside = folder.string() + "-replaced";
      if (::rename(target.c_str(), aside.c_str()) != 0) throw system_error("cannot rename", target.string());
    }
  }
  if (!replaced && ::rename(folder.c_str(), target.c_str()) != 0)
    throw system_error("cannot rename", folder.string());
  kill_point("_commit_after_rename", prefix);
  sync_directory(parent);
  sync_directory(parent.parent_path());
  kill_point("_commit_before_prune", prefix);
  for (const fs::path& old : {folder, fs::path(folder.string() + "-replaced")})
    if (path_exists(old)) remove_folder(old, level, false);
  return bytes;
}

void SharedStore::prune(SnapshotLevel level, int keep, std::optional<uint64_t> resumed_step) const {
  LevelListing listing = list_level(settings_.run_dir, level);
  std::vector<PruneEntry> present;
  for (const StateFolder& state : listing.states) {
    if (state.manifest && !settings_.owns(state.manifest->run_id)) continue;  // not this run's: left alone
    present.push_back({state.step, state.manifest ? state.manifest->attempt : 0});
  }
  for (uint64_t step : states_to_prune(present, keep, settings_.attempt, resumed_step))
    remove_folder(level_directory(settings_.run_dir, level) / step_folder(step), level, true);
}

void SharedStore::remove_folder(const fs::path& folder, SnapshotLevel level, bool visible) const {
  fs::path doomed = folder;
  if (visible) {
    // Under a temporary name first: a half-removed state must not look like a damaged one.
    doomed = folder.string() + ".tmp-" + std::to_string(settings_.attempt) + "-old";
    if (::rename(folder.c_str(), doomed.c_str()) != 0) throw system_error("cannot rename", folder.string());
    kill_point("_prune_after_rename", kill_prefix(level));
  }
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator it(doomed, error), end; !error && it != end; it.increment(error))
    files.push_back(it->path());
  bool first = true;
  for (const fs::path& file : files) {
    ::unlink(file.c_str());
    if (visible && first) kill_point("_prune_half", kill_prefix(level));
    first = false;
  }
  if (::rmdir(doomed.c_str()) != 0 && errno != ENOENT)
    log_warn("cannot remove {}: {} (something that is not ours lies in it)", doomed.string(),
             std::strerror(errno));
}

void SharedStore::drop(SnapshotLevel level, uint64_t step) const {
  const fs::path folder = temporary_folder(level, step);
  if (path_exists(folder)) remove_folder(folder, level, false);
}

void SharedStore::clean(SnapshotLevel level) const {
  LevelListing listing = list_level(settings_.run_dir, level, 0, 1 << 30);  // no manifests
  for (const std::string& path : listing.temporary) {
    log_info("removing unfinished snapshot {}", path);
    remove_folder(path, level, false);
  }
}

void SharedStore::mark_written(uint64_t step) const {
  const fs::path mark = settings_.run_dir / "checkpoints" / kWrittenMark;
  if (path_exists(mark)) return;
  make_directories(mark.parent_path());
  write_file_durably(mark, std::to_string(step) + "\n");
}

bool SharedStore::was_written(const fs::path& run_dir) {
  return path_exists(run_dir / "checkpoints" / kWrittenMark);
}

}  // namespace mso
