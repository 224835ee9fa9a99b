// The table of slices: limits over all tasks of a device, what dead processes held comes back.
#include "node/slice_table.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "made_up_node.h"

namespace mso {
namespace {

TEST(SliceTable, LimitsWhatIsTaken) {
  SliceTable table({{"vision", 100}, {"shared", 50}}, "", 0);
  const int vision = table.slice_of_stage("vision_encoder"), other = table.slice_of_stage("llm_decoder");
  EXPECT_EQ(vision, 0);
  EXPECT_EQ(other, 1);  // no slice of its own: shared
  EXPECT_TRUE(table.take(vision, 60));
  EXPECT_FALSE(table.take(vision, 41));
  EXPECT_TRUE(table.take(vision, 40));
  EXPECT_FALSE(table.take(vision, UINT64_MAX));
  table.give(vision, 70);
  EXPECT_EQ(table.use()[0].used, 30u);
  EXPECT_EQ(table.use()[0].peak, 100u);
  EXPECT_EQ(table.use()[1].used, 0u);
  EXPECT_TRUE(table.take(-1, UINT64_MAX));
  EXPECT_NE(table.describe().find("vision 30 B of 100 B (peak 100 B)"), std::string::npos) << table.describe();
  SliceTable alone({{"llm", 5}}, "", 0);
  EXPECT_EQ(alone.slice_of_stage("vision_encoder"), -1);  // not limited
}

TEST(SliceTable, IsSharedByTheTasksOfADevice) {
  const MadeUpNode made;
  const std::string file = made / "slices-0-0";
  const std::vector<Slice> slices = {{"shared", 100}};
  SliceTable a(slices, file, 0);
  {
    SliceTable b(slices, file, 1);
    EXPECT_TRUE(a.take(0, 60));
    EXPECT_FALSE(b.take(0, 41));
    EXPECT_TRUE(b.take(0, 40));
    EXPECT_EQ(a.use()[0].used, 100u);
    EXPECT_EQ(a.use()[0].mine, 60u);
  }
  EXPECT_EQ(a.use()[0].used, 60u);  // a task that ends gives back what it held
}

TEST(SliceTable, TakesBackWhatDeadProcessesHeld) {
  const MadeUpNode made;
  const std::string file = made / "slices";
  const std::vector<Slice> slices = {{"shared", 100}};
  const pid_t child = ::fork();
  if (child == 0) {
    SliceTable* table = new SliceTable(slices, file, 3);
    ::_exit(table->take(0, 90) ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  SliceTable mine(slices, file, 0);
  EXPECT_EQ(mine.use()[0].used, 0u);
  SliceTable larger({{"shared", 200}}, file, 0);  // a later step with other slices starts anew
  EXPECT_TRUE(larger.take(0, 150));
}

TEST(SliceTable, CountsExactlyFromSeveralThreads) {
  SliceTable table({{"shared", 1000}}, "", 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i)
        if (table.take(0, 7)) table.give(0, 7);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(table.use()[0].used, 0u);
  EXPECT_LE(table.use()[0].peak, 28u);
}

TEST(SliceTable, ComesFromTheEnvironment) {
  ::unsetenv("MSO_GPU_SLICES");
  EXPECT_EQ(SliceTable::from_environment(), nullptr);
  const MadeUpNode made;
  ::setenv("MSO_GPU_SLICES", "device=host;table=2;sharers=2;slices=vision:1048576,shared:2097152", 1);
  ::setenv("SLURM_LOCALID", "1", 1);
  ::setenv("SLURM_STEP_ID", "4", 1);
  ::setenv("MSO_SNAPSHOT_DIR", made.root().c_str(), 1);
  {
    const auto table = SliceTable::from_environment();
    ASSERT_NE(table, nullptr);
    EXPECT_EQ(table->use()[1].limit, 2097152u);
    EXPECT_TRUE(std::filesystem::exists(made / "slices-4-2"));
  }
  ::setenv("MSO_GPU_SLICES", "rubbish", 1);
  EXPECT_THROW(SliceTable::from_environment(), Error);
  for (const char* name : {"MSO_GPU_SLICES", "SLURM_LOCALID", "SLURM_STEP_ID", "MSO_SNAPSHOT_DIR"}) ::unsetenv(name);
}

TEST(SliceTable, RefusesWhatCannotBe) {
  EXPECT_THROW(SliceTable({}, "", 0), Error);
  EXPECT_THROW(SliceTable({{"shared", 1}}, "", SliceTable::kMaxTasks), Error);
  EXPECT_THROW(SliceTable({{"shared", 1}}, "/nothing/there", 0), Error);
  const MadeUpNode made;
  std::filesystem::create_symlink(made / "elsewhere", made / "link");
  EXPECT_THROW(SliceTable({{"shared", 1}}, made / "link", 0), Error);
  EXPECT_FALSE(std::filesystem::exists(made / "elsewhere"));
}

}  // namespace
}  // namespace mso
