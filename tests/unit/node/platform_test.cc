// Hardware of a node against its needs: what is measured on a made-up node, and what is said about it.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "made_up_node.h"
#include "node/node_facts_read.h"
#include "node/platform_facts.h"
#include "node/platform_needs.h"

namespace mso {
namespace {

CheckLine line_of(const std::vector<CheckLine>& lines, const std::string& name) {
  for (const CheckLine& line : lines)
    if (line.name == name) return line;
  return {name, CheckState::kFail, "(no such line)", ""};
}

TEST(Platform, IsReadFromSysfs) {
  const MadeUpNode made;
  // Two root ports of 16 and 4 lanes, one that is down; a drive behind the first, narrower than it could be; a host bridge.
  made.write("sys/devices/pci0000:00/0000:00:01.0/class", "0x060400\n");
  made.write("sys/devices/pci0000:00/0000:00:01.0/max_link_width", "16\n");
  made.write("sys/devices/pci0000:40/0000:40:01.0/class", "0x060400\n");
  made.write("sys/devices/pci0000:40/0000:40:01.0/max_link_width", "4\n");
  made.write("sys/devices/pci0000:40/0000:40:02.0/class", "0x060400\n");
  made.write("sys/devices/pci0000:40/0000:40:02.0/max_link_width", "255\n");
  made.write("sys/devices/pci0000:00/0000:00:00.0/class", "0x060000\n");
  made.write("sys/devices/pci0000:00/0000:00:00.0/max_link_width", "8\n");
  made.write("sys/bus/pci/devices/0000:01:00.0/class", "0x010802\n");
  made.write("sys/bus/pci/devices/0000:01:00.0/current_link_width", "2\n");
  made.write("sys/bus/pci/devices/0000:01:00.0/max_link_width", "4\n");
  // Caches: socket 0 with two of 32 MiB, socket 1 with one.
  for (int cpu = 0; cpu < 6; ++cpu) {
    const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/";
    made.write(folder + "topology/physical_package_id", cpu < 4 ? "0\n" : "1\n");
    made.write(folder + "cache/index3/level", "3\n");
    made.write(folder + "cache/index3/size", "32768K\n");
    made.write(folder + "cache/index3/shared_cpu_list", std::to_string(cpu / 2 * 2) + "-" + std::to_string(cpu / 2 * 2 + 1) + "\n");
    made.write(folder + "cache/index2/level", "2\n");
    made.write(folder + "cache/index2/size", "1024K\n");
  }
  // Memory: two controllers; two modules in one channel count once, an empty slot not at all.
  for (const auto& [dimm, size, place] : {std::tuple("mc0/dimm0", "16384", "channel 0 slot 0"), {"mc0/dimm1", "16384", "channel 0 slot 1"},
                                          {"mc0/dimm2", "16384", "channel 1 slot 0"}, {"mc1/dimm0", "16384", "csrow 0 channel 0"}, {"mc1/dimm1", "0", "csrow 0 channel 1"}}) {
    made.write(std::string("sys/devices/system/edac/mc/") + dimm + "/size", size);
    made.write(std::string("sys/devices/system/edac/mc/") + dimm + "/dimm_location", place);
  }
  for (const auto& [port, rate, state, layer] : {std::tuple("mlx5_0/ports/1", "400 Gb/sec (4X NDR)", "4: ACTIVE", "InfiniBand"),
                                                 {"mlx5_1/ports/1", "200 Gb/sec (4X HDR)", "1: DOWN", "InfiniBand"}, {"mlx5_2/ports/1", "100 Gb/sec (4X EDR)", "4: ACTIVE", "Ethernet"}}) {
    const std::string folder = std::string("sys/class/infiniband/") + port + "/";
    made.write(folder + "rate", rate);
    made.write(folder + "state", state);
    made.write(folder + "link_layer", layer);
  }
  const PlatformFacts facts = read_platform_facts(made.root(), "libnothing-at-all.so.9");
  EXPECT_EQ(facts.pcie_lanes, 20);
  EXPECT_EQ(facts.narrow_links, std::vector<std::string>{"0000:01:00.0 x2 of x4"});
  EXPECT_EQ(facts.l3_bytes, uint64_t{32} << 20);
  EXPECT_EQ(facts.memory_channels, 3);
  EXPECT_EQ(facts.memory_source, "EDAC");
  EXPECT_EQ(facts.infiniband, (std::vector<InfinibandPort>{{"mlx5_0/1", 400, true}, {"mlx5_1/1", 200, false}}));
  EXPECT_TRUE(facts.gpus.empty());
}

// A memory device of the DMI table: size in MiB and its two locators.
std::string memory_device(int size, const std::string& locator, const std::string& bank) {
  std::string device(0x15, '\0');
  device[0] = 17, device[1] = 0x15;
  device[0x0c] = static_cast<char>(size & 255), device[0x0d] = static_cast<char>(size >> 8);
  device[0x10] = 1, device[0x11] = bank.empty() ? 0 : 2;
  return device + locator + '\0' + (bank.empty() ? "" : bank + '\0') + '\0';
}

TEST(Platform, ChannelsOfTheDmiTable) {
  const std::string end = std::string("\x7f\x04\0\0\0\0", 6);
  // Intel boards name channel and slot, AMD boards the channel in the bank locator.
  EXPECT_EQ(channels_of_dmi(memory_device(16384, "CPU1_DIMM_A1", "NODE 0") + memory_device(16384, "CPU1_DIMM_A2", "NODE 0") +
                            memory_device(16384, "CPU1_DIMM_B1", "NODE 0") + memory_device(0, "CPU1_DIMM_C1", "NODE 0") + end), 2);
  EXPECT_EQ(channels_of_dmi(memory_device(16384, "DIMM 0", "P0 CHANNEL A") + memory_device(16384, "DIMM 0", "P0 CHANNEL B") +
                            memory_device(16384, "DIMM 1", "P0 CHANNEL B") + memory_device(16384, "DIMM 0", "P1 CHANNEL A") + end), 3);
  EXPECT_EQ(channels_of_dmi(""), 0);
  const std::string table = memory_device(16384, "A", "") + end;
  for (size_t size = 0; size < table.size(); ++size) (void)channels_of_dmi(table.substr(0, size));  // cut off anywhere
  EXPECT_EQ(channels_of_dmi(std::string(4096, '\x11')), 0);
}

TEST(Platform, NeedsAreReadStrictly) {
  PlatformNeeds needs;
  std::vector<std::string> mistakes;
  EXPECT_TRUE(parse_platform_needs("pcie-lanes:64,memory-channels:off,l3:32M,nvlink:off,infiniband:100,tmpfs:1G", needs, mistakes));
  EXPECT_EQ(needs, (PlatformNeeds{64, 0, uint64_t{32} << 20, false, 100, uint64_t{1} << 30}));
  const PlatformNeeds before = needs;
  for (const char* wrong : {"pcie-lane:4", "pcie-lanes:-1", "pcie-lanes:many", "nvlink:half", "l3:x", "infiniband", "l3:1M,l3:2M"}) {
    mistakes.clear();
    EXPECT_FALSE(parse_platform_needs(wrong, needs, mistakes)) << wrong;
    EXPECT_FALSE(mistakes.empty());
    EXPECT_EQ(needs, before);
  }
  const MadeUpNode made;
  EXPECT_EQ(platform_needs("", made.root()), PlatformNeeds{});
  made.write("etc/mso/needs.conf", "# this site\npcie-lanes: 64, infiniband:off  # Ethernet\n\nl3:16M\n");
  EXPECT_EQ(platform_needs("l3:8M", made.root()), (PlatformNeeds{64, 12, uint64_t{8} << 20, true, 0, uint64_t{64} << 20}));
  made.write("etc/mso/needs.conf", "pcie-lanes:some\n");
  EXPECT_THROW(platform_needs("", made.root()), Error);
}

TEST(Platform, EachFactIsSaidWithMeasureLimitAndAdvice) {
  PlatformFacts facts;
  facts.pcie_lanes = 128;
  facts.memory_channels = 8;
  facts.memory_source = "DMI";
  facts.l3_bytes = uint64_t{64} << 20;
  facts.infiniband = {{"mlx5_0/1", 400, true}, {"mlx5_1/1", 400, false}};
  facts.shm_free_bytes = uint64_t{1} << 30;
  facts.gpus = {{"a", 12, true, {}}, {"b", 12, true, {}}};
  const std::vector<CheckLine> lines = check_platform(facts, {}, CheckState::kWarn);
  EXPECT_EQ(line_of(lines, "PCIe lanes"), (CheckLine{"PCIe lanes", CheckState::kOk, "128 of all root ports", "", "112"}));
  const CheckLine memory = line_of(lines, "memory channels");
  EXPECT_EQ(memory.state, CheckState::kWarn);
  EXPECT_EQ(memory.found, "8 in use (DMI)");
  EXPECT_EQ(memory.limit, "12");
  EXPECT_NE(memory.hint, "");
  EXPECT_EQ(line_of(lines, "L3 cache").state, CheckState::kOk);
  EXPECT_EQ(line_of(lines, "NVLink").found, "2 GPUs, full mesh, 12 links each");
  EXPECT_EQ(line_of(lines, "InfiniBand").found, "mlx5_0/1 400 Gb/s, mlx5_1/1 down");
  EXPECT_EQ(describe_shortfalls(check_platform(facts, {}, CheckState::kFail)), "memory channels 8 in use (DMI) (12 wanted)");
  EXPECT_EQ(describe_shortfalls(lines), "");
  // prod: the same fails; what is switched off is not looked at.
  EXPECT_EQ(line_of(check_platform(facts, {}, CheckState::kFail), "memory channels").state, CheckState::kFail);
  EXPECT_TRUE(check_platform({}, PlatformNeeds{0, 0, 0, false, 0, 0}, CheckState::kFail).empty());
  // What cannot be seen is warned of, and refuses nobody.
  EXPECT_EQ(line_of(check_platform({}, {}, CheckState::kFail), "memory channels").state, CheckState::kWarn);
  EXPECT_EQ(describe_shortfalls(check_platform({}, {}, CheckState::kFail)),
            "PCIe lanes no root port (112 wanted), L3 cache unknown (60.0 MiB wanted), InfiniBand no port (200 Gb/s on a port wanted), RAM disk 0 B free in /dev/shm (64.0 MiB wanted)");
}

TEST(Platform, AMeshOfGpusIsWholeOrNamesWhatIsMissing) {
  PlatformFacts facts;
  PlatformNeeds needs{0, 0, 0, true, 0, 0};
  facts.gpus = {{"a", 2, false, {"b", "c"}}, {"b", 2, false, {"a", "c"}}, {"c", 1, false, {"a"}}};
  const CheckLine line = line_of(check_platform(facts, needs, CheckState::kWarn), "NVLink");
  EXPECT_EQ(line.state, CheckState::kWarn);
  EXPECT_EQ(line.found, "3 GPUs, not linked: 1-2");
  facts.gpus[2].peers.push_back("b");
  EXPECT_EQ(line_of(check_platform(facts, needs, CheckState::kWarn), "NVLink").state, CheckState::kOk);
  facts.gpus = {{"a", 0, false, {}}, {"b", 18, true, {}}};  // one GPU lost its switch
  EXPECT_EQ(line_of(check_platform(facts, needs, CheckState::kWarn), "NVLink").found, "2 GPUs, not linked: 0-1");
  facts.gpus.resize(1);
  EXPECT_TRUE(check_platform(facts, needs, CheckState::kWarn).empty());
}

TEST(Platform, LinksAndVersionsComeFromTheDriver) {
  const char* folder = std::getenv("MSO_BUILD_LIBS");
  const std::filesystem::path library = std::filesystem::absolute(folder ? folder : ".libs") / "fake_nvml.so";
  if (!std::filesystem::exists(library)) GTEST_SKIP() << "no " << library;
  EXPECT_EQ(read_gpu_links(library), (std::vector<GpuLinks>{{"0000:17:00.0", 2, false, {"0000:9a:00.0"}}, {"0000:9a:00.0", 1, false, {"0000:17:00.0"}}}));
  EXPECT_EQ(read_gpu_versions(library).driver, "550.54.15");
  EXPECT_EQ(read_gpu_versions(library).cuda, "12.4");
  EXPECT_TRUE(read_gpu_links("libnothing-at-all.so.9").empty());
  EXPECT_EQ(read_gpu_versions("libnothing-at-all.so.9").driver, "");
}

}  // namespace
}  // namespace mso
