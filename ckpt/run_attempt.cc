#include "ckpt/run_attempt.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>

#include <cerrno>
#include <chrono>

#include "base/error.h"
#include "base/hash.h"

namespace mso {

namespace fs = std::filesystem;

namespace {

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

std::string new_run_id() {
  uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != sizeof bits)
    bits = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  return hex64(bits);
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

std::string read_run_id(const fs::path& run_dir) {
  const fs::path file = run_dir / "run_id";
  if (!fs::exists(fs::symlink_status(file))) return "";
  const std::string id = trimmed(read_file(file, 4096));
  if (id.empty() || id.size() > 64 || id[0] == '.' || id.find_first_of("/\n \t") != std::string::npos)
    throw Error("damaged run id", file.string(), "letters, digits, '-' and '_', as in metrics.jsonl");
  return id;
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
      attempt.run_id_ = read_run_id(run_dir);
      if (attempt.run_id_.empty()) {
        attempt.run_id_ = new_run_id();
        write_file_durably(run_dir / "run_id", attempt.run_id_ + "\n");
      }
      attempt.number_ = read_attempt(run_dir) + 1;
      write_file_durably(run_dir / "attempt", std::to_string(attempt.number_) + "\n");
      told = "ok\n" + std::to_string(attempt.number_) + "\n" + attempt.run_id_ + "\n";
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
  if (fields.size() == 3 && fields[0] == "ok") {
    attempt.number_ = std::stoll(fields[1]);
    attempt.run_id_ = fields[2];
    return attempt;
  }
  fields.resize(5);
  throw Error(fields[1], fields[2], fields[3], fields[4] == "2" ? ExitCode::kBadUsage : ExitCode::kFailure);
}

}  // namespace mso
