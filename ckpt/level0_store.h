// L0 on a node's RAM disk: `<level0_path>/mso-<uid>/<run id>/rank-0000/{own,partner}/step-…-attempt-….h5`,
// two generations in each. A generation is a full state and up to three deltas of the steps after it
// (`step-…-attempt-…-delta-N.h5`). Directories are private (0700, owner checked, no link followed).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace mso {

struct GenerationName {
  uint64_t step = 0;
  int64_t attempt = 0;
  int delta = 0;  // steps since the full state it needs; 0: a full state itself
  GenerationName base() const { return {step - static_cast<uint64_t>(delta), attempt, 0}; }
  auto operator<=>(const GenerationName&) const = default;
};
// "step-000000123-attempt-0002.h5", "step-000000125-attempt-0002-delta-2.h5"
std::string generation_file_name(const GenerationName& name);
std::optional<GenerationName> parse_generation_name(const std::string& file);

// Which files make room for a new full state: one is overwritten (empty: make a new file), others removed, so
// that with the new one there are two. Never `protect`, the newest that is whole on all ranks, nor its deltas.
// Oldest attempt first. Deltas whose full state goes become spare files, for the new state's deltas to fill.
// Pure.
struct RotationPlan {
  std::optional<GenerationName> reuse;
  std::vector<GenerationName> spare;
  std::vector<GenerationName> remove;
};
RotationPlan plan_rotation(std::vector<GenerationName> present, std::optional<GenerationName> protect);

// A new generation under its temporary name; removed when destroyed without being published.
class GenerationFile {
 public:
  GenerationFile() = default;
  GenerationFile(FileDescriptor directory, FileDescriptor file, std::string directory_path,
                 std::string temporary)
      : directory_(std::move(directory)),
        file_(std::move(file)),
        directory_path_(std::move(directory_path)),
        temporary_(std::move(temporary)) {}
  GenerationFile(GenerationFile&&) noexcept = default;
  GenerationFile& operator=(GenerationFile&& other) noexcept;
  ~GenerationFile() { discard(); }

  int fd() const { return file_.get(); }
  std::string path() const { return directory_path_ + "/" + (name_.empty() ? temporary_ : name_); }
  void cut(uint64_t size);
  void publish(const GenerationName& name);  // renames
  void discard();

 private:
  FileDescriptor directory_, file_;
  std::string directory_path_, temporary_, name_;
};

class Level0Store {
 public:
  Level0Store(std::filesystem::path level0_path, std::string run_id, int64_t attempt, int rank);

  std::filesystem::path run_directory() const { return level0_path_ / user_folder() / run_id_; }
  // Creates this rank's directories, says in `attempt` that this start of the run is the newest, and removes
  // temporary files of dead ones.
  void prepare();
  enum class Kind { kOwn, kPartner };
  // The file for a full state; makes room for it.
  GenerationFile open_generation(Kind kind, std::optional<GenerationName> protect);
  // The file for a delta; a spare one where there is one.
  GenerationFile open_delta(Kind kind);
  // False: a newer start of the run has used this RAM disk, nothing may be published any more.
  bool attempt_is_current() const;

  struct Found {
    std::string path;
    Kind kind = Kind::kOwn;
    int rank = 0;  // whose directory it lies in
    GenerationName name;
  };
  // All generations of the run on this node, in all rank directories, in a fixed order. Unknown names are
  // returned apart. Nothing there: empty. Error where a directory is not ours alone.
  std::vector<Found> list(std::vector<std::string>* unknown = nullptr) const;
  // Removes files of older starts from directories that nobody refills now: `refilled(rank, kind)` says which
  // are.
  template <typename Refilled>
  void remove_stale(Refilled refilled) {
    for (const Found& found : list())
      if (found.name.attempt < attempt_ && !refilled(found.rank, found.kind)) remove_file(found);
  }

  static std::string user_folder();  // "mso-<uid>"
  static std::string rank_folder(int rank);

 private:
  FileDescriptor open_directory(const std::vector<std::string>& below, bool create) const;
  GenerationFile open_temporary(FileDescriptor directory, const std::string& path, const std::string& reuse);
  void remove_file(const Found& found);

  std::filesystem::path level0_path_;
  std::string run_id_;
  int64_t attempt_;
  int rank_;
};

}  // namespace mso
