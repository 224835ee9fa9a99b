// Tensors are charged to the slice of the stage that makes them, and a full slice is said by name.
#include "memory/slice_scope.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/error.h"
#include "memory/host_pool.h"

namespace mso {
namespace {

#if !defined(__SANITIZE_ADDRESS__)
TEST(SliceScope, ChargesTheStage) {
  install_host_pool();
  const auto make = [](int64_t floats) { return at::empty({floats}, at::TensorOptions(at::kFloat)); };
  at::Tensor before = make(1 << 18);  // before there was a table: never charged
  static SliceTable table({{"vision", 4 << 20}, {"shared", 1 << 20}}, "", 0);
  set_slice_table(&table);
  at::Tensor image, rest;
  {
    const SliceScope scope("vision_encoder");
    image = make(1 << 18);  // 1 MiB and its header
    EXPECT_GE(table.use()[0].used, 1u << 20);
    try {
      make(1 << 20);
      FAIL() << "4 MiB more do not fit";
    } catch (const Error& error) {
      EXPECT_NE(error.on().find("vision"), std::string::npos);
    }
    {
      const SliceScope inner("projector");  // has no slice: shared
      rest = make(1000);
      EXPECT_GE(table.use()[1].used, 4000u);
    }
    EXPECT_EQ(make(100).numel(), 100);
  }
  EXPECT_GE(make(1000).numel(), 1000);  // outside every scope: shared
  before = image = rest = at::Tensor();
  EXPECT_EQ(table.use()[0].used, 0u);
  EXPECT_EQ(table.use()[1].used, 0u);
  set_slice_table(nullptr);
}
#endif

}  // namespace
}  // namespace mso
