// NVMe lanes and identifiers: reservations, duplicates, multipath.
#include "node/nvme_lanes.h"

#include <gtest/gtest.h>

#include "node/nvme_identify.h"
#include "node/nvme_sysfs.h"
#include "made_up_node.h"

namespace mso {
namespace {

NvmeController pcie(int number, int lanes, int numa) {
  const std::string n = std::to_string(number);
  return {"nvme" + n, "Fast", "S" + n, "pcie", "0000:0" + n + ":00.0", "nqn.drive" + n, numa, lanes, 16};
}

NvmeFacts drives() { return {{pcie(0, 4, 0), pcie(1, 8, 0), pcie(2, 8, 1), pcie(3, 8, 1)}, {}}; }

TEST(NvmeRequest, IsParsedStrictly) {
  std::vector<std::string> mistakes;
  const auto request = parse_nvme_request("image:1x4,video:2x8", mistakes);
  ASSERT_TRUE(request);
  EXPECT_EQ(*request, (std::vector<NvmeRequest>{{"image", 1, 4}, {"video", 2, 8}}));
  EXPECT_EQ(format_nvme_request(*request), "image:1x4,video:2x8");
  for (const char* bad : {"", "image", "image:4", "image:1x3", "image:0x4", "image:65x4", "image:1x32", "audio:1x4", "image:1x4x1",
                          "image:x", "image:1x", "image:x4", "image:-1x4", "image:1x4,image:1x4", "image:1X4"}) {
    mistakes.clear();
    EXPECT_FALSE(parse_nvme_request(bad, mistakes)) << bad;
    EXPECT_FALSE(mistakes.empty()) << bad;
  }
}

TEST(NvmeLanes, TakeTheDriveThatFitsBest) {
  const NvmePlan plan = plan_nvme_lanes(drives(), {}, {{"image", 1, 4}, {"video", 2, 8}});
  EXPECT_TRUE(plan.mistakes.empty());
  EXPECT_EQ(format_nvme_holds(plan.holds), "nvme0:image:4,nvme1:video:8,nvme2:video:8");
  EXPECT_EQ(parse_nvme_holds(format_nvme_holds(plan.holds) + "\n"), plan.holds);
  const NvmePlan near = plan_nvme_lanes(drives(), {}, {{"image", 1, 4}, {"video", 2, 8}}, 1);
  EXPECT_EQ(format_nvme_holds(near.holds), "nvme0:image:4,nvme2:video:8,nvme3:video:8");
  EXPECT_EQ(numa_of_holds(drives(), near.holds, "video"), 1);
  EXPECT_EQ(numa_of_holds(drives(), near.holds, "audio"), -1);
}

TEST(NvmeLanes, OfOtherJobsAreNotGivenTwice) {
  const std::vector<NvmeHold> others = {{"nvme1", "video", 8}, {"nvme2", "image", 4}, {"nvme9", "image", 4}};
  const NvmePlan half = plan_nvme_lanes(drives(), others, {{"video", 1, 4}});
  EXPECT_EQ(format_nvme_holds(half.holds), "nvme0:video:4");
  const NvmePlan none = plan_nvme_lanes(drives(), others, {{"video", 2, 8}, {"image", 1, 4}});
  EXPECT_TRUE(none.holds.empty());  // all or nothing
  ASSERT_EQ(none.mistakes.size(), 1u);
  EXPECT_EQ(none.mistakes[0],
            "video:2x8 asked, but 1 PCIe drive has that many free lanes (free: nvme0 4 of 4, nvme1 0 of 8, nvme2 4 of 8, nvme3 8 of 8)");
  EXPECT_NE(plan_nvme_lanes({}, {}, {{"image", 1, 1}}).mistakes[0].find("no PCIe drive"), std::string::npos);
  for (const char* bad : {"nvme0", "nvme0:image", "nvme0:image:0", "../x:image:4", "nvme0:audio:4", "nvmeX:image:4", ":image:4"})
    EXPECT_FALSE(parse_nvme_holds(bad)) << bad;
  EXPECT_EQ(parse_nvme_holds("")->size(), 0u);
}

// ---- identifiers ----

NodeDrives node(const std::string& name) { return {name, "boot-" + name, {}}; }

void add(NodeDrives& where, NvmeController drive, NvmeNamespace ns) {
  ns.paths = {drive.name};
  if (ns.nsid == 0) ns.nsid = 1;
  if (ns.name.empty()) ns.name = drive.name + "n1";
  where.nvme.controllers.push_back(std::move(drive));
  where.nvme.namespaces.push_back(std::move(ns));
}

NvmeController fabric(const std::string& name, const std::string& nqn) {
  return {name, "Linux", "feed", "rdma", "traddr=10.0.0.1", nqn, -1, 0, 0};
}

NvmeNamespace with_uuid(const std::string& uuid) {
  NvmeNamespace ns;
  ns.uuid = uuid;
  return ns;
}

TEST(DriveIdentifiers, DuplicatesOnOneNodeAreNamed) {
  NodeDrives a = node("a");
  add(a, fabric("nvme0", "nqn.x"), with_uuid("1111"));
  add(a, fabric("nvme1", "nqn.y"), with_uuid("1111"));
  const DriveReport report = compare_drives({a});
  ASSERT_EQ(report.duplicates.size(), 1u);
  EXPECT_EQ(report.duplicates[0], "a:nvme0n1 and a:nvme1n1 both have UUID 1111");
}

TEST(DriveIdentifiers, EveryKindCounts) {
  for (int kind = 0; kind < 3; ++kind) {
    NodeDrives a = node("a"), b = node("b");
    NvmeNamespace ns;
    (kind == 0 ? ns.uuid : kind == 1 ? ns.nguid : ns.eui64) = "abcd";
    add(a, pcie(0, 4, 0), ns);
    add(b, pcie(1, 4, 0), ns);
    EXPECT_EQ(compare_drives({a, b}).duplicates.size(), 1u) << kind;
  }
}

TEST(DriveIdentifiers, TwoPathsOfOneSubsystemAreMultipath) {
  NodeDrives a = node("a");
  add(a, fabric("nvme1", "nqn.x"), with_uuid("1111"));
  a.nvme.controllers.push_back(fabric("nvme2", "nqn.x"));
  a.nvme.namespaces[0].paths.push_back("nvme2");
  const DriveReport report = compare_drives({a});
  EXPECT_TRUE(report.duplicates.empty());
  ASSERT_EQ(report.multipath.size(), 1u);
  EXPECT_EQ(report.multipath[0], "a:nvme1n1 over nvme1, nvme2");
  // The same without the kernel's multipath: two block devices of one (subsystem, namespace id).
  NodeDrives c = node("c");
  add(c, fabric("nvme1", "nqn.x"), with_uuid("1111"));
  add(c, fabric("nvme2", "nqn.x"), with_uuid("1111"));
  EXPECT_TRUE(compare_drives({c}).duplicates.empty());
}

TEST(DriveIdentifiers, OneFabricNamespaceOnSeveralNodesIsShared) {
  NodeDrives a = node("a"), b = node("b");
  add(a, fabric("nvme0", "nqn.x"), with_uuid("1111"));
  add(b, fabric("nvme3", "nqn.x"), with_uuid("1111"));
  const DriveReport report = compare_drives({a, b});
  EXPECT_TRUE(report.duplicates.empty());
  ASSERT_EQ(report.shared.size(), 1u);
  EXPECT_EQ(report.shared[0], "nqn.x namespace 1");
  // Another subsystem that carries the same UUID is no path of it.
  NodeDrives c = node("c");
  add(c, fabric("nvme0", "nqn.other"), with_uuid("1111"));
  EXPECT_EQ(compare_drives({a, b, c}).duplicates.size(), 1u);
}

TEST(DriveIdentifiers, APcieDriveCannotBeInTwoMachines) {
  NodeDrives a = node("a"), b = node("b");
  NvmeController clone = pcie(0, 4, 0);
  add(a, pcie(0, 4, 0), {});
  add(b, clone, {});
  const DriveReport report = compare_drives({a, b});
  ASSERT_EQ(report.duplicates.size(), 1u);
  EXPECT_EQ(report.duplicates[0], "a:nvme0 and b:nvme0 both have serial number S0 (Fast)");
  b.boot_id = a.boot_id;  // two slurmd on one machine
  EXPECT_TRUE(compare_drives({a, b}).duplicates.empty());
}

TEST(DriveIdentifiers, WhatADriveDoesNotHaveIsNoDuplicate) {
  NodeDrives a = node("a"), b = node("b");
  NvmeController blank = pcie(0, 4, 0);
  blank.serial = "0000 000";
  blank.nqn = "";
  add(a, blank, {});
  add(b, blank, {});
  EXPECT_TRUE(compare_drives({a, b}).duplicates.empty());
}

TEST(DriveIdentifiers, TravelAsText) {
  NodeDrives a = node("a b\n=%");
  add(a, pcie(0, 4, 1), with_uuid("1111"));
  a.nvme.controllers[0].model = "Odd = name\n, 100% \xc3\xa4";
  const std::optional<NodeDrives> back = parse_node_drives(format_node_drives(a));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->nvme, a.nvme);
  EXPECT_EQ(back->node, a.node);
  EXPECT_FALSE(parse_node_drives(""));
  std::vector<NodeDrives> many;
  for (int n = 0; n < 1000; ++n) {
    many.push_back(node("n" + std::to_string(n)));
    for (int d = 0; d < 8; ++d) {
      NvmeController drive = pcie(d, 4, 0);
      drive.serial += "-" + std::to_string(n);
      drive.nqn += "-" + std::to_string(n);
      add(many.back(), drive, with_uuid("u" + drive.serial));
    }
  }
  EXPECT_TRUE(compare_drives(many).duplicates.empty());
  many[999].nvme.namespaces[7].uuid = many[0].nvme.namespaces[0].uuid;
  EXPECT_EQ(compare_drives(many).duplicates.size(), 1u);
}

TEST(DriveIdentifiers, AreReadFromTheDrivesOwnList) {
  std::vector<unsigned char> list(4096, 0);
  const auto put = [&](size_t at, unsigned char type, unsigned char length) {
    list[at] = type, list[at + 1] = length;
    for (size_t i = 0; i < length && at + 4 + i < list.size(); ++i) list[at + 4 + i] = static_cast<unsigned char>(i + 16 * type);
  };
  put(0, 1, 8), put(12, 2, 16), put(32, 3, 16);
  NvmeNamespace ns;
  read_identifiers(list.data(), list.size(), &ns);
  EXPECT_EQ(ns.eui64, "1011121314151617");
  EXPECT_EQ(ns.nguid, "20212223-2425-2627-2829-2a2b2c2d2e2f");
  EXPECT_EQ(ns.uuid, "30313233-3435-3637-3839-3a3b3c3d3e3f");
  NvmeNamespace cut;
  read_identifiers(list.data(), 40, &cut);  // ends within the third
  EXPECT_EQ(cut.uuid, "");
  EXPECT_EQ(cut.nguid, ns.nguid);
  for (size_t i = 0; i < 64; ++i)
    for (unsigned char value : {0, 1, 3, 255}) {  // reads no further than it is told, whatever a drive says
      std::vector<unsigned char> odd(list.begin(), list.begin() + 64);
      odd[i] = value;
      read_identifiers(odd.data(), odd.size(), &cut);
    }
  EXPECT_TRUE(identify_namespaces("nvme-none").empty());
}

// ---- sysfs ----

TEST(NvmeSysfs, ListsDrivesWithLanesAndNuma) {
  const MadeUpNode made;
  const std::string c = "sys/class/nvme/nvme0/";
  made.write(c + "model", "Samsung PM1743                          \n");
  made.write(c + "serial", "S5G             \n");
  made.write(c + "transport", "pcie\n");
  made.write(c + "address", "0000:41:00.0\n");
  made.write(c + "subsysnqn", "nqn.2014.08.org.nvmexpress:x\n");
  made.write(c + "numa_node", "1\n");
  made.write(c + "device/current_link_width", "4\n");
  made.write(c + "device/current_link_speed", "32.0 GT/s PCIe\n");
  made.write(c + "nvme0n1/nsid", "1\n");
  made.write(c + "nvme0n1/uuid", "AAAA-bb\n");
  made.write(c + "nvme0n1/nguid", "00000000-0000-0000-0000-000000000000\n");
  made.write(c + "nvme0n1/eui", "00 25 38 4b 00 00 00 01\n");
  made.write("sys/block/nvme0n1/size", "2048\n");
  // Two paths over a fabric: hidden devices below the controllers, one head.
  for (int path : {10, 2}) {
    const std::string p = "sys/class/nvme/nvme" + std::to_string(path) + "/";
    made.write(p + "transport", "tcp\n");
    made.write(p + "subsysnqn", "nqn.far\n");
    made.write(p + "nvme1c" + std::to_string(path) + "n1/nsid", "7\n");
    made.write(p + "nvme1c" + std::to_string(path) + "n1/nguid", "123\n");
    made.write(p + "nvme1c" + std::to_string(path) + "n1/uuid", "123\n");  // what old kernels show without a UUID
  }
  made.write("sys/class/nvme/nvme-fabrics/x", "");
  made.write("sys/class/nvme/nvmeX/x", "");

  const NvmeFacts facts = read_nvme(made.root());
  ASSERT_EQ(facts.controllers.size(), 3u);
  const NvmeController& drive = facts.controllers[0];
  EXPECT_EQ(drive.model, "Samsung PM1743");
  EXPECT_EQ(drive.serial, "S5G");
  EXPECT_EQ(drive.numa, 1);
  EXPECT_EQ(drive.lanes, 4);
  EXPECT_EQ(drive.gigatransfers, 32.0);
  EXPECT_EQ(facts.controllers[1].name, "nvme2");
  EXPECT_EQ(facts.controllers[2].name, "nvme10");
  EXPECT_EQ(facts.controllers[2].lanes, 0);
  ASSERT_EQ(facts.namespaces.size(), 2u);
  EXPECT_EQ(facts.namespaces[0].name, "nvme0n1");
  EXPECT_EQ(facts.namespaces[0].uuid, "aaaa-bb");
  EXPECT_EQ(facts.namespaces[0].nguid, "");
  EXPECT_EQ(facts.namespaces[0].eui64, "0025384b00000001");
  EXPECT_EQ(facts.namespaces[0].bytes, 1u << 20);
  EXPECT_EQ(facts.namespaces[1].name, "nvme1n1");
  EXPECT_EQ(facts.namespaces[1].nsid, 7);
  EXPECT_EQ(facts.namespaces[1].uuid, "");
  EXPECT_EQ(facts.namespaces[1].paths.size(), 2u);
  EXPECT_TRUE(read_nvme(made / "nothing").controllers.empty());
}

}  // namespace
}  // namespace mso
