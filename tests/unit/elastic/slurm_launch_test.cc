// Which nodes and ranks `mso run` uses in a Slurm allocation.
#include "elastic/slurm_launch.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace mso {
namespace {

using Names = std::vector<std::string>;

std::optional<SlurmAllocation> allocation(const std::map<std::string, std::string>& variables) {
  return slurm_allocation([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(SlurmAllocation, OfABatchScriptAndAShellButNotOfATask) {
  EXPECT_FALSE(allocation({}));
  EXPECT_FALSE(allocation({{"SLURM_JOB_ID", "7"}}));
  const auto batch = allocation({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n[1-3]"}, {"SLURM_NTASKS", "6"}});
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->job_id, "7");
  EXPECT_EQ(batch->node_list, "n[1-3]");
  EXPECT_EQ(batch->tasks, 6);
  EXPECT_EQ(allocation({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n1"}, {"SLURM_NTASKS", "x"}})->tasks, 0);
  for (const char* task : {"PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK"})
    EXPECT_FALSE(allocation({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n1"}, {task, "0"}})) << task;
}

TEST(FirstPlacement, SpreadsRanksOverAllButTheSpareNodes) {
  const Names nodes = {"n1", "n2", "n3"};
  EXPECT_EQ(first_placement(nodes, 6, 0, 0).nodes, nodes);
  EXPECT_EQ(first_placement(nodes, 4, 0, 1).nodes, (Names{"n1", "n2"}));
  EXPECT_EQ(first_placement(nodes, 4, 0, 1).ranks, 4);
  EXPECT_EQ(first_placement(nodes, 0, 0, 0).ranks, 3);  // one a node
  EXPECT_EQ(first_placement(nodes, 0, 6, 0).ranks, 6);
  EXPECT_EQ(first_placement(nodes, 0, 6, 1).ranks, 4);  // the spare node's two are left out
  EXPECT_EQ(first_placement({"n1"}, 2, 0, 0).ranks, 2);
  EXPECT_THROW(first_placement(nodes, 4, 0, 0), Error);
  EXPECT_THROW(first_placement(nodes, 3, 0, 3), Error);
  EXPECT_THROW(first_placement({}, 1, 0, 0), Error);
}

// Every set of lost nodes of four, of which two are used.
TEST(NextPlacement, ForEverySetOfLostNodes) {
  const Names allocated = {"n1", "n2", "n3", "n4"};
  const SlurmPlacement before{{"n1", "n2"}, 6};
  for (int mask = 0; mask < 16; ++mask) {
    std::set<std::string> lost;
    for (int i = 0; i < 4; ++i)
      if (mask >> i & 1) lost.insert(allocated[i]);
    const SlurmPlacement after = next_placement(allocated, before, lost);
    EXPECT_EQ(after.nodes.size(), std::min<size_t>(2, 4 - lost.size())) << mask;
    EXPECT_EQ(after.ranks, static_cast<int>(3 * after.nodes.size())) << mask;
    for (const std::string& node : after.nodes) EXPECT_FALSE(lost.contains(node)) << mask;
    EXPECT_EQ(std::set<std::string>(after.nodes.begin(), after.nodes.end()).size(), after.nodes.size());
    // Whoever lives and was used stays: its RAM disk has the newest state.
    for (const std::string& node : before.nodes)
      if (!lost.contains(node)) EXPECT_NE(std::find(after.nodes.begin(), after.nodes.end(), node), after.nodes.end()) << mask;
    const bool changed = lost.contains("n1") || lost.contains("n2");
    EXPECT_EQ(describe_change(before, after, lost).empty(), !changed) << mask;
  }
  EXPECT_EQ(describe_change(before, next_placement(allocated, before, {"n2"}), {"n2"}),
            "n2 is lost: going on with 6 ranks on n1 n3");
  EXPECT_EQ(describe_change(before, next_placement(allocated, before, {"n1", "n3", "n4"}), {"n1", "n3", "n4"}),
            "n1 is lost: going on with 3 ranks on n2");
}

TEST(SrunCommand, NamesNodesAndRanks) {
  const Names command = srun_command({{"n1", "n3"}, 4}, {"--mso"}, "/lib/mso-rank", {"mso", "train", "-c", "a b.yaml"});
  const std::string tail = "--mso|/lib/mso-rank|mso|train|-c|a b.yaml";
  std::string all;
  for (const std::string& word : command) all += (all.empty() ? "" : "|") + word;
  EXPECT_TRUE(all.ends_with(tail)) << all;
  for (const char* word : {"--nodes=2", "--ntasks=4", "--ntasks-per-node=2", "--nodelist=n1,n3", "--mpi=pmix"})
    EXPECT_NE(std::find(command.begin(), command.end(), word), command.end()) << word;
}

}  // namespace
}  // namespace mso
