// Facts of a node: read from made-up files, from hwloc's synthetic machines and a made-up driver; kept and read again.
#include "node/node_facts.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "config.h"
#include "made_up_node.h"
#include "node/node_facts_read.h"

namespace mso {
namespace {

NodeFacts some_facts() {
  NodeFacts facts;
  facts.host = "node 1";
  facts.boot_id = current_boot_id();
  facts.cpus = {{0, 0, 0}, {1, 1, 0}, {2, 0, 0}, {3, 1, 0}};
  facts.gpus = {{0, 4, "GPU-0", "NVIDIA H200", "0000:17:00.0", 1, 7, {{"MIG-1", 3}, {"MIG-2", 4}}}, {1, 5, "GPU-1", "", "", -1, 8, {}}};
  facts.nvme.controllers = {{"nvme0", "m=%\n x", "", "pcie", "0000:01:00.0", "nqn", -1, 4, 31.5}};
  facts.nvme.namespaces = {{"nvme0n1", 1, "u", "", "", 123, {"nvme0", "nvme1"}}};
  facts.l3_bytes = 1 << 25;
  facts.memory_bytes = uint64_t{1} << 41;
  facts.gpu_note = "NVML: \xff";
  return facts;
}

TEST(NodeFacts, AreTheSameAfterATripThroughText) {
  const NodeFacts facts = some_facts();
  EXPECT_EQ(parse_node_facts(format_node_facts(facts)), facts);
  EXPECT_EQ(parse_node_facts(format_node_facts({})), NodeFacts{});
}

TEST(NodeFacts, DamagedTextIsNoFacts) {
  const std::string text = format_node_facts(some_facts());
  for (size_t size = 0; size < text.size(); ++size) EXPECT_FALSE(parse_node_facts(text.substr(0, size))) << size;
  EXPECT_FALSE(parse_node_facts(text + text));
  EXPECT_FALSE(parse_node_facts("mso-node-facts 2" + text.substr(16)));
  EXPECT_FALSE(parse_node_facts("mso-node-facts 1\nmig uuid=x memory=1\nend\n"));
  EXPECT_FALSE(parse_node_facts("mso-node-facts 1\ncpu id=9999999 core=0 numa=0\nend\n"));
  EXPECT_FALSE(parse_node_facts("mso-node-facts 1\nnews from=later\nend\n"));
  EXPECT_FALSE(parse_node_facts(std::string(5 << 20, ' ') + "\nend\n"));
  for (size_t i = 0; i < text.size(); ++i) {  // never crashes, whatever byte is wrong
    std::string other = text;
    other[i] = static_cast<char>(other[i] ^ 0x15);
    (void)parse_node_facts(other);
  }
}

TEST(NodeFacts, AreKeptForThisBootOnly) {
  const MadeUpNode made;
  NodeFacts facts = some_facts();
  made.write("facts", format_node_facts(facts));
  EXPECT_EQ(load_node_facts(made / "facts"), facts);
  ::chmod((made / "facts").c_str(), 0666);  // anybody could have written it
  EXPECT_FALSE(load_node_facts(made / "facts"));
  ::chmod((made / "facts").c_str(), 0644);
  std::filesystem::create_symlink(made / "facts", made / "link");
  EXPECT_FALSE(load_node_facts(made / "link"));
  EXPECT_FALSE(load_node_facts(made / "none"));
  EXPECT_FALSE(load_node_facts(made.root()));
  ASSERT_EQ(::mkfifo((made / "fifo").c_str(), 0644), 0);
  EXPECT_FALSE(load_node_facts(made / "fifo"));  // and does not wait
  facts.boot_id = "another";
  made.write("facts", format_node_facts(facts));
  EXPECT_FALSE(load_node_facts(made / "facts"));
}

TEST(NodeFacts, CpusComeFromSysfs) {
  const MadeUpNode made;
  made.write("sys/devices/system/cpu/online", "0-7\n");
  made.write("sys/devices/system/node/online", "0-1\n");
  made.write("sys/devices/system/node/node0/cpulist", "0-1,4-5\n");
  made.write("sys/devices/system/node/node1/cpulist", "2-3,6-7\n");
  for (int cpu = 0; cpu < 8; ++cpu) {
    const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    const std::string siblings = std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4) + "\n";
    made.write(folder + (cpu % 2 ? "thread_siblings_list" : "core_cpus_list"), siblings);
  }
  const std::vector<CpuFact> cpus = read_cpus_sysfs(made.root());
  ASSERT_EQ(cpus.size(), 8u);
  EXPECT_EQ(cpus[5], (CpuFact{5, 1, 0}));
  EXPECT_EQ(cpus[6], (CpuFact{6, 2, 1}));
  EXPECT_EQ(describe_numa(cpus), "node 0: 0-1,4-5; node 1: 2-3,6-7");
  EXPECT_EQ(cpus_of_numa(cpus, 1), (CpuSet{2, 3, 6, 7}));
  EXPECT_TRUE(read_cpus_sysfs(made / "nothing").empty());
}

TEST(NodeFacts, ThisMachineLooksTheSameToHwlocAndSysfs) {
  if (!std::filesystem::exists("/sys/devices/system/cpu/online")) GTEST_SKIP() << "no sysfs";
  const std::vector<CpuFact> cpus = read_cpus(), plain = read_cpus_sysfs("/");
  ASSERT_EQ(cpus.size(), plain.size());
  for (size_t i = 0; i < cpus.size(); ++i) EXPECT_EQ(cpus[i].cpu, plain[i].cpu);
  for (size_t i = 0; i < cpus.size(); ++i) EXPECT_EQ(cpus[i].numa, plain[i].numa);
}

#ifdef MSO_HAVE_HWLOC
TEST(NodeFacts, CpusOfASyntheticMachine) {
  const std::vector<CpuFact> cpus = read_cpus("pack:2 [numa] core:3 pu:2");
  ASSERT_EQ(cpus.size(), 12u);
  EXPECT_EQ(cpus[0], (CpuFact{0, 0, 0}));
  EXPECT_EQ(cpus[1], (CpuFact{1, 0, 0}));
  EXPECT_EQ(cpus[6], (CpuFact{6, 3, 1}));
  EXPECT_THROW(read_cpus("not a machine"), Error);
}
#endif

TEST(NodeFacts, GpusComeFromTheDriver) {
  const char* folder = std::getenv("MSO_BUILD_LIBS");
  const std::filesystem::path library = std::filesystem::absolute(folder ? folder : ".libs") / "fake_nvml.so";
  if (!std::filesystem::exists(library)) GTEST_SKIP() << "no " << library;
  const MadeUpNode made;
  made.write("sys/bus/pci/devices/0000:9a:00.0/numa_node", "1\n");
  std::string note;
  const std::vector<GpuFact> gpus = read_gpus(&note, made.root(), library);
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(note, "GPU 2: Driver Not Loaded");
  EXPECT_EQ(gpus[0], (GpuFact{0, 4, "GPU-00", "NVIDIA H200", "0000:17:00.0", -1, uint64_t{141} << 30, {}}));
  EXPECT_EQ(gpus[1].numa, 1);
  EXPECT_EQ(gpus[1].pci, "0000:9a:00.0");
  EXPECT_EQ(gpus[1].mig, (std::vector<MigFact>{{"MIG-22", uint64_t{16} << 30}, {"MIG-33", uint64_t{35} << 30}}));
  ::setenv("FAKE_NVML_INIT", "1", 1);
  EXPECT_TRUE(read_gpus(&note, made.root(), library).empty());
  EXPECT_EQ(note, "NVML does not start: Driver Not Loaded");
  ::unsetenv("FAKE_NVML_INIT");
  EXPECT_TRUE(read_gpus(&note, made.root(), "libnothing-at-all.so.9").empty());
  EXPECT_NE(note.find("is not installed"), std::string::npos);
  EXPECT_TRUE(read_gpus(&note, made.root(), "libm.so.6").empty());
  EXPECT_NE(note.find("lacks functions"), std::string::npos);
}

}  // namespace
}  // namespace mso
