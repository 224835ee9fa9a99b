// Kills at every named moment, damage to every kind of file, and storage that is full, read-only or gone.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>

#include "base/file.h"
#include "base/kill_point.h"
#include "base/log.h"
#include "ckpt/kill_points.h"
#include "tiny_run.h"

namespace {
// While not 0, writing to files below the folder fails with this errno.
std::atomic<int> refused_errno{0};
std::string refused_folder;  // set before any thread writes
}  // namespace

// In the place of the C library's: a quota cannot be set up on every kernel.
extern "C" ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  if (int error = refused_errno.load()) {
    char path[4096];
    const ssize_t n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
    if (n > 0 && std::string_view(path, static_cast<size_t>(n)).starts_with(refused_folder)) {
      errno = error;
      return -1;
    }
  }
  return ::syscall(SYS_pwrite64, fd, data, size, offset);
}

namespace mso::testing {
namespace {

namespace fs = std::filesystem;

// Both ranks live in one process here: a kill takes them together. The pages shared with the parent say what
// was known to be whole before.
struct Shared {
  std::atomic<uint64_t> whole{0};
};

void kill_and_resume(const std::string& point, const std::string& order, int starts) {
  TemporaryFolder folder;
  auto* shared =
      new (::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared;
  auto levels = [&](CheckpointSettings& s, int rank) {
    s.node = "node" + std::to_string(rank);
    s.level1_interval_s = point.starts_with("l1") ? 0 : -1;
    s.level2_interval_s = point.starts_with("l2") ? 0 : -1;
    if (point.starts_with("l1") || point.starts_with("l2")) s.level0_interval_s = -1;
  };
  for (int start = 0; start < starts; ++start) {
    pid_t child = ::fork();
    if (child == 0) {
      init_logging("off");
      set_kill_order(order);
      run_tiny({.folder = folder.path(),
                .ranks = 2,
                .until = 100000,
                .adjust = levels,
                .each_step = [&](int rank, uint64_t step, CheckpointManager& manager) {
                  if (auto whole = manager.last_whole_step())
                    shared->whole = std::max<uint64_t>(shared->whole, *whole);
                  // A delta needs the step before it whole, and only old deltas become spare files.
                  if (point.find("_delta_") != std::string::npos || point == "l0_after_spares") wait_for_level0(rank, step, manager);
                }});
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << point << " was not passed";
    TinyResult result =
        run_tiny({.folder = folder.path(), .ranks = 2, .until = 0, .adjust = levels, .finish = false});
    EXPECT_EQ(result.errors[0], "") << point;
    EXPECT_EQ(result.difference, "") << point;
    if (shared->whole > 0) {
      ASSERT_TRUE(result.resumed) << point << " after step " << shared->whole;
      EXPECT_GE(result.resumed->step, shared->whole) << point;
    }
  }
  ::munmap(shared, sizeof(Shared));
}

class KillAt : public ::testing::TestWithParam<KillPoint> {};
TEST_P(KillAt, OldOrNewStateIsThere) {
  const std::string point(GetParam().name);
  for (int count : {1, 2, 5}) kill_and_resume(point, point + ":" + std::to_string(count), 2);
}
INSTANTIATE_TEST_SUITE_P(EveryPoint, KillAt, ::testing::ValuesIn(kKillPoints),
                         [](const auto& info) { return std::string(info.param.name); });

// ---- damage ---------------------------------------------------------------------------------

std::function<void(CheckpointSettings&, int)> all_levels(bool partner) {
  return [=](CheckpointSettings& s, int rank) {
    s.level1_interval_s = 0;
    s.level2_interval_s = -1;
    if (partner) s.node = "node" + std::to_string(rank);
  };
}

using Damage = void (*)(const fs::path&);
const std::pair<const char*, Damage> kDamages[] = {
    {"flipped",
     [](const fs::path& p) {
       std::fstream f(p, std::ios::in | std::ios::out | std::ios::binary);
       f.seekg(static_cast<std::streamoff>(fs::file_size(p) / 2));
       char c = static_cast<char>(f.get());
       f.seekp(static_cast<std::streamoff>(fs::file_size(p) / 2));
       f.put(static_cast<char>(c ^ 4));
     }},
    {"cut", [](const fs::path& p) { fs::resize_file(p, fs::file_size(p) / 3); }},
    {"emptied", [](const fs::path& p) { fs::resize_file(p, 0); }},
    {"extended", [](const fs::path& p) { std::ofstream(p, std::ios::app) << "x"; }},
    {"deleted", [](const fs::path& p) { fs::remove(p); }},
    {"directory",
     [](const fs::path& p) {
       fs::remove(p);
       fs::create_directory(p);
     }},
};

TEST(Damage, NextBestIsUsedByAllRanks) {
  for (auto& [name, damage] : kDamages) {
    TemporaryFolder folder;
    run_tiny({.folder = folder.path(), .ranks = 2, .until = 15, .adjust = all_levels(true)});
    // Damage whatever is chosen, again and again, until nothing is left: each time all ranks agree on
    // something valid and not newer, at last on an error.
    uint64_t last = UINT64_MAX;
    for (int round = 0;; ++round) {
      ASSERT_LT(round, 60);
      TinyResult result = run_tiny(
          {.folder = folder.path(), .ranks = 2, .until = 0, .adjust = all_levels(true), .finish = false});
      EXPECT_EQ(result.difference, "") << name;
      if (!result.resumed) {
        EXPECT_EQ(result.exit_code, ExitCode::kNoValidState) << name;
        EXPECT_NE(result.errors[1], "");
        EXPECT_GE(round, 4);
        break;
      }
      EXPECT_LE(result.resumed->step, last);
      last = result.resumed->step;
      damage(result.resumed->shards[round % 2].path);
    }
  }
}

TEST(Damage, ManifestOfASharedState) {
  for (auto& [name, damage] : kDamages) {
    TemporaryFolder folder;
    run_tiny({.folder = folder.path(), .ranks = 2, .until = 15, .adjust = all_levels(false)});
    fs::remove_all(folder.path() / "ram");
    TinyResult before = run_tiny(
        {.folder = folder.path(), .ranks = 2, .until = 0, .adjust = all_levels(false), .finish = false});
    ASSERT_TRUE(before.resumed);
    damage(fs::path(before.resumed->shards[0].path).parent_path() / "manifest.json");
    TinyResult after = run_tiny(
        {.folder = folder.path(), .ranks = 2, .until = 0, .adjust = all_levels(false), .finish = false});
    ASSERT_TRUE(after.resumed) << name;
    EXPECT_LT(after.resumed->step, before.resumed->step);
    EXPECT_EQ(after.difference, "");
  }
}

TEST(Damage, ForeignRamDiskDirectoryIsRefused) {
  TemporaryFolder folder, elsewhere;
  fs::create_directories(folder.path() / "ram");
  fs::create_symlink(elsewhere.path(), folder.path() / "ram" / ("mso-" + std::to_string(::geteuid())));
  TinyResult result =
      run_tiny({.folder = folder.path(), .ranks = 2, .until = 10, .adjust = all_levels(false)});
  EXPECT_EQ(result.errors[0], "");  // training went on
  EXPECT_TRUE(fs::is_empty(elsewhere.path()));
  for (const SnapshotEvent& e : result.events[0]) EXPECT_FALSE(e.level == SnapshotLevel::kL0 && e.ok);
}

TEST(Damage, DirectoriesArePrivate) {
  TemporaryFolder folder;
  run_tiny({.folder = folder.path(), .ranks = 2, .until = 4});
  int directories = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path() / "ram")) {
    struct stat info;
    ASSERT_EQ(::lstat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 077, 0u) << entry.path();
    directories += entry.is_directory();
  }
  EXPECT_GE(directories, 8);
}

// ---- storage trouble ------------------------------------------------------------------------

class SmallDisk {
 public:
  SmallDisk(fs::path at, const char* size) : at_(std::move(at)) {
    fs::create_directories(at_);
    mounted_ = ::mount("tmpfs", at_.c_str(), "tmpfs", 0, (std::string("size=") + size).c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(at_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  bool set_read_only(bool read_only) {
    return ::mount("tmpfs", at_.c_str(), "tmpfs", MS_REMOUNT | (read_only ? MS_RDONLY : 0), "") == 0;
  }
  void fill() {
    std::ofstream out(at_ / "filler", std::ios::binary);
    const std::string block(4096, 'f');
    while (out.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }

 private:
  fs::path at_;
  bool mounted_ = false;
};

struct Health {
  int ok = 0, failed = 0, degraded = 0, recovered = 0;
  std::string error;
};
Health health(const TinyResult& result, SnapshotLevel level, int rank = 0) {
  Health h;
  for (const SnapshotEvent& e : result.events[rank]) {
    if (e.level != level) continue;
    if (e.kind == SnapshotEvent::Kind::kDegraded) ++h.degraded;
    if (e.kind == SnapshotEvent::Kind::kRecovered) ++h.recovered;
    if (e.kind == SnapshotEvent::Kind::kSnapshot) ++(e.ok ? h.ok : h.failed);
    if (!e.error.empty()) h.error = e.error;
  }
  return h;
}

void quick_retries(CheckpointSettings& s, int) {
  s.retry_s = 0.01;
  s.level1_interval_s = 0;
}

TEST(Storage, FullRamDiskDegradesL0Alone) {
  TemporaryFolder folder;
  SmallDisk disk(folder.path() / "ram", "64k");  // a shard has more
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a tmpfs";
  TinyResult result = run_tiny({.folder = folder.path(), .ranks = 2, .until = 60, .adjust = quick_retries});
  EXPECT_EQ(result.errors[0], "");
  Health l0 = health(result, SnapshotLevel::kL0), l1 = health(result, SnapshotLevel::kL1);
  EXPECT_EQ(l0.ok, 0);
  EXPECT_GT(l0.failed, 0);
  EXPECT_EQ(l0.degraded, 1);
  EXPECT_NE(l0.error.find("No space left"), std::string::npos) << l0.error;
  EXPECT_GT(l1.ok, 2);
  EXPECT_EQ(l1.failed, 0);
  TinyResult again = run_tiny({.folder = folder.path(), .ranks = 2, .until = 0, .adjust = quick_retries});
  EXPECT_EQ(again.difference, "");
  EXPECT_EQ(again.resumed->level, SnapshotLevel::kL1);
}

// EDQUOT on the RAM disk or on shared storage: as if it were full, with its own words.
TEST(Storage, OverQuotaDegradesALevelAndRecovers) {
  for (const char* where : {"ram", "run/checkpoints"}) {
    TemporaryFolder folder;
    refused_folder = (folder.path() / where).string();
    TinyResult result = run_tiny({.folder = folder.path(),
                                  .ranks = 2,
                                  .until = 150,
                                  .adjust = quick_retries,
                                  .each_step = [&](int rank, uint64_t step, CheckpointManager&) {
                                    if (rank == 0 && step == 20) refused_errno = EDQUOT;
                                    if (rank == 0 && step == 60) refused_errno = 0;
                                  }});
    refused_errno = 0;
    EXPECT_EQ(result.errors[0], "");
    const bool ram = std::string(where) == "ram";
    const Health over = health(result, ram ? SnapshotLevel::kL0 : SnapshotLevel::kL1),
                 other = health(result, ram ? SnapshotLevel::kL1 : SnapshotLevel::kL0);
    EXPECT_GE(over.degraded, 1) << where;
    EXPECT_EQ(over.recovered, over.degraded) << where;
    EXPECT_TRUE(std::any_of(result.events[0].begin(), result.events[0].end(), [](const SnapshotEvent& e) {
      return e.error.find("quota") != std::string::npos;
    })) << over.error;
    EXPECT_GT(other.ok, 5) << where;
    EXPECT_EQ(other.failed, 0) << where;
    TinyResult again =
        run_tiny({.folder = folder.path(), .ranks = 2, .until = 0, .adjust = quick_retries, .finish = false});
    EXPECT_EQ(again.difference, "");
    ASSERT_TRUE(again.resumed);
    EXPECT_GT(again.resumed->step, 60u);
  }
}

TEST(Storage, FullSharedStorageDegradesL1AndRecovers) {
  TemporaryFolder folder;
  SmallDisk disk(folder.path() / "run", "4m");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a tmpfs";
  TinyResult result = run_tiny({.folder = folder.path(),
                                .ranks = 2,
                                .until = 150,
                                .adjust = quick_retries,
                                .each_step = [&](int rank, uint64_t step, CheckpointManager&) {
                                  if (rank == 0 && step == 20) disk.fill();
                                  if (rank == 0 && step == 60) fs::remove(folder.path() / "run/filler");
                                }});
  EXPECT_EQ(result.errors[0], "");
  for (int rank : {0, 1}) {
    Health l0 = health(result, SnapshotLevel::kL0, rank), l1 = health(result, SnapshotLevel::kL1, rank);
    EXPECT_GT(l0.ok, 10);
    EXPECT_EQ(l0.failed, 0);
    EXPECT_GE(l1.degraded, 1);
    EXPECT_EQ(l1.recovered, l1.degraded);
  }
  fs::remove_all(folder.path() / "ram");
  TinyResult again =
      run_tiny({.folder = folder.path(), .ranks = 2, .until = 0, .adjust = quick_retries, .finish = false});
  EXPECT_EQ(again.difference, "");
  ASSERT_TRUE(again.resumed);
  EXPECT_GT(again.resumed->step, 60u);
}

TEST(Storage, ReadOnlySharedStorage) {
  TemporaryFolder folder;
  SmallDisk disk(folder.path() / "run", "8m");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a tmpfs";
  bool changed = true;
  TinyResult result = run_tiny({.folder = folder.path(),
                                .ranks = 2,
                                .until = 200,
                                .adjust = quick_retries,
                                .each_step = [&](int rank, uint64_t step, CheckpointManager& manager) {
                                  if (rank != 0) return;
                                  // A file open for writing holds a remount up: try until none is.
                                  if (step >= 20 && step < 60 && changed) changed = !disk.set_read_only(true);
                                  if (step == 100) changed = disk.set_read_only(false);
                                }});
  EXPECT_EQ(result.errors[0], "");
  Health l0 = health(result, SnapshotLevel::kL0), l1 = health(result, SnapshotLevel::kL1);
  EXPECT_EQ(l0.failed, 0);
  EXPECT_TRUE(changed);
  EXPECT_EQ(l1.recovered, l1.degraded);
}

TEST(Storage, VanishedDirectories) {
  TemporaryFolder folder;
  TinyResult result = run_tiny({.folder = folder.path(),
                                .ranks = 2,
                                .until = 150,
                                .adjust = quick_retries,
                                .each_step = [&](int rank, uint64_t step, CheckpointManager&) {
                                  std::error_code error;
                                  // At once: removing what is being written to ends half-way now and then.
                                  if (rank == 0 && step == 20)
                                    fs::rename(folder.path() / "ram", folder.path() / "gone", error);
                                  if (rank == 0 && step == 60)
                                    fs::create_directory(folder.path() / "ram", error);
                                  if (rank == 0 && step == 40)
                                    fs::remove_all(folder.path() / "run/checkpoints", error);
                                }});
  EXPECT_EQ(result.errors[0], "");
  Health l0 = health(result, SnapshotLevel::kL0);
  EXPECT_GT(l0.failed, 0);
  EXPECT_EQ(l0.degraded, l0.recovered);
  TinyResult again =
      run_tiny({.folder = folder.path(), .ranks = 2, .until = 0, .adjust = quick_retries, .finish = false});
  EXPECT_EQ(again.difference, "");
  ASSERT_TRUE(again.resumed);
}

TEST(Storage, PartnerRamDiskFullLeavesOwnFilesGood) {
  TemporaryFolder folder;
  SmallDisk disk(folder.path() / "small", "64k");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a tmpfs";
  // Rank 1's RAM disk takes nothing: its own files fail too, so L0 is degraded on all, and nothing hangs.
  TinyResult result = run_tiny(
      {.folder = folder.path(), .ranks = 2, .until = 40, .adjust = [&](CheckpointSettings& s, int rank) {
         quick_retries(s, rank);
         s.node = "node" + std::to_string(rank);
         if (rank == 1) s.level0_path = folder.path() / "small";
       }});
  EXPECT_EQ(result.errors[0], "");
  Health mine = health(result, SnapshotLevel::kL0, 0);
  EXPECT_EQ(mine.ok, 0);
  EXPECT_NE(mine.error.find("other rank"), std::string::npos) << mine.error;
  EXPECT_GT(health(result, SnapshotLevel::kL1, 0).ok, 2);
}

}  // namespace
}  // namespace mso::testing
