// Which folder level 0 uses, and what is said about it: also where it does not exist yet.
#include "node/ram_disk.h"

#include <gtest/gtest.h>
#include <sys/statvfs.h>

#include "base/error.h"

namespace mso {
namespace {

TEST(Level0Folder, TheKeyWinsThenTheJobsDirectoryThenShm) {
  EXPECT_EQ(level0_folder("/fast/ram", "/job/dir"), "/fast/ram");
  EXPECT_EQ(level0_folder("auto", "/job/dir"), "/job/dir");
  EXPECT_EQ(level0_folder("", "/job/dir"), "/job/dir");
  EXPECT_EQ(level0_folder("auto", ""), "/dev/shm");
  EXPECT_EQ(level0_folder("auto", nullptr), "/dev/shm");
}

TEST(RamDisk, TellsWhatStatvfsTells) {
  struct statvfs info = {};
  if (statvfs("/dev/shm", &info) != 0) GTEST_SKIP() << "no /dev/shm";
  const RamDisk disk = inspect_ram_disk("/dev/shm");
  EXPECT_EQ(disk.total_bytes, info.f_blocks * info.f_frsize);
  EXPECT_LE(disk.free_bytes, disk.total_bytes);
}

TEST(RamDisk, AFolderThatIsNotThereYetIsOnItsParentsDisk) {
  const RamDisk disk = inspect_ram_disk(std::filesystem::temp_directory_path() / "mso-none" / "deeper");
  EXPECT_EQ(disk.path, std::filesystem::absolute(std::filesystem::temp_directory_path()));
  EXPECT_GT(disk.total_bytes, 0u);
}

TEST(RamDisk, ProcIsNotMemory) {
  EXPECT_FALSE(inspect_ram_disk("/proc").in_memory);
}

TEST(RamDisk, ANameThatCannotExistIsAnError) {
  EXPECT_THROW(inspect_ram_disk("/" + std::string(5000, 'x')), Error);
}

}  // namespace
}  // namespace mso
