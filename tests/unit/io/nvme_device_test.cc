// NVMe or not, on made-up /sys and /proc: partitions, device mapper, md, multipath heads, and what is none.
#include "io/nvme_device.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/error.h"
#include "io/source.h"
#include "tests/unit/io/shard_fixture.h"

namespace mso {
namespace {

namespace fs = std::filesystem;

class NvmeDeviceTest : public testing::Test {
 protected:
  // A block device below sys/devices, and its number.
  fs::path device(const std::string& path, const std::string& number, bool partition = false) {
    const fs::path at = folder_ / ("sys/devices/" + path);
    fs::create_directories(at / "slaves");
    if (partition) {
      fs::remove(at / "slaves");
      test::write_text(at / "partition", "1\n");
    } else {
      fs::create_directories(at / "queue");
      test::write_text(at / "queue/logical_block_size", "512\n");
    }
    fs::create_directories(folder_ / "sys/dev/block");
    fs::create_directory_symlink(at, folder_ / ("sys/dev/block/" + number));
    return at;
  }
  void slave(const fs::path& of, const fs::path& what) { fs::create_directory_symlink(what, of / "slaves" / what.filename()); }
  NvmeCheck check(unsigned major, unsigned minor) { return check_nvme_device(makedev(major, minor), folder_.string()); }
  test::TemporaryFolder folder_;
};

TEST_F(NvmeDeviceTest, NamespacesAndPartitions) {
  const fs::path drive = device("pci0/nvme/nvme0/nvme0n1", "259:0");
  device("pci0/nvme/nvme0/nvme0n1/nvme0n1p2", "259:2", true);
  test::write_text(drive / "queue/logical_block_size", "4096\n");
  for (unsigned minor : {0u, 2u}) {
    const NvmeCheck c = check(259, minor);
    EXPECT_EQ(c.reason, "");
    EXPECT_EQ(c.drives, std::vector<std::string>{"nvme0n1"});
    EXPECT_EQ(c.direct_alignment, 4096u);
  }
}

TEST_F(NvmeDeviceTest, ThroughDeviceMapperAndMd) {
  device("pci0/nvme/nvme0/nvme0n1", "259:0");
  device("pci0/nvme/nvme1/nvme1n1", "259:1");
  const fs::path part = device("pci0/nvme/nvme1/nvme1n1/nvme1n1p1", "259:3", true);
  const fs::path md = device("virtual/block/md0", "9:0"), dm = device("virtual/block/dm-0", "253:0");
  slave(md, folder_ / "sys/devices/pci0/nvme/nvme0/nvme0n1");
  slave(md, part);
  slave(dm, md);
  EXPECT_EQ(check(253, 0).drives, (std::vector<std::string>{"nvme0n1", "nvme1n1"}));
  EXPECT_EQ(check(253, 0).reason, "");
  // One leg that is none spoils it, and is named.
  const fs::path sda = device("pci0/ata1/sda", "8:0"), mixed = device("virtual/block/md1", "9:1");
  slave(mixed, sda);
  slave(mixed, part);
  EXPECT_EQ(check(9, 1).reason, "it is on sda, which is no NVMe drive");
  EXPECT_TRUE(check(9, 1).drives.empty());
}

TEST_F(NvmeDeviceTest, OthersAreRefusedByName) {
  device("pci0/ata1/sda", "8:0");
  device("pci0/ata1/sda/sda1", "8:1", true);
  device("pci0/virtio0/vda", "254:0");
  device("virtual/block/loop0", "7:0");
  device("pci0/nvme/nvme0/nvme0c1n1", "259:9");  // a path of a multipath drive, never a device of its own
  EXPECT_EQ(check(8, 1).reason, "it is on sda, which is no NVMe drive");
  EXPECT_EQ(check(254, 0).reason, "it is on vda, which is no NVMe drive");
  EXPECT_EQ(check(7, 0).reason, "it is on loop0, which is no NVMe drive");
  EXPECT_NE(check(259, 9).reason, "");
  EXPECT_NE(check(1, 2).reason.find("1:2"), std::string::npos);
}

TEST_F(NvmeDeviceTest, FileSystemsWithoutADeviceOfTheirOwn) {
  struct stat info;
  ASSERT_EQ(::stat(folder_.string().c_str(), &info), 0);
  fs::create_directories(folder_ / "proc/self");
  auto mounted = [&](const std::string& type, const std::string& source) {
    test::write_text(folder_ / "proc/self/mountinfo",
                     "22 1 0:1 / / rw - overlay overlay rw\n23 1 " + std::to_string(major(info.st_dev)) + ":" +
                         std::to_string(minor(info.st_dev)) + " / /da\\040ta rw,noatime shared:4 - " + type + " " + source + " rw\n");
    return check_nvme_path(folder_.string(), folder_.string()).reason;
  };
  EXPECT_EQ(mounted("nfs4", "server:/export"),
            "it is on a file system of type nfs4 (server:/export), which has no NVMe drive of its own");
  EXPECT_EQ(mount_point_of(info.st_dev, folder_.string()), "/da ta");
  EXPECT_NE(check_nvme_path(folder_ / "missing").reason, "");
}

TEST(LocalPath, Urls) {
  EXPECT_EQ(local_path("/data/shards", {}), "/data/shards");
  EXPECT_EQ(local_path("shards", {}), "shards");
  EXPECT_EQ(local_path("file:///data/shards", {}), "/data/shards");
  auto refusal = [](const std::string& url, const NvmeNames& names) -> std::string {
    try {
      local_path(url, names);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kBadUsage);
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal("s3://bucket/x", {}).find("unknown kind"), std::string::npos);
  EXPECT_NE(refusal("nvme://fast/x", {}).find("not configured"), std::string::npos);
  EXPECT_NE(refusal("nvme://fast/x", {{"slow", "/a"}}).find("it has slow"), std::string::npos);
  // /proc is on no drive at all, whatever the machine.
  const std::string text = refusal("nvme://fast/x/y", {{"fast", "/proc"}});
  EXPECT_NE(text.find("not an NVMe source"), std::string::npos);
  EXPECT_NE(text.find("file:///proc/x/y"), std::string::npos) << text;
}

}  // namespace
}  // namespace mso
