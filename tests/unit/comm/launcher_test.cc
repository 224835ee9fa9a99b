#include "comm/launcher.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace mso {
namespace {

LaunchInfo detect(const std::map<std::string, std::string>& variables) {
  return detect_launcher([&](const char* name) {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

TEST(Launcher, ByHandIsOneRankWithoutMpi) {
  const LaunchInfo info = detect({{"HOME", "/root"}});
  EXPECT_FALSE(info.use_mpi);
  EXPECT_EQ(info.ranks, 1);
}

TEST(Launcher, Mpirun) {
  const LaunchInfo info =
      detect({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}, {"PMIX_RANK", "3"}});
  EXPECT_TRUE(info.use_mpi);
  EXPECT_EQ(info.ranks, 4);
  EXPECT_EQ(info.rank, 3);
  EXPECT_EQ(info.launcher, "mpirun");
}

TEST(Launcher, SrunWithPmix) {
  const LaunchInfo info = detect({{"PMIX_RANK", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}});
  EXPECT_TRUE(info.use_mpi);
  EXPECT_EQ(info.ranks, 2);
  EXPECT_EQ(info.rank, 1);
  EXPECT_EQ(info.launcher, "srun");
}

TEST(Launcher, MpichStyle) {
  const LaunchInfo info = detect({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}});
  EXPECT_TRUE(info.use_mpi);
  EXPECT_EQ(info.ranks, 2);
}

TEST(Launcher, BatchScriptOfAnAllocationIsByHand) {
  EXPECT_FALSE(detect({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}}).use_mpi);
  // An interactive step of one task is the shell of salloc.
  EXPECT_FALSE(detect({{"SLURM_STEP_ID", "42"}, {"SLURM_STEP_NUM_TASKS", "1"}}).use_mpi);
}

TEST(Launcher, SeveralSlurmTasksWithoutPmixAreRefused) {
  try {
    detect({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), ExitCode::kBadUsage);
    EXPECT_NE(std::string(e.what()).find("--mpi=pmix"), std::string::npos);
  }
}

TEST(Launcher, GarbageInAVariableIsNoRankCount) {
  EXPECT_EQ(detect({{"OMPI_COMM_WORLD_SIZE", "many"}}).ranks, 0);
}

}  // namespace
}  // namespace mso
