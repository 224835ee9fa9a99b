// The watch and the policy on made-up traces: right thresholds, no flapping whatever comes, back when it is good again.
#include "io/source_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace mso {
namespace {

TEST(LatencyWatch, PercentilesOfAWindow) {
  LatencyWatch watch(5);
  EXPECT_EQ(watch.summary(0, 0.1).reads, 0u);
  for (int i = 1; i <= 200; ++i) watch.add(i * 0.01, i * 0.001);
  LatencySummary s = watch.summary(2.0, 0.1);
  EXPECT_EQ(s.reads, 200u);
  EXPECT_EQ(s.over, 100u);
  EXPECT_DOUBLE_EQ(s.p50_s, 0.100);  // nearest rank: the 100th of 200
  EXPECT_DOUBLE_EQ(s.p99_s, 0.198);
  // What is older than the window does not count: times 1.01 … 2.00 stay at 6.005.
  s = watch.summary(6.005, 0.1);
  EXPECT_EQ(s.reads, 100u);
  EXPECT_DOUBLE_EQ(s.p50_s, 0.150);
  EXPECT_EQ(watch.summary(7.0, 0.1).reads, 0u);
}

TEST(LatencyWatch, AgreesWithSortingAndForgetsTheOldestBeyondItsLimit) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    LatencyWatch watch(5, 64);
    std::vector<double> last;
    const size_t reads = 1 + random() % 130;
    for (size_t i = 0; i < reads; ++i) {
      const double latency = static_cast<double>(random() % 1000) * 1e-3;
      watch.add(1, latency);
      last.push_back(latency);
    }
    if (last.size() > 64) last.erase(last.begin(), last.end() - 64);
    std::sort(last.begin(), last.end());
    const LatencySummary s = watch.summary(2, 0.5);
    ASSERT_EQ(s.reads, last.size());
    // By counting: the smallest value that 99 % of the reads do not pass.
    for (auto [share, value] : {std::pair(0.5, s.p50_s), std::pair(0.99, s.p99_s)}) {
      const auto not_above = std::count_if(last.begin(), last.end(), [&](double x) { return x <= value; });
      const auto below = std::count_if(last.begin(), last.end(), [&](double x) { return x < value; });
      EXPECT_GE(static_cast<double>(not_above), share * static_cast<double>(last.size()));
      EXPECT_LT(static_cast<double>(below), share * static_cast<double>(last.size()));
    }
  }
}

// Plays a source: at each tenth of a second `reads` reads end with latency(t), unless the policy avoids the source and a
// cache has all; then only probes are made. A latency that is infinite hangs: a read passes its deadline after 10 s.
class Player {
 public:
  explicit Player(PolicyOptions options = {}) : policy(options), watch(5) {}
  struct Change {
    double at;
    SourceState state;
  };

  void play(double until_s, const std::function<double(double)>& latency, int reads = 3, bool cached = true) {
    for (; now < until_s; now += 0.1) {
      const double l = latency(now);
      SourceObservation seen;
      seen.now_s = now;
      auto read = [&] {
        if (std::isinf(l)) {
          under_way.push_back(now);
        } else {
          watch.add(now, l);
          last_read = now;
          last_latency = l;
          seen.came_back = true;
        }
      };
      if (!(decision.cache_first && cached))
        for (int i = 0; i < reads; ++i) read();
      if (decision.probe) read();
      if (!std::isinf(l) && !under_way.empty()) {  // what hung comes back with the source
        under_way.clear();
        seen.came_back = true;
      }
      while (!under_way.empty() && now - under_way.front() >= 10) {
        under_way.erase(under_way.begin());
        seen.passed_deadline = true;
      }
      seen.window = watch.summary(now, policy.options().limit_s);
      seen.oldest_under_way_s = under_way.empty() ? 0 : now - under_way.front();
      seen.last_read_s = last_read;
      seen.last_latency_s = last_latency;
      decision = policy.update(seen);
      if (decision.changed) changes.push_back({now, decision.state});
      check_decision();
    }
  }
  void check_decision() const {
    const bool bad = decision.state == SourceState::kSlow || decision.state == SourceState::kHung;
    EXPECT_EQ(decision.cache_first, bad || decision.suspect || decision.far);
    EXPECT_EQ(decision.avoid, bad);
    EXPECT_EQ(decision.fill_ahead, decision.state == SourceState::kSlow);
    EXPECT_EQ(decision.prefetch_factor > 1, decision.state != SourceState::kHealthy);
  }
  std::string story() const {
    std::string text;
    for (const Change& change : changes) text += (text.empty() ? "" : " ") + std::string(to_string(change.state));
    return text;
  }
  size_t times(SourceState state) const {
    return static_cast<size_t>(std::count_if(changes.begin(), changes.end(), [&](const Change& c) { return c.state == state; }));
  }

  SourcePolicy policy;
  LatencyWatch watch;
  SourceDecision decision;
  std::vector<Change> changes;
  std::vector<double> under_way;
  double now = 0, last_read = -1e9, last_latency = 0;
};

double ms(double value) { return value * 1e-3; }

TEST(SourcePolicy, FastAllTheTimeNeverChanges) {
  Player p;
  p.play(600, [](double) { return ms(5); });
  EXPECT_EQ(p.story(), "");
}

TEST(SourcePolicy, FiveToEightHundredToFive) {
  for (bool cached : {true, false}) {
    Player p;
    p.play(60, [](double) { return ms(5); }, 3, cached);
    p.play(120, [](double) { return ms(800); }, 3, cached);
    ASSERT_EQ(p.story(), "slow") << cached;
    // Confirmed within a second and a half; where only probes are made, two a second, one second later.
    EXPECT_LE(p.changes[0].at, 60 + (cached ? 2.5 : 1.5));
    EXPECT_GE(p.changes[0].at, 60 + 1.0);
    p.play(240, [](double) { return ms(5); }, 3, cached);
    EXPECT_EQ(p.story(), "slow probing healthy") << cached;
    EXPECT_LE(p.changes[2].at, 120 + 15);  // well within the 47 s that are allowed
  }
}

// A full window of fast reads: 5000 of them, so that the percentile says nothing for seconds.
TEST(SourcePolicy, AtTheFirstLateReadTheCacheIsAskedFirst) {
  for (bool ended : {false, true}) {
    SourcePolicy policy;
    SourceObservation seen;
    seen.now_s = 100;
    seen.window = {5000, 0, ms(0.2), ms(0.9)};
    seen.last_read_s = 100;
    seen.last_latency_s = ms(0.3);
    EXPECT_FALSE(policy.update(seen).cache_first);
    seen.now_s = 100.1;
    (ended ? seen.last_latency_s : seen.oldest_under_way_s) = ms(101);
    const SourceDecision decision = policy.update(seen);
    EXPECT_TRUE(decision.cache_first && decision.suspect);
    EXPECT_FALSE(decision.avoid || decision.fill_ahead || decision.changed);
    EXPECT_EQ(decision.prefetch_factor, 1);
    // And probed meanwhile; one fast read, or a second without news, and all is as before.
    seen.now_s = 100.9;
    EXPECT_TRUE(policy.update(seen).probe);
    seen.last_latency_s = ms(0.3);
    seen.oldest_under_way_s = 0;
    EXPECT_FALSE(policy.update(seen).cache_first);
    seen.last_latency_s = ms(101);
    seen.now_s = 101.1;
    EXPECT_FALSE(policy.update(seen).cache_first);
  }
}

TEST(SourcePolicy, FarSourcesAreReadAhead) {
  Player p;
  p.play(10, [](double) { return ms(0.5); });
  EXPECT_FALSE(p.decision.far);
  p.play(20, [](double) { return ms(1.5); });  // in between nothing changes
  EXPECT_FALSE(p.decision.far);
  p.play(30, [](double) { return ms(5); });
  EXPECT_TRUE(p.decision.far && p.decision.cache_first);
  p.play(40, [](double) { return ms(1.5); });
  EXPECT_TRUE(p.decision.far);
  p.play(50, [](double) { return ms(0.5); });
  EXPECT_FALSE(p.decision.far || p.decision.cache_first);
  EXPECT_EQ(p.story(), "");
}

TEST(SourcePolicy, OneSlowReadIsNoSlowSource) {
  Player p;
  int n = 0;
  p.play(600, [&](double) { return ++n % 300 == 0 ? ms(500) : ms(5); }, 1);  // one in half a minute
  EXPECT_EQ(p.story(), "");
}

TEST(SourcePolicy, ThresholdsHold) {
  auto ends_slow = [](double latency, double limit) {
    PolicyOptions options;
    options.limit_s = limit;
    Player p(options);
    p.play(30, [=](double) { return latency; });
    return p.decision.state == SourceState::kSlow;
  };
  EXPECT_FALSE(ends_slow(ms(99.9), 0.1));
  EXPECT_FALSE(ends_slow(ms(100), 0.1));
  EXPECT_TRUE(ends_slow(ms(100.1), 0.1));
  EXPECT_FALSE(ends_slow(ms(400), 0.5));
  EXPECT_TRUE(ends_slow(ms(501), 0.5));
  // Back only below half of the limit.
  for (double after : {49.0, 51.0}) {
    Player p;
    p.play(30, [](double) { return ms(300); });
    p.play(90, [=](double) { return ms(after); });
    EXPECT_EQ(p.story(), after < 50 ? "slow probing healthy" : "slow");
  }
}

TEST(SourcePolicy, AroundTheLimitItDoesNotFlap) {
  Player p;
  std::mt19937 random(11);
  p.play(1200, [&](double) { return ms(60 + static_cast<double>(random() % 90)); });  // 60 … 149 ms
  EXPECT_EQ(p.story(), "slow");
}

TEST(SourcePolicy, AlternatingStorageIsLeftAloneLongerAndLonger) {
  Player p;
  // Ten seconds good, ten seconds bad, for an hour.
  p.play(3600, [](double t) { return std::fmod(t, 20) < 10 ? ms(5) : ms(800); });
  const size_t slow = p.times(SourceState::kSlow);
  EXPECT_GE(slow, 2u);
  EXPECT_LE(slow, 3600 / 30u);  // not at every one of 180 changes
}

TEST(SourcePolicy, HungForEverStaysHung) {
  Player p;
  p.play(60, [](double) { return ms(5); });
  p.play(3600, [](double) { return HUGE_VAL; });
  // The first late read makes it slow, so that the cache is used long before the deadline.
  ASSERT_GE(p.changes.size(), 2u);
  EXPECT_EQ(p.story(), "slow hung");
  EXPECT_LE(p.changes[0].at, 60 + 1.5);
  EXPECT_LE(p.changes[1].at, 60 + 10.5);
  p.play(3700, [](double) { return ms(5); });
  EXPECT_EQ(p.decision.state, SourceState::kHealthy);
  EXPECT_EQ(p.story(), "slow hung slow probing healthy");
  EXPECT_LE(p.changes.back().at, 3600 + 47);
}

// Whatever the storage does: only the edges of the picture are gone along, slow lasts its time, and after forty-seven
// good seconds it is healthy.
TEST(SourcePolicy, EveryTraceKeepsTheRules) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    Player p;
    const bool cached = random() % 2, may_hang = random() % 2;
    const int reads = static_cast<int>(1 + random() % 6);
    while (p.now < 400) {
      const double levels[] = {1, 5, 40, 60, 95, 105, 150, 800, 3000};
      const size_t pick = random() % (std::size(levels) + (may_hang ? 1 : 0));
      const double level = pick < std::size(levels) ? ms(levels[pick]) : HUGE_VAL;
      p.play(p.now + 0.1 + static_cast<double>(random() % 300) * 0.1, [=](double) { return level; }, reads, cached);
    }
    SourceState state = SourceState::kHealthy;
    double since = -1e9;
    for (const Player::Change& change : p.changes) {
      const SourceState next = change.state;
      switch (state) {
        case SourceState::kHealthy: EXPECT_TRUE(next == SourceState::kSlow || next == SourceState::kHung) << seed; break;
        case SourceState::kSlow: EXPECT_TRUE(next == SourceState::kProbing || next == SourceState::kHung) << seed; break;
        case SourceState::kHung: EXPECT_EQ(next, SourceState::kSlow) << seed; break;
        case SourceState::kProbing: break;
      }
      EXPECT_NE(next, state) << seed;
      if (state == SourceState::kSlow && next == SourceState::kProbing) {
        EXPECT_GE(change.at - since, 5 - 1e-6) << seed;
      }
      if (state == SourceState::kProbing && next == SourceState::kHealthy) {
        EXPECT_GE(change.at - since, 3 - 1e-6) << seed;
      }
      state = next;
      since = change.at;
    }
    EXPECT_LE(p.times(SourceState::kHealthy), 400 / 9 + 1u) << seed;
    const double good_from = p.now;
    p.play(good_from + 47, [](double) { return ms(5); }, reads, cached);
    EXPECT_EQ(p.decision.state, SourceState::kHealthy) << seed << ": " << p.story();
  }
}

TEST(SourcePolicy, ProbesOnlyWhereNothingElseReads) {
  Player p;
  p.play(30, [](double) { return ms(800); }, 3, true);
  ASSERT_EQ(p.decision.state, SourceState::kSlow);
  SourceObservation seen;
  seen.now_s = p.now;
  seen.last_read_s = p.now - 0.1;
  EXPECT_FALSE(p.policy.update(seen).probe);
  seen.now_s += 1;
  EXPECT_TRUE(p.policy.update(seen).probe);
  EXPECT_FALSE(p.policy.update(seen).probe);  // once an interval
}

}  // namespace
}  // namespace mso
