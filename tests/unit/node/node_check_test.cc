// mso check --node: Slurm's files as they may look, and what is said about them.
#include "node/node_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "made_up_node.h"

namespace mso {
namespace {

TEST(Plugstack, IsReadWithWhatItIncludes) {
  const MadeUpNode made;
  made.write("plugstack.conf",
             "# optional /x/spank_mso.so\n"
             "required other.so a=b\n"
             "include " + (made / "plugstack.conf.d/*.conf").string() + "\n"
             "include plugstack.conf\n");  // itself: ends
  made.write("plugstack.conf.d/mso.conf", "\n  optional   /usr/lib/spank_mso.so  snapshot_cap=4G  mps=0  # ours\n");
  const std::vector<PlugstackLine> lines = find_plugstack_lines(made / "plugstack.conf", "spank_mso.so");
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines[0].where, (made / "plugstack.conf.d/mso.conf").string() + ":2");
  EXPECT_EQ(lines[0].plugin, "/usr/lib/spank_mso.so");
  EXPECT_FALSE(lines[0].required);
  EXPECT_EQ(lines[0].arguments, (std::vector<std::string>{"snapshot_cap=4G", "mps=0"}));
  EXPECT_TRUE(find_plugstack_lines(made / "none", "spank_mso.so").empty());
}

TEST(SlurmConf, ValuesAndVersions) {
  const MadeUpNode made;
  made.write("slurm.conf", "ClusterName=x plugstackconfig=/a\nPlugStackConfig=/b # not /c\n");
  EXPECT_EQ(slurm_conf_value(made / "slurm.conf", "PlugStackConfig"), "/b");
  EXPECT_EQ(slurm_conf_value(made / "slurm.conf", "PluginDir"), "");
  EXPECT_EQ(slurm_version_text(22 << 16 | 5 << 8 | 8), "22.05.8");
  EXPECT_EQ(slurm_version_text(24 << 16 | 11 << 8 | 0), "24.11.0");
}

CheckLine line_of(const std::vector<CheckLine>& lines, const std::string& name) {
  for (const CheckLine& line : lines)
    if (line.name == name) return line;
  return {name, CheckState::kFail, "(no such line)", ""};
}

TEST(NodeCheck, SaysWhatOfThePluginIsMissing) {
  const MadeUpNode made;
  ::unsetenv("SLURM_CONF");
  NodeCheckOptions options;
  options.root = made.root();
  NodeFacts facts;
  facts.cpus = {{0, 0, 0}, {1, 1, 1}};
  std::vector<CheckLine> lines = check_node(options, facts, false);
  EXPECT_EQ(line_of(lines, "Slurm").state, CheckState::kFail);
  EXPECT_EQ(line_of(lines, "/run/mso").state, CheckState::kWarn);
  EXPECT_EQ(line_of(lines, "cgroups").state, CheckState::kFail);
  EXPECT_EQ(line_of(lines, "CPUs").found, "2 CPUs, 2 cores, 2 NUMA nodes (node 0: 0; node 1: 1)");
  EXPECT_EQ(check_exit_code(lines), 1);

  made.write("etc/slurm/slurm.conf", "PlugStackConfig=" + (made / "ps.conf").string() + "\n");
  EXPECT_NE(line_of(check_node(options, facts, false), "plugstack line").found.find("none for spank_mso.so"), std::string::npos);
  made.write("ps.conf", "required " + (made / "spank_mso.so").string() + "\n");
  lines = check_node(options, facts, true);
  EXPECT_EQ(line_of(lines, "plugstack line").state, CheckState::kWarn);
  EXPECT_NE(line_of(lines, "plugin file").found.find("No such file"), std::string::npos);
  made.write("spank_mso.so", "not a library");
  EXPECT_EQ(line_of(check_node(options, facts, true), "plugin file").state, CheckState::kFail);
  made.write("ps.conf", "optional spank_mso.so\noptional /a/spank_mso.so\n");
  EXPECT_NE(line_of(check_node(options, facts, true), "plugstack line").hint.find("one of the two"), std::string::npos);
}

TEST(NodeCheck, DrivesAndGpus) {
  NodeFacts facts;
  facts.host = "n1";
  EXPECT_EQ(check_drives(facts)[0].found, "no drive");
  EXPECT_EQ(check_gpus(facts)[0].found, "none");
  facts.nvme.controllers = {{"nvme0", "Fast", "S1", "pcie", "0000:01:00.0", "nqn.a", 1, 4, 32}, {"nvme1", "Linux", "S2", "tcp", "traddr=10.0.0.1", "nqn.b", -1, 0, 0}};
  facts.nvme.namespaces = {{"nvme0n1", 1, "u", "", "", uint64_t{1} << 30, {"nvme0"}}, {"nvme1n1", 1, "u", "", "", 0, {"nvme1"}}};
  const std::vector<CheckLine> lines = check_drives(facts);
  EXPECT_EQ(lines[0].found, "Fast S1, PCIe x4 at 32.0 GT/s, NUMA node 1, nvme0n1 1.00 GiB");
  EXPECT_EQ(lines.back().state, CheckState::kFail);
  EXPECT_EQ(lines.back().found, "n1:nvme0n1 and n1:nvme1n1 both have UUID u");
  facts.gpus = {{0, 0, "GPU-0", "NVIDIA H200", "0000:17:00.0", -1, uint64_t{141} << 30, {{"MIG-1", uint64_t{16} << 30}}}};
  facts.cpus = {{0, 0, 0}, {1, 1, 1}};
  EXPECT_EQ(check_gpus(facts)[0].state, CheckState::kWarn);
}

TEST(NodeCheck, ReadsWellAndAsJson) {
  const std::vector<CheckLine> lines = {{"a", CheckState::kOk, "fine", ""}, {"longer", CheckState::kWarn, "so so", "do this"}};
  EXPECT_EQ(format_check(lines), "ok    a       fine\nwarn  longer  so so\n              -> do this\n1 ok, 1 warn, 0 fail\n");
  EXPECT_EQ(check_exit_code(lines), 0);
  const nlohmann::json json = check_json(lines);
  EXPECT_EQ(json["checks"][1]["state"], "warn");
  EXPECT_EQ(json["exit_code"], 0);
  const std::vector<CheckLine> measured = {{"lanes", CheckState::kWarn, "8", "more", "16"}};
  EXPECT_EQ(format_check(measured), "warn  lanes  8 (wanted: 16)\n             -> more\n0 ok, 1 warn, 0 fail\n");
  EXPECT_EQ(check_json(measured)["checks"][0]["limit"], "16");
}

}  // namespace
}  // namespace mso
