// Writes runs for tests of other programs: h5py (tests/reference/ckpt_reference.py) and the command line
// (tests/cli/ckpt.bats). Does nothing unless MSO_WRITE_SNAPSHOTS names a folder.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tiny_run.h"

namespace mso::testing {
namespace {

namespace fs = std::filesystem;

TEST(Reference, WriteRun) {
  const char* folder = std::getenv("MSO_WRITE_SNAPSHOTS");
  if (!folder) GTEST_SKIP() << "MSO_WRITE_SNAPSHOTS is not set";
  const uint64_t last = 6;
  TinyOptions options{.folder = folder, .ranks = 3, .until = last};
  options.adjust = [](CheckpointSettings& s, int rank) {
    s.node = "node" + std::to_string(rank);
    s.level1_interval_s = 0;
  };
  options.each_step = wait_for_level0;  // L0: a full state of step 1, three deltas, 5, a delta
  options.final_snapshot = true;
  TinyResult result = run_tiny(options);
  for (const std::string& error : result.errors) ASSERT_EQ(error, "");
  // What the last state must hold: expected/BUFFER/TENSOR, raw float32.
  for (const char* buffer : {"master", "exp_avg", "exp_avg_sq"}) {
    const fs::path directory = fs::path(folder) / "expected" / buffer;
    fs::create_directories(directory);
    for (const FlatTensor& tensor : tiny_layout().tensors) {
      std::ofstream out(directory / tensor.name, std::ios::binary);
      for (uint64_t i = 0; i < tensor.count; ++i) {
        const float value = tiny_value(buffer, tensor.name, i, last);
        out.write(reinterpret_cast<const char*>(&value), sizeof value);
      }
    }
  }
}

}  // namespace
}  // namespace mso::testing
