// Deferral of late samples: quotas hold, every position is taken once, none starves, and the ledger's deferrals alone
// lead a second run to the same batches.
#include "io/step_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace mso {
namespace {

// Batches of N samples whose modalities are made up from the position.
class Stream {
 public:
  explicit Stream(uint64_t batch_samples, uint64_t kinds) : n_(batch_samples), kinds_(kinds) {}
  NominalBatches batches() {
    return [this](uint64_t step) -> const NominalBatch& {
      auto [it, fresh] = made_.try_emplace(step);
      if (fresh)
        for (uint64_t i = 0; i < n_; ++i) {
          const uint64_t p = step * n_ + i;
          it->second.push_back({p, p, 0, static_cast<Modality>(p * 2654435761u / 7 % kinds_), static_cast<int>(p % 3)});
        }
      return it->second;
    };
  }
  uint64_t n() const { return n_; }

 private:
  uint64_t n_, kinds_;
  std::map<uint64_t, NominalBatch> made_;
};

TEST(StepPlan, WithoutLateSamplesEveryBatchIsItsNominalOne) {
  Stream stream(7, 4);
  OrderState state;
  for (int step = 0; step < 20; ++step) {
    const StepCandidates c = candidates_of(state, stream.batches(), 7);
    EXPECT_EQ(c.due, 7u);
    EXPECT_EQ(c.items.size(), 7 * (1 + kStandInSteps));
    const StepDecision d = decide(c, std::vector<uint8_t>(c.items.size(), 0));
    ASSERT_EQ(d.chosen, (std::vector<size_t>{0, 1, 2, 3, 4, 5, 6}));
    EXPECT_TRUE(d.awaited.empty() && d.deferred.empty());
    state = after(state, c, d, 7);
    EXPECT_EQ(state, (OrderState{static_cast<uint64_t>(step + 1), {}, {}}));
  }
}

TEST(StepPlan, ALateSampleGivesItsSlotToTheNextOfItsModality) {
  Stream stream(4, 1);
  OrderState state;
  StepCandidates c = candidates_of(state, stream.batches(), 4);
  std::vector<uint8_t> codes(c.items.size(), 0);
  codes[1] = kLate, codes[4] = kLate;  // the first stand-in is not there either
  StepDecision d = decide(c, codes);
  EXPECT_EQ(d.chosen, (std::vector<size_t>{0, 2, 3, 5}));
  ASSERT_EQ(d.deferred.size(), 1u);
  EXPECT_EQ(d.deferred[0], (Deferral{1, 5}));
  state = after(state, c, d, 4);
  EXPECT_EQ(state, (OrderState{1, {1}, {5}}));
  // The next batch: the late one and what is left of 4 … 7.
  c = candidates_of(state, stream.batches(), 4);
  EXPECT_EQ(c.due, 4u);
  d = decide(c, std::vector<uint8_t>(c.items.size(), 0));
  std::vector<uint64_t> positions;
  for (size_t i : d.chosen) positions.push_back(c.items[i].position);
  EXPECT_EQ(positions, (std::vector<uint64_t>{1, 4, 6, 7}));
  EXPECT_EQ(after(state, c, d, 4), (OrderState{2, {}, {}}));
}

TEST(StepPlan, WithNobodyToStandInTheLateAreAwaited) {
  Stream stream(3, 1);
  const StepCandidates c = candidates_of({}, stream.batches(), 3);
  std::vector<uint8_t> codes(c.items.size(), kLate);
  codes[2] = 0;
  const StepDecision d = decide(c, codes);
  EXPECT_EQ(d.chosen, (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(d.awaited, (std::vector<size_t>{0, 1}));
  EXPECT_TRUE(d.deferred.empty());
}

TEST(StepPlan, ABadSampleIsNotLate) {
  Stream stream(2, 1);
  const StepCandidates c = candidates_of({}, stream.batches(), 2);
  std::vector<uint8_t> codes(c.items.size(), 0);
  codes[0] = fate_code(14, 2);
  EXPECT_EQ(decide(c, codes).chosen, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(reason_of_fate(codes[0]), 14);
  EXPECT_EQ(replacement_of_fate(codes[0]), 2);
}

// A sequential order ends with a short batch and empty ones.
TEST(StepPlan, AtTheEndOfASequentialOrderNothingIsTakenFromBeyond) {
  const NominalBatch last = {{4, 4, 0, Modality::kText, 0}}, none;
  const NominalBatch first = {{0, 0, 0, Modality::kText, 0}, {1, 1, 0, Modality::kText, 0}, {2, 2, 0, Modality::kText, 0}, {3, 3, 0, Modality::kText, 0}};
  const NominalBatches batches = [&](uint64_t step) -> const NominalBatch& { return step == 0 ? first : step == 1 ? last : none; };
  StepCandidates c = candidates_of({}, batches, 4);
  EXPECT_EQ(c.items.size(), 5u);
  std::vector<uint8_t> codes = {kLate, kLate, 0, 0, 0};
  StepDecision d = decide(c, codes);
  EXPECT_EQ(d.chosen, (std::vector<size_t>{0, 2, 3, 4}));
  EXPECT_EQ(d.awaited, (std::vector<size_t>{0}));
  const OrderState state = after({}, c, d, 4);
  EXPECT_EQ(state, (OrderState{1, {1}, {4}}));
  c = candidates_of(state, batches, 4);
  EXPECT_EQ(c.items.size(), 1u);
  d = decide(c, std::vector<uint8_t>{kLate});
  EXPECT_EQ(d.awaited, (std::vector<size_t>{0}));
}

// Lateness at random, for many seeds: what must hold always.
TEST(StepPlan, EveryPositionIsTakenOnceWhateverIsLate) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const uint64_t n = 1 + random() % 9, kinds = 1 + random() % 4, stand_in_steps = random() % 5;
    const unsigned percent = random() % 101;
    Stream stream(n, kinds);
    OrderState state, replayed;
    std::set<uint64_t> trained;
    for (uint64_t step = 0; step < 60; ++step) {
      const StepCandidates c = candidates_of(state, stream.batches(), n, stand_in_steps);
      std::vector<uint8_t> codes(c.items.size());
      for (uint8_t& code : codes) code = random() % 100 < percent ? kLate : random() % 10 == 0 ? 14 : 0;
      const StepDecision d = decide(c, codes);
      PerModality<uint64_t> got;
      for (size_t i : d.chosen) {
        ++got[c.items[i].modality];
        ASSERT_TRUE(trained.insert(c.items[i].position).second) << "position taken twice";
      }
      ASSERT_EQ(got, c.quota);
      for (uint64_t position : state.deferred)
        ASSERT_TRUE(position / n + kMostDeferredSteps > step || trained.count(position) > 0) << "starved";
      // As the ledger tells it: who was deferred and who stood in. All others were there, and nobody else ahead.
      std::vector<uint8_t> told(c.items.size(), 0);
      for (size_t i = c.due; i < told.size(); ++i) told[i] = kLate;
      for (const Deferral& deferral : d.deferred) {
        told[deferral.item] = kLate;
        if (deferral.stand_in) told[*deferral.stand_in] = 0;
      }
      const StepDecision again = decide(c, told);
      ASSERT_EQ(again.chosen, d.chosen);
      ASSERT_EQ(again.deferred, d.deferred);
      ASSERT_TRUE(again.awaited.empty() || percent > 0);
      replayed = after(replayed, c, again, n);
      state = after(state, c, d, n);
      ASSERT_EQ(state, replayed);
      ASSERT_EQ(state.deferred.size(), state.ahead.size());
    }
    // Once all is there again, no debt is left after a few steps, and nothing is missing.
    for (uint64_t step = 60; step < 60 + 2 * kMostDeferredSteps; ++step) {
      const StepCandidates c = candidates_of(state, stream.batches(), n, stand_in_steps);
      const StepDecision d = decide(c, std::vector<uint8_t>(c.items.size(), 0));
      for (size_t i : d.chosen) ASSERT_TRUE(trained.insert(c.items[i].position).second);
      state = after(state, c, d, n);
    }
    EXPECT_TRUE(state.deferred.empty());
    EXPECT_TRUE(state.ahead.empty());
    EXPECT_EQ(*trained.rbegin() + 1, trained.size());
  }
}

}  // namespace
}  // namespace mso
