// The kernel's list of mounts, with names that users choose.
#include "node/mount_table.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>

namespace mso {
namespace {

TEST(MountTable, IsReadLineByLine) {
  const auto table = parse_mount_table(
      "31 30 0:27 / /run/mso/12.0/snapshot rw,nosuid,nodev,noexec shared:9 master:1 - tmpfs mso rw,size=16384k\n"
      "32 31 259:3 /sub /with\\040blank\\134 rw - fuse.mine a\\040b rw,user_id=1000\n"
      "33 31 0:5 / /none rw - fuse  rw,user_id=1000\n");
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(table[0], (MountEntry{makedev(0, 27), "/run/mso/12.0/snapshot", "tmpfs", "mso", "rw,size=16384k"}));
  EXPECT_EQ(table[1], (MountEntry{makedev(259, 3), "/with blank\\", "fuse.mine", "a b", "rw,user_id=1000"}));
  EXPECT_EQ(table[2], (MountEntry{makedev(0, 5), "/none", "fuse", "", "rw,user_id=1000"}));
}

TEST(MountTable, LinesOfAnotherFormAreLeftOut) {
  for (const char* line : {"", "broken", " - ", "1 2 3 / /x rw - tmpfs x rw", "1 2 0:x / /x rw - tmpfs x rw",
                           "1 2 0:1 / /x - tmpfs x rw", "1 2 0:1 / /x rw - tmpfs", "1 2 0:1: / /x rw - tmpfs x rw"})
    EXPECT_TRUE(parse_mount_table(line).empty()) << line;
  EXPECT_EQ(parse_mount_table("1 2 0:1 / /a\\9\\ rw - t s o")[0].point, "/a\\9\\");
}

TEST(MountTable, OfThisMachine) {
  const auto table = read_mount_table();
  const auto root = std::ranges::find(table, "/", &MountEntry::point);
  ASSERT_NE(root, table.end());
  EXPECT_TRUE(read_mount_table("/nonexistent").empty());
}

}  // namespace
}  // namespace mso
