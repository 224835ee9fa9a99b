#include "ckpt/run_attempt.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "ckpt/run_identity.h"

namespace mso {

namespace fs = std::filesystem;

namespace {

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

// The highest number of a start that the end of the diary tells of; 0: none.
int64_t newest_attempt_in_diary(const fs::path& diary) {
  constexpr uint64_t kTail = 1 << 20;
  constexpr std::string_view kField = "\"attempt\":";
  std::error_code missing;
  const uint64_t size = fs::file_size(diary, missing);
  if (missing) return 0;
  std::string tail(std::min(size, kTail), '\0');
  int64_t newest = 0;
  try {
    pread_all(open_file(diary, O_RDONLY).get(), tail.data(), tail.size(), size - tail.size(), diary);
  } catch (const Error&) {
    return 0;
  }
  for (size_t at = 0; (at = tail.find(kField, at)) != std::string::npos;) {
    at += kField.size();
    int64_t number = 0;
    size_t digits = 0;
    for (; at < tail.size() && tail[at] >= '0' && tail[at] <= '9' && digits < 9; ++at, ++digits)
      number = number * 10 + (tail[at] - '0');
    newest = std::max(newest, number);
  }
  return newest;
}

// The number of the newest start so far.
int64_t newest_attempt(const fs::path& run_dir, bool is_new) {
  const fs::path file = run_dir / "attempt";
  std::optional<int64_t> counted;
  std::string trouble = "is missing";
  if (fs::exists(fs::symlink_status(file))) {
    try {
      counted = read_attempt(run_dir);
    } catch (const Error& e) {
      trouble = "cannot be used (" + std::string(e.what_failed()) + ")";
    }
  } else if (is_new) {
    counted = 0;
  }
  const int64_t seen = newest_attempt_in_diary(run_dir / "metrics.jsonl");
  if (counted && *counted >= seen) return *counted;
  if (!counted && seen == 0) {
    // Killed between the identity and the counter of its first start, or robbed of both.
    if (!fs::exists(run_dir / "checkpoints")) return 0;
    throw Error("the run's counter of starts " + trouble, file.string(),
                "write a number into it that is not below any `start` of mso ckpt ls, or start anew with --fresh",
                ExitCode::kBadUsage);
  }
  log_warn("the counter of starts {} {}: goes on after start {}, the newest in metrics.jsonl", file.string(),
           counted ? "was set back" : trouble, seen);
  return seen;
}

}  // namespace

int64_t read_attempt(const fs::path& run_dir) {
  const fs::path file = run_dir / "attempt";
  if (!fs::exists(fs::symlink_status(file))) return 0;
  const std::string text = trimmed(read_file(file, 64));
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string::npos)
    throw Error("damaged counter of starts", file.string(),
                "write a number into it that is higher than any 'attempt' "
                "in metrics.jsonl");
  return std::stoll(text);
}

RunAttempt RunAttempt::begin(const fs::path& run_dir, Communicator& group, double timeout_s) {
  RunAttempt attempt;
  // What rank 0 tells: "ok", number, id — or "error", what, on, hint, code; a field a line.
  std::string told;
  if (group.rank() == 0) {
    try {
      std::error_code error;
      fs::create_directories(run_dir, error);
      if (error) throw system_error("cannot create the run's folder", run_dir.string(), error.value());
      attempt.lock_ = open_file(run_dir / "attempt.lock", O_RDWR | O_CREAT, 0644);
      if (::flock(attempt.lock_.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
          throw Error("another live run uses this folder", run_dir.string(),
                      "wait for it to end, or give another train.run_dir", ExitCode::kBadUsage);
        throw system_error("cannot lock", (run_dir / "attempt.lock").string());
      }
      const RunIdentity identity = settle_identity(run_dir);
      attempt.counter_ = run_dir / "attempt";
      attempt.number_ = newest_attempt(run_dir, identity.is_new) + 1;
      write_file_durably(attempt.counter_, std::to_string(attempt.number_) + "\n");
      told = "ok\n" + std::to_string(attempt.number_) + "\n" + identity.run_id + "\n";
      for (const std::string& id : identity.earlier) told += id + "\n";
    } catch (const Error& e) {
      told = "error\n" + e.what_failed() + "\n" + e.on() + "\n" + e.hint() + "\n" +
             std::to_string(static_cast<int>(e.exit_code())) + "\n";
    } catch (const std::exception& e) {
      told = std::string("error\ncannot start the run\n") + e.what() + "\n\n1\n";
    }
  }
  told = all_gather_text(group, told, timeout_s).front();
  std::vector<std::string> fields;
  for (size_t at = 0; at < told.size();) {
    size_t end = told.find('\n', at);
    fields.push_back(told.substr(at, end - at));
    at = end == std::string::npos ? told.size() : end + 1;
  }
  if (fields.size() >= 3 && fields[0] == "ok") {
    attempt.number_ = std::stoll(fields[1]);
    attempt.run_id_ = fields[2];
    attempt.earlier_run_ids_.assign(fields.begin() + 3, fields.end());
    return attempt;
  }
  fields.resize(5);
  throw Error(fields[1], fields[2], fields[3], fields[4] == "2" ? ExitCode::kBadUsage : ExitCode::kFailure);
}

void RunAttempt::withdraw() {
  if (lock_.valid()) write_file_durably(counter_, std::to_string(number_ - 1) + "\n");
}

}  // namespace mso
