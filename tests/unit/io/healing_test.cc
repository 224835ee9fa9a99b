// Healing's decisions: thresholds, candidates, caps; and lists of samples known to be bad.
#include "io/healing.h"

#include <gtest/gtest.h>

#include "base/config.h"
#include "base/error.h"
#include "io/known_bad.h"
#include "tests/unit/io/shard_fixture.h"

namespace mso {
namespace {

using test::TarBytes;
using test::write_text;

std::vector<uint64_t> ids(const HealingDecision& decision) {
  std::vector<uint64_t> out;
  for (const Neighbour& n : decision.candidates) out.push_back(n.id);
  return out;
}
using Ids = std::vector<uint64_t>;

TEST(Healing, UpToThreeAtOrAboveTheThresholdOfTheCategory) {
  HealingPolicy policy;
  policy.thresholds = {{"sports", 0.85}, {"medical", 0.95}};
  const std::vector<Neighbour> neighbours = {{7, 0.99}, {3, 0.95f}, {9, 0.93}, {1, 0.925}, {4, 0.85f}, {5, 0.5}};
  EXPECT_EQ(ids(decide_healing(policy, "animals", neighbours)), (Ids{7, 3, 9}));
  EXPECT_EQ(ids(decide_healing(policy, "medical", neighbours)), (Ids{7, 3}));  // 0.95 itself is enough
  policy.thresholds["medical"] = 0.951;
  EXPECT_EQ(ids(decide_healing(policy, "medical", neighbours)), (Ids{7}));
  auto bad = [](uint64_t id) { return id == 7 || id == 9 || id == 3; };
  EXPECT_EQ(ids(decide_healing(policy, "animals", neighbours, bad)), (Ids{1}));
  EXPECT_EQ(ids(decide_healing(policy, "sports", neighbours, bad)), (Ids{1, 4}));
  const HealingDecision skipped = decide_healing(policy, "medical", neighbours, bad);
  EXPECT_TRUE(skipped.candidates.empty());
  EXPECT_NE(skipped.skip_reason.find("0.925"), std::string::npos) << skipped.skip_reason;
  EXPECT_NE(skipped.skip_reason.find("0.951"), std::string::npos) << skipped.skip_reason;
  EXPECT_FALSE(decide_healing(policy, "x", {}).skip_reason.empty());
  EXPECT_TRUE(decide_healing(policy, "animals", neighbours).skip_reason.empty());
  policy.replace = false;
  EXPECT_TRUE(decide_healing(policy, "animals", neighbours).candidates.empty());
}

TEST(Healing, CapOfACategory) {
  HealingPolicy policy;  // 1 %, three are no trend
  struct Case {
    uint64_t lost, size;
    bool stops;
  };
  for (const Case& c : {Case{1, 1, false}, {3, 5, false}, {4, 5, true}, {3, 300, false}, {4, 300, true}, {4, 400, false},
                        {5, 400, true}, {10, 1000, false}, {11, 1000, true}, {11, 1099, true}, {11, 1100, false},
                        {0, 0, false}, {4, 0, true}})
    EXPECT_EQ(cap_exceeded(policy, "animals", c.lost, c.size).has_value(), c.stops) << c.lost << " of " << c.size;
  const std::string text = *cap_exceeded(policy, "animals", 11, 1000);
  for (const char* part : {"11 of 1000", "'animals'", "at most 10", "mdp.healing.cap, 1 %"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_NE(cap_exceeded(policy, "", 4, 5)->find("without a category"), std::string::npos);
  EXPECT_NE(cap_exceeded(policy, "x", 4, 5)->find("cap_minimum"), std::string::npos);
  policy.cap = 1;
  EXPECT_FALSE(cap_exceeded(policy, "animals", 1000, 1000));
  policy.cap = 0;
  policy.cap_minimum = 0;
  EXPECT_TRUE(cap_exceeded(policy, "animals", 1, 1000000));
}

TEST(Healing, ASampleIsLostOnce) {
  HealingPolicy policy;
  policy.cap_minimum = 1;
  LossCounter counter;
  const std::map<std::string, uint64_t> sizes = {{"a", 50}, {"b", 50}};
  EXPECT_TRUE(counter.add("a", 1));
  EXPECT_FALSE(counter.add("a", 1));  // the next epoch, or the ledger read again
  EXPECT_TRUE(counter.add("b", 2));
  EXPECT_EQ(counter.lost("a"), 1u);
  EXPECT_EQ(counter.lost("c"), 0u);
  EXPECT_FALSE(counter.verdict(policy, sizes));
  counter.add("b", 3);
  EXPECT_NE(counter.verdict(policy, sizes)->find("'b'"), std::string::npos);
}

TEST(Healing, PolicyOfAConfiguration) {
  const Config config;
  const HealingPolicy policy = healing_policy(config.mdp);
  EXPECT_TRUE(policy.replace);
  EXPECT_EQ(policy.threshold, 0.92);
  EXPECT_EQ(policy.cap, 0.01);
  EXPECT_EQ(policy.cap_minimum, 3u);
  EXPECT_TRUE(policy.thresholds.empty());
  MdpConfig own = config.mdp;
  own.healing.thresholds = {{"sports", 0.85}, {"medical", 1}};
  EXPECT_EQ(healing_policy(own).threshold_of("sports"), 0.85);
  EXPECT_EQ(healing_policy(own).threshold_of("medical"), 1);
  EXPECT_EQ(healing_policy(own).threshold_of("food"), 0.92);
}

TEST(KnownBad, ListsAreMatchedByShardAndKey) {
  test::TemporaryFolder folder;
  TarBytes one, two;
  one.file("a/x.txt", "1").file("a/y.txt", "2").file("a/z.txt", "3");
  two.file("a/x.txt", "4").file("b.txt", "5");
  write_text(folder / "one.tar", one.end());
  write_text(folder / "two.tar", two.end());
  std::string list = to_json_line({"two.tar", "a/x", "decode_error", "why", "jpg"}, 3);
  list += "\n" + to_json_line({"one.tar", "a/z", "empty_caption", "", "txt"}, 2);
  list += to_json_line({"one.tar", "a/y", "decode_error", "no sound", "ogg"}, 1);
  list += to_json_line({"gone.tar", "a/y", "read_error", "", ""}, 99);
  list += R"({"id": 4, "shard": "/somewhere/else/two.tar", "key": "b", "reason": "read_error"})";  // no newline, a path
  write_text(folder / "bad.jsonl", list);
  const auto read = read_known_bad(folder / "bad.jsonl");
  ASSERT_EQ(read.size(), 5u);
  const auto data = Dataset::open({folder.string()});
  uint64_t unknown = 0;
  auto found = find_known_bad(*data, read, {Modality::kText, Modality::kImage}, &unknown);
  EXPECT_EQ(unknown, 1u);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found.at(2).reason, "empty_caption");
  EXPECT_EQ(found.at(3).detail, "why");
  EXPECT_EQ(found.at(4).reason, "read_error");
  found = find_known_bad(*data, read, {Modality::kAudio});  // the sound counts now, the picture does not
  EXPECT_TRUE(found.contains(1));
  EXPECT_FALSE(found.contains(3));
  for (const char* wrong : {"x", "{}", "[1]", R"({"shard": 1, "key": "a", "reason": "b"})"}) {
    write_text(folder / "wrong.jsonl", list + "\n" + wrong);
    try {
      read_known_bad(folder / "wrong.jsonl");
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("wrong.jsonl:"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace mso
