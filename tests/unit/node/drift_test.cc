// What is not alike on a run's nodes, said with names.
#include "node/drift.h"

#include <gtest/gtest.h>

#include "node/node_facts_read.h"

namespace mso {
namespace {

NodeVersions versions(const std::string& node, const std::string& driver, const std::string& program) {
  return {node, {{"GPU driver", driver}, {"program", program}}};
}

TEST(Drift, NamesTheNodesAndTheUsualValueFirst) {
  EXPECT_TRUE(find_drift({}).empty());
  EXPECT_TRUE(find_drift({versions("n1", "1", "a"), versions("n2", "1", "a")}).empty());
  EXPECT_EQ(find_drift({versions("n1", "2", "a"), versions("n2", "1", "a"), versions("n3", "1", "a"), versions("n3", "1", "a")}),
            (std::vector<std::string>{"GPU driver: 1 on n2, n3; 2 on n1"}));
  // A node without a driver, and ranks of one node with different programs.
  EXPECT_EQ(find_drift({versions("n1", "", "a"), versions("n2", "1", "a"), versions("n2", "1", "b")}),
            (std::vector<std::string>{"GPU driver: none on n1; 1 on n2", "program: a on n1, n2; b on n2"}));
  std::vector<NodeVersions> many;
  for (int i = 0; i < 20; ++i) many.push_back(versions("n" + std::to_string(i), i == 7 ? "old" : "new", "a"));
  EXPECT_EQ(find_drift(many)[0], "GPU driver: new on n0, n1, n2, n3, n4, n5, n6, n8 and 11 more; old on n7");
}

TEST(Drift, SurvivesTheTripThroughText) {
  const NodeVersions some{"n1", {{"kernel", "6.1"}, {"program", ""}}};
  const NodeVersions back = parse_node_versions(format_node_versions(some));
  EXPECT_EQ(back.node, some.node);
  EXPECT_EQ(back.values, some.values);
  const NodeVersions odd = parse_node_versions(format_node_versions({"n\n1", {{"a", "x\ny=z"}}}));
  EXPECT_EQ(odd.node, "n?1");
  EXPECT_EQ(odd.values, (std::vector<std::pair<std::string, std::string>>{{"a", "x?y=z"}}));
  EXPECT_TRUE(parse_node_versions("").values.empty());
}

TEST(Drift, ThisProcessIsLikeItself) {
  const NodeVersions one = read_node_versions("n1"), other = read_node_versions("n2");
  EXPECT_TRUE(find_drift({one, other}).empty());
  EXPECT_EQ(one.values.back().first, "program");
  EXPECT_EQ(one.values.back().second.size(), 16u);
}

}  // namespace
}  // namespace mso
