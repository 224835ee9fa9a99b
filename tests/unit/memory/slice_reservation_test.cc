// Flat buffers in the slice table: counted by stage for as long as they live, all of it or nothing.
#include "memory/slice_reservation.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "memory/slice_scope.h"

namespace mso {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// The process's table, for the length of a test.
class SliceReservations : public ::testing::Test {
 protected:
  void SetUp() override { set_slice_table(&table_); }
  void TearDown() override { set_slice_table(nullptr); }
  uint64_t used(size_t slice) const { return table_.use()[slice].used; }

  SliceTable table_{{{"vision", 4 * kMiB}, {"shared", 6 * kMiB}}, "", 0};
};

TEST_F(SliceReservations, CountInTheStagesSlicesUntilTheyGo) {
  {
    SliceReservation weights("weights", {{"vision_encoder", kMiB}, {"projector", 2 * kMiB}, {"llm_decoder", 3 * kMiB}});
    EXPECT_EQ(used(0), kMiB);
    EXPECT_EQ(used(1), 5 * kMiB);  // neither projector nor llm has a slice of its own
    SliceReservation moved = std::move(weights);
    EXPECT_EQ(used(1), 5 * kMiB);
    SliceReservation other("optimizer", {{"vision_encoder", 3 * kMiB}});
    EXPECT_EQ(used(0), 4 * kMiB);
    moved = std::move(other);  // what was held before goes with `other`
    EXPECT_EQ(used(0), 4 * kMiB);
  }
  EXPECT_EQ(used(0), 0u);
  EXPECT_EQ(used(1), 0u);
}

TEST_F(SliceReservations, AFullSliceIsRefusedByNameNeedAndLimitAndNothingIsKept) {
  const SliceReservation weights("weights", {{"llm_decoder", kMiB}});
  try {
    const SliceReservation optimizer("the optimizer's state", {{"vision_encoder", kMiB}, {"projector", 3 * kMiB}, {"llm_decoder", 3 * kMiB}});
    FAIL() << "6 MiB do not fit beside 1 MiB";
  } catch (const Error& error) {
    EXPECT_EQ(error.what_failed(), "a memory slice is full");
    EXPECT_EQ(error.on(), "the optimizer's state need 6.00 MiB of shared, which is 6.00 MiB with 1.00 MiB in use");
    EXPECT_NE(error.hint().find("--mso-gpu-slices=shared:SIZE"), std::string::npos);
    EXPECT_EQ(error.exit_code(), ExitCode::kBadUsage);
  }
  EXPECT_EQ(used(0), 0u);
  EXPECT_EQ(used(1), kMiB);
}

TEST_F(SliceReservations, WithoutASliceOrATableNothingIsCounted) {
  SliceTable only_llm({{"llm", kMiB}}, "", 0);
  set_slice_table(&only_llm);
  const SliceReservation unlimited("weights", {{"vision_encoder", 100 * kMiB}, {"llm_decoder", 0}});
  EXPECT_EQ(only_llm.use()[0].used, 0u);
  set_slice_table(nullptr);
  const SliceReservation free("weights", {{"vision_encoder", 100 * kMiB}});
}

}  // namespace
}  // namespace mso
