#include "base/partial_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include "base/error.h"
#include "base/log.h"

namespace mso {

namespace fs = std::filesystem;

PartialFolder::PartialFolder(const fs::path& target, const std::function<bool(const std::string&)>& ours)
    : target_(target.lexically_normal()) {
  if (!target_.has_filename()) target_ = target_.parent_path();  // "shards/"
  path_ = target_;
  path_ += ".partial";
  make_folders(path_);
  lock_ = open_file(path_, O_RDONLY | O_DIRECTORY);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw Error("another process writes there", path_.string(), "wait for it", ExitCode::kBadUsage);
  std::error_code error;
  fs::directory_iterator it(path_, error), end;
  size_t left = 0;
  for (; !error && it != end; it.increment(error), ++left)
    if (!ours(it->path().filename().string()))
      throw Error("would remove a folder with other files in it", it->path().string(),
                  "choose another name, or remove what is in this one", ExitCode::kBadUsage);
  if (!error && left > 0) {
    log_info("{} was left by a process that did not finish: written anew", path_.string());
    for (it = fs::directory_iterator(path_, error); !error && it != end; it.increment(error)) fs::remove_all(it->path(), error);
  }
  if (error) throw system_error("cannot empty", path_.string(), error.value());
}

PartialFolder::~PartialFolder() {
  if (published_) return;
  std::error_code error;
  fs::remove_all(path_, error);
  if (error)
    log_warn("the unfinished {} could not be removed ({}): the next try does it, or remove it by hand", path_.string(),
             error.message());
}

void PartialFolder::publish() {
  std::error_code ignored;
  if (fs::is_directory(target_, ignored)) fs::remove(target_, ignored);  // an empty one
  rename_path(path_, target_);
  published_ = true;
  sync_directory(target_.has_parent_path() ? target_.parent_path() : fs::path("."));
}

}  // namespace mso
