// The file format: what goes in comes out; any change of any byte, of the length, or of the name is noticed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "ckpt/shard_writer.h"
#include "ckpt/shared_store.h"
#include "tiny_run.h"

namespace mso::testing {
namespace {

namespace fs = std::filesystem;

ShardHeader write(const fs::path& path, const StateView& view) {
  ShardHeader header;
  header.run_id = "run";
  header.step = view.step;
  header.attempt = 3;
  header.writer = 1;
  header.writers = 4;
  FileDescriptor file = open_file(path, O_RDWR | O_CREAT);
  return ShardImage(view, header).write(file.get(), path.string());
}

bool noticed(const fs::path& path) {
  try {
    verify_shard(path.string());
    return false;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(path.filename().string()), std::string::npos) << e.what();
    return true;
  }
}

void overwrite(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

TEST(ShardFile, RoundTrip) {
  TemporaryFolder folder;
  const fs::path path = folder.path() / "a.h5";
  TinyState state(1, 4);
  state.advance_to(5);
  StateView view = state.view(5);
  const uint16_t halves[3] = {0x3c00, 0x4000, 0xc000};
  const int64_t numbers[2] = {-5, int64_t{1} << 60};
  view.buffers.push_back({"bf16", DType::kBF16, halves, 3, {{"x", {3}, 0, 3, 0}}});
  view.buffers.push_back({"f16", DType::kF16, halves, 3, {{"x", {3}, 0, 3, 0}}});
  view.buffers.push_back({"i64", DType::kI64, numbers, 2, {}});
  view.buffers.push_back({"nothing", DType::kF32, nullptr, 0, {}});
  view.records["ledger"] = std::string(3 << 20, 'x') + "end";
  write(path, view);
  ShardHeader header = verify_shard(path.string());
  EXPECT_EQ(header.step, 5u);
  EXPECT_EQ(header.attempt, 3);
  EXPECT_EQ(header.writer, 1);
  EXPECT_EQ(header.writers, 4);
  ShardContents contents = read_contents(path.string());
  ASSERT_EQ(contents.buffers.size(), view.buffers.size());
  EXPECT_EQ(contents.records, view.records);
  const std::string bytes = read_file(path);
  for (const StateBuffer& expected : view.buffers) {
    auto it = std::find_if(contents.buffers.begin(), contents.buffers.end(),
                           [&](auto& b) { return b.name == expected.name; });
    ASSERT_NE(it, contents.buffers.end());
    EXPECT_EQ(it->dtype, expected.dtype);
    ASSERT_EQ(it->count, expected.count);
    if (expected.count > 0)
      EXPECT_EQ(
          std::memcmp(bytes.data() + it->offset, expected.data, expected.count * size_of(expected.dtype)), 0);
    ASSERT_EQ(it->slices.size(), expected.slices.size());
    for (size_t i = 0; i < it->slices.size(); ++i) {
      EXPECT_EQ(it->slices[i].name, expected.slices[i].name);
      EXPECT_EQ(it->slices[i].shape, expected.slices[i].shape);
      EXPECT_EQ(it->slices[i].begin, expected.slices[i].begin);
      EXPECT_EQ(it->slices[i].end, expected.slices[i].end);
      EXPECT_EQ(it->slices[i].offset, expected.slices[i].offset);
    }
  }
}

TEST(ShardFile, RefilledFileEqualsANewOne) {
  TemporaryFolder folder;
  TinyState state(0, 2);
  state.advance_to(1);
  StateView large = state.view(1), small = state.view(2);
  large.records["tokenizer"] = std::string(2 << 20, 'z');
  write(folder.path() / "reused.h5", large);
  write(folder.path() / "reused.h5", small);
  write(folder.path() / "new.h5", small);
  EXPECT_EQ(read_file(folder.path() / "reused.h5"), read_file(folder.path() / "new.h5"));
  write(folder.path() / "reused.h5", large);
  verify_shard((folder.path() / "reused.h5").string());
}

TEST(ShardFile, EveryChangeIsNoticed) {
  TemporaryFolder folder;
  const fs::path path = folder.path() / "damaged.h5";
  TinyState state(1, 4);
  state.advance_to(1);
  write(path, state.view(1));
  const std::string good = read_file(path);
  FileDescriptor file = open_file(path, O_RDWR);
  size_t flips = 0;
  // All of the header, every 61st byte of the rest.
  for (size_t i = 0; i < good.size(); i += i < kHeaderBytes ? 1 : 61) {
    for (char bits : {char(0x01), char(0x20), char(0xff)}) {
      const char wrong = good[i] ^ bits;
      pwrite_all(file.get(), &wrong, 1, i, path);
      ASSERT_TRUE(noticed(path)) << "byte " << i;
      ++flips;
    }
    pwrite_all(file.get(), &good[i], 1, i, path);
  }
  EXPECT_GT(flips, 3 * kHeaderBytes);
  ASSERT_FALSE(noticed(path));
  for (size_t size = 0; size < good.size(); size += 509) {
    overwrite(path, good.substr(0, size));
    ASSERT_TRUE(noticed(path)) << "cut at " << size;
  }
  overwrite(path, good + '\0');
  EXPECT_TRUE(noticed(path));
  overwrite(path, good + good);
  EXPECT_TRUE(noticed(path));
  overwrite(path, std::string(good.size(), '\0'));
  EXPECT_TRUE(noticed(path));
  fs::remove(path);
  EXPECT_TRUE(noticed(path));
  fs::create_directory(path);
  EXPECT_TRUE(noticed(path));
  fs::remove(path);
  overwrite(folder.path() / "good.h5", good);
  fs::create_symlink("good.h5", path);
  EXPECT_TRUE(noticed(path));
}

TEST(ShardFile, NewerFormatIsNamedAsSuch) {
  ShardHeader header;
  header.format = kShardFormat + 1;
  try {
    decode_header(encode_header(header), "x.h5");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("another version"), std::string::npos);
  }
}

TEST(ShardFile, InterruptedWriteLeavesNothingValid) {
  TemporaryFolder folder;
  const fs::path path = folder.path() / "half.h5";
  TinyState state(0, 1);
  StateView view = state.view(3);
  std::vector<float> big(2 << 20);
  view.buffers[0].data = big.data();
  view.buffers[0].count = big.size();
  write(path, view);
  ASSERT_FALSE(noticed(path));
  FileDescriptor file = open_file(path, O_RDWR);
  int pieces = 0;
  auto stop = [&](uint64_t) {
    if (++pieces == 3) throw Error("stop", "");
  };
  ShardHeader header;
  EXPECT_THROW(ShardImage(view, header).write(file.get(), path.string(), {stop, ""}), Error);
  EXPECT_TRUE(noticed(path));
}

TEST(ShardFile, LevelsHoldTheirParts) {
  StateView view;
  for (const char* name : {"master", "exp_avg", "exp_avg_sq", "gradient.7"})
    view.buffers.push_back({name, DType::kF32, nullptr, 0, {}});
  for (const char* name : {"cursor", "ledger", "ledger_tail", "model_files", "tokenizer", "update"}) view.records[name] = "x";
  auto names = [](const StateView& part) {
    std::string text;
    for (auto& b : part.buffers) text += b.name + " ";
    for (auto& r : part.records) text += r.first + " ";
    return text;
  };
  EXPECT_EQ(names(view_for_level(view, SnapshotLevel::kL0, true)),
            "master exp_avg exp_avg_sq cursor ledger_tail ");  // gradients are in deltas (delta_test.cc)
  EXPECT_EQ(names(view_for_level(view, SnapshotLevel::kL1, true)),
            "master exp_avg exp_avg_sq cursor ledger_tail model_files tokenizer ");
  EXPECT_EQ(names(view_for_level(view, SnapshotLevel::kL1, false)), "master cursor ledger_tail model_files tokenizer ");
  EXPECT_EQ(names(view_for_level(view, SnapshotLevel::kL2, true)),
            "master exp_avg exp_avg_sq cursor ledger ledger_tail model_files tokenizer ");
}

TEST(ManifestFile, EveryChangeIsNoticed) {
  Manifest manifest;
  manifest.run_id = "run";
  manifest.step = 12;
  manifest.attempt = 3;
  manifest.time = 1700000000.123;
  manifest.plan = "{\"ranks\": 2}";
  manifest.files = {{"rank-0000-of-0002.h5", 123, 0xabcdef, 7}, {"rank-0001-of-0002.h5", 456, 1, 2}};
  const std::string good = encode_manifest(manifest);
  Manifest again = decode_manifest(good, "manifest.json");
  EXPECT_EQ(again.files.size(), 2u);
  EXPECT_EQ(again.time, manifest.time);
  for (size_t i = 0; i < good.size(); ++i)
    for (char bits : {char(0x01), char(0x20), char(0xff)}) {
      std::string wrong = good;
      wrong[i] ^= bits;
      EXPECT_THROW(decode_manifest(wrong, "manifest.json"), Error) << i;
    }
  for (size_t i = 0; i < good.size(); ++i)
    EXPECT_THROW(decode_manifest(good.substr(0, i), "manifest.json"), Error) << i;
  EXPECT_THROW(decode_manifest(good + " ", "manifest.json"), Error);
}

}  // namespace
}  // namespace mso::testing
