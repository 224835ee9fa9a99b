#include "ckpt/level0_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/kill_point.h"
#include "ckpt/delta.h"

namespace mso {

namespace {

constexpr const char* kKindFolder[] = {"own", "partner"};
constexpr const char* kTemporary = "writing.tmp-";
constexpr const char* kSpare = "writing.tmp-spare-";

std::vector<std::string> names_in(int directory, const std::string& path) {
  int copy = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);  // a position of its own
  DIR* stream = copy < 0 ? nullptr : ::fdopendir(copy);
  if (!stream) {
    int error = errno;
    if (copy >= 0) ::close(copy);
    throw system_error("cannot list", path, error);
  }
  std::vector<std::string> names;
  while (dirent* entry = ::readdir(stream))
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0)
      names.emplace_back(entry->d_name);
  ::closedir(stream);
  std::sort(names.begin(), names.end());
  return names;
}

// Digits only, as many as `at_least`, no more leading zeros than needed for that.
std::optional<uint64_t> parse_digits(const std::string& text, size_t at_least) {
  if (text.size() < at_least || text.size() > 18 || (text.size() > at_least && text[0] == '0'))
    return std::nullopt;
  uint64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

// The newest start that used this RAM disk, with a checksum: a damaged number must not fence anybody.
std::string attempt_text(int64_t attempt) {
  const std::string number = std::to_string(attempt);
  return number + " " + hex64(hash64(number)) + "\n";
}
// 0 where the file is missing (the directory has vanished: publishing will say so) or damaged.
int64_t read_newest_attempt(const std::filesystem::path& file) {
  try {
    const std::string text = read_file(file, 64);
    const auto number = parse_digits(text.substr(0, text.find(' ')), 1);
    if (number && text == attempt_text(static_cast<int64_t>(*number))) return static_cast<int64_t>(*number);
  } catch (const Error&) {
  }
  return 0;
}

}  // namespace

std::string generation_file_name(const GenerationName& name) {
  char text[96];
  std::snprintf(text, sizeof text, "step-%09llu-attempt-%04lld",
                static_cast<unsigned long long>(name.step), static_cast<long long>(name.attempt));
  return text + (name.delta > 0 ? "-delta-" + std::to_string(name.delta) : std::string()) + ".h5";
}

std::optional<GenerationName> parse_generation_name(const std::string& file) {
  const std::string begin = "step-", middle = "-attempt-", last = "-delta-";
  std::string end = ".h5";
  int delta = 0;
  if (size_t found = file.find(last); found != std::string::npos) {
    const size_t digit = found + last.size();
    if (digit >= file.size() || file[digit] < '1' || file[digit] > '0' + kMaxDeltas) return std::nullopt;
    delta = file[digit] - '0';
    end = last + file[digit] + end;
  }
  size_t at = file.find(middle);
  if (!file.starts_with(begin) || !file.ends_with(end) || at == std::string::npos) return std::nullopt;
  if (at + middle.size() + end.size() > file.size()) return std::nullopt;
  auto step = parse_digits(file.substr(begin.size(), at - begin.size()), 9);
  const size_t attempt_at = at + middle.size();
  auto attempt = parse_digits(file.substr(attempt_at, file.size() - end.size() - attempt_at), 4);
  if (!step || !attempt || *step < static_cast<uint64_t>(delta)) return std::nullopt;
  return GenerationName{*step, static_cast<int64_t>(*attempt), delta};
}

RotationPlan plan_rotation(std::vector<GenerationName> present, std::optional<GenerationName> protect) {
  std::sort(present.begin(), present.end(), [](const GenerationName& a, const GenerationName& b) {
    return a.attempt != b.attempt ? a.attempt < b.attempt : a.step < b.step;
  });
  size_t left = std::count_if(present.begin(), present.end(), [](const auto& name) { return name.delta == 0; });
  RotationPlan plan;
  std::vector<GenerationName> stays;
  for (const GenerationName& name : present) {
    if (name.delta > 0) continue;
    if (left < 2 || (protect && name == *protect)) {
      stays.push_back(name);
      continue;
    }
    if (!plan.reuse)
      plan.reuse = name;
    else
      plan.remove.push_back(name);
    --left;
  }
  for (const GenerationName& name : present) {
    if (name.delta == 0 || std::find(stays.begin(), stays.end(), name.base()) != stays.end()) continue;
    (plan.spare.size() < kMaxDeltas ? plan.spare : plan.remove).push_back(name);
  }
  return plan;
}

GenerationFile& GenerationFile::operator=(GenerationFile&& other) noexcept {
  if (this != &other) {
    discard();
    directory_ = std::move(other.directory_);
    file_ = std::move(other.file_);
    directory_path_ = std::move(other.directory_path_);
    temporary_ = std::move(other.temporary_);
    name_ = std::move(other.name_);
  }
  return *this;
}

void GenerationFile::cut(uint64_t size) {
  if (::ftruncate(file_.get(), static_cast<off_t>(size)) != 0) throw system_error("cannot cut", path());
}

void GenerationFile::publish(const GenerationName& name) {
  const std::string visible = generation_file_name(name);
  if (::renameat(directory_.get(), temporary_.c_str(), directory_.get(), visible.c_str()) != 0)
    throw system_error("cannot rename", path());
  name_ = visible;
}

void GenerationFile::discard() {
  if (directory_.valid() && file_.valid() && name_.empty())
    ::unlinkat(directory_.get(), temporary_.c_str(), 0);
  file_.reset();
  directory_.reset();
}

Level0Store::Level0Store(std::filesystem::path level0_path, std::string run_id, int64_t attempt, int rank)
    : level0_path_(std::move(level0_path)), run_id_(std::move(run_id)), attempt_(attempt), rank_(rank) {
  if (run_id_.empty() || run_id_.find('/') != std::string::npos || run_id_[0] == '.')
    throw Error("bad run id", "'" + run_id_ + "'", "letters, digits, '-' and '_'");
}

std::string Level0Store::user_folder() {
  return "mso-" + std::to_string(::geteuid());
}

std::string Level0Store::rank_folder(int rank) {
  char text[32];
  std::snprintf(text, sizeof text, "rank-%04d", rank);
  return text;
}

FileDescriptor Level0Store::open_directory(const std::vector<std::string>& below, bool create) const {
  FileDescriptor at = open_file(level0_path_, O_RDONLY | O_DIRECTORY);
  std::string path = level0_path_.string();
  for (const std::string& name : below) {
    path += "/" + name;
    if (create && ::mkdirat(at.get(), name.c_str(), 0700) != 0 && errno != EEXIST)
      throw system_error("cannot create", path);
    int fd = ::openat(at.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) throw system_error("cannot open", path);
    at = FileDescriptor(fd);
    struct stat info;
    if (::fstat(fd, &info) != 0) throw system_error("cannot stat", path);
    if (info.st_uid != ::geteuid())
      throw Error("directory of another user", path, "remove it or set ecm.level0_path");
    if ((info.st_mode & 077) != 0 && ::fchmod(fd, 0700) != 0) throw system_error("cannot make private", path);
  }
  return at;
}

void Level0Store::prepare() {
  for (const char* kind : kKindFolder) {
    FileDescriptor directory = open_directory({user_folder(), run_id_, rank_folder(rank_), kind}, true);
    for (const std::string& name : names_in(directory.get(), kind))
      if (name.starts_with(kTemporary)) ::unlinkat(directory.get(), name.c_str(), 0);
  }
  const std::filesystem::path file = run_directory() / "attempt";
  if (read_newest_attempt(file) >= attempt_) return;
  // Ranks of a node may do this at once: each under its own name.
  const std::filesystem::path beside = run_directory() / ("attempt.tmp-" + rank_folder(rank_));
  FileDescriptor fd = open_file(beside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
  const std::string text = attempt_text(attempt_);
  write_all(fd.get(), text.data(), text.size(), beside);
  if (::rename(beside.c_str(), file.c_str()) != 0) throw system_error("cannot rename", beside.string());
}

bool Level0Store::attempt_is_current() const {
  return read_newest_attempt(run_directory() / "attempt") <= attempt_;
}

GenerationFile Level0Store::open_generation(Kind kind, std::optional<GenerationName> protect) {
  const char* folder = kKindFolder[static_cast<int>(kind)];
  FileDescriptor directory = open_directory({user_folder(), run_id_, rank_folder(rank_), folder}, true);
  const std::string path = (run_directory() / rank_folder(rank_) / folder).string();
  std::vector<GenerationName> present;
  for (const std::string& name : names_in(directory.get(), path))
    if (auto generation = parse_generation_name(name)) present.push_back(*generation);
  const RotationPlan plan = plan_rotation(std::move(present), protect);
  // Deltas first: ended half-way, this leaves a full state without deltas, not deltas of nothing.
  for (size_t i = 0; i < plan.spare.size(); ++i)
    ::renameat(directory.get(), generation_file_name(plan.spare[i]).c_str(), directory.get(),
               (kSpare + std::to_string(i)).c_str());
  if (!plan.spare.empty()) kill_point("l0_after_spares");
  for (const GenerationName& name : plan.remove)
    ::unlinkat(directory.get(), generation_file_name(name).c_str(), 0);
  return open_temporary(std::move(directory), path, plan.reuse ? generation_file_name(*plan.reuse) : "");
}

GenerationFile Level0Store::open_delta(Kind kind) {
  const char* folder = kKindFolder[static_cast<int>(kind)];
  FileDescriptor directory = open_directory({user_folder(), run_id_, rank_folder(rank_), folder}, true);
  const std::string path = (run_directory() / rank_folder(rank_) / folder).string();
  std::string spare;
  for (const std::string& name : names_in(directory.get(), path))
    if (name.starts_with(kSpare)) spare = name;
  return open_temporary(std::move(directory), path, spare);
}

GenerationFile Level0Store::open_temporary(FileDescriptor directory, const std::string& path,
                                           const std::string& reuse) {
  const std::string temporary = kTemporary + std::to_string(attempt_);
  int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  // Refilled pages cost less than new ones, and a full RAM disk does not hurt.
  if (reuse.empty() ||
      ::renameat(directory.get(), reuse.c_str(), directory.get(), temporary.c_str()) != 0)
    flags |= O_TRUNC;
  int fd = ::openat(directory.get(), temporary.c_str(), flags, 0600);
  if (fd < 0) throw system_error("cannot write", path + "/" + temporary);
  FileDescriptor file(fd);
  struct stat info;
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    throw Error("no regular file", path + "/" + temporary);
  return GenerationFile(std::move(directory), std::move(file), path, temporary);
}

std::vector<Level0Store::Found> Level0Store::list(std::vector<std::string>* unknown) const {
  std::vector<Found> all;
  struct stat info;
  const std::string run = run_directory().string();
  if (::lstat(run.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return all;
    throw system_error("cannot list", run);
  }
  FileDescriptor top = open_directory({user_folder(), run_id_}, false);
  for (const std::string& folder : names_in(top.get(), run)) {
    if (folder == "attempt" || folder.starts_with("attempt.tmp-")) continue;
    auto rank = folder.starts_with("rank-") ? parse_digits(folder.substr(5), 4) : std::nullopt;
    if (!rank) {
      if (unknown) unknown->push_back(run + "/" + folder);
      continue;
    }
    for (int kind = 0; kind < 2; ++kind) {
      const std::string path = run + "/" + folder + "/" + kKindFolder[kind];
      if (::lstat(path.c_str(), &info) != 0) continue;
      FileDescriptor directory = open_directory({user_folder(), run_id_, folder, kKindFolder[kind]}, false);
      for (const std::string& name : names_in(directory.get(), path)) {
        if (name.starts_with(kTemporary)) continue;
        if (auto generation = parse_generation_name(name))
          all.push_back({path + "/" + name, static_cast<Kind>(kind), static_cast<int>(*rank), *generation});
        else if (unknown)
          unknown->push_back(path + "/" + name);
      }
    }
  }
  return all;
}

void Level0Store::remove_file(const Found& found) {
  ::unlink(found.path.c_str());
  const std::filesystem::path kind = std::filesystem::path(found.path).parent_path();
  if (::rmdir(kind.c_str()) == 0) ::rmdir(kind.parent_path().c_str());  // only where empty
}

}  // namespace mso
