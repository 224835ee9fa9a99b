// The cache gives back what was put in or nothing, whatever happens to its files, and never outgrows its bound.
#include "io/shard_cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/kill_point.h"
#include "tests/unit/io/shard_fixture.h"

namespace mso {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
constexpr uint64_t kMiB = uint64_t{1} << 20;

// Eight bytes at a time by splitmix64, so that making it takes no time.
std::vector<std::byte> content(uint64_t seed, size_t size = kMiB) {
  std::vector<std::byte> bytes((size + 7) / 8 * 8);
  for (size_t i = 0; i < bytes.size(); i += 8) {
    uint64_t x = (seed * 1000003 + i + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    std::memcpy(bytes.data() + i, &x, 8);
  }
  bytes.resize(size);
  return bytes;
}

class ShardCacheTest : public testing::Test {
 protected:
  // "" where [offset, offset + size) of the chunk is right; "missing" or "wrong".
  static std::string look(ShardCache& cache, uint64_t shard, uint64_t chunk, uint64_t seed, uint64_t offset = 0, size_t size = kMiB) {
    std::vector<std::byte> got(size);
    if (!cache.read(shard, chunk, offset, got)) return "missing";
    const auto whole = content(seed, std::max<size_t>(kMiB, offset + size));
    return std::equal(got.begin(), got.end(), whole.begin() + static_cast<ptrdiff_t>(offset)) ? "" : "wrong";
  }
  std::vector<fs::path> files(bool temporary = false) {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.string())) {
      const std::string name = entry.path().filename().string();
      if (entry.is_regular_file() && (temporary ? name.starts_with("tmp-") : name[0] >= '0' && name[0] <= '9'))
        found.push_back(entry.path());
    }
    return found;
  }
  test::TemporaryFolder folder_;
};

TEST_F(ShardCacheTest, GivesBackWhatWasPutIn) {
  ShardCache cache(folder_.string(), 64 * kMiB);
  EXPECT_EQ(look(cache, 1, 0, 10), "missing");
  EXPECT_FALSE(cache.contains(1, 0));
  EXPECT_TRUE(cache.write(1, 0, content(10)));
  EXPECT_TRUE(cache.write(1, 7, content(17, 70001)));  // the end of a shard
  EXPECT_TRUE(cache.contains(1, 0));
  EXPECT_EQ(look(cache, 1, 0, 10), "");
  for (auto [offset, size] : {std::pair<uint64_t, size_t>(0, 1), {65535, 2}, {65536, 65536}, {1048575, 1}, {100, 300000}})
    EXPECT_EQ(look(cache, 1, 0, 10, offset, size), "") << offset;
  EXPECT_EQ(look(cache, 1, 7, 17, 70000, 1), "");
  EXPECT_EQ(look(cache, 2, 0, 10), "missing");
  EXPECT_EQ(look(cache, 1, 1, 10), "missing");
  // Another process sees the same.
  ShardCache other(folder_.string(), 64 * kMiB);
  EXPECT_EQ(look(other, 1, 0, 10), "");
  EXPECT_EQ(other.bytes(), cache.bytes());
  EXPECT_EQ(cache.counters().damaged, 0u);
}

TEST_F(ShardCacheTest, EveryDamageIsNoticed) {
  ShardCache cache(folder_.string(), 64 * kMiB);
  std::mt19937 random(5);
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(cache.write(3, 4, content(20)));
    const fs::path file = files().at(0);
    std::string bytes = read_file(file);
    switch (i % 3) {
      case 0: {  // a flipped bit of header or content
        size_t at = random() % (i % 2 ? 168 : bytes.size() - 4096);
        if (i % 2 == 0) at += 4096;
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
        break;
      }
      case 1: bytes.resize(random() % bytes.size()); break;          // cut
      case 2: std::fill(bytes.begin() + 4096 + 65536 * (i % 16), bytes.end(), '\0'); break;  // never reached the disk
    }
    test::write_text(file, bytes);
    EXPECT_EQ(look(cache, 3, 4, 20), "missing") << i;
    EXPECT_FALSE(cache.contains(3, 4)) << i;
  }
  EXPECT_EQ(cache.counters().damaged, 60u);
  // A chunk under another's name.
  ASSERT_TRUE(cache.write(3, 4, content(20)));
  fs::rename(files().at(0), files().at(0).parent_path() / "5");
  EXPECT_EQ(look(cache, 3, 5, 20), "missing");
}

TEST_F(ShardCacheTest, StaysWithinItsBoundAndForgetsTheLongestUnused) {
  ShardCache cache(folder_.string(), 10 * kMiB);
  for (uint64_t i = 0; i < 60; ++i) {
    EXPECT_TRUE(cache.write(i % 4, i, content(i)));
    std::error_code ignored;
    uint64_t bytes = 0;
    for (const fs::path& file : files()) {
      bytes += fs::file_size(file);
      // Times of use far enough apart to be told.
      if (file.filename() == std::to_string(i))
        fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::seconds(1000 - i), ignored);
    }
    ASSERT_LE(bytes, 10 * kMiB);
    EXPECT_EQ(cache.bytes(), bytes);
  }
  EXPECT_EQ(look(cache, 59 % 4, 59, 59), "");
  EXPECT_EQ(look(cache, 0, 0, 0), "missing");
  EXPECT_GT(cache.counters().evicted, 40u);
  // Reading makes young: the oldest that is left survives the next round, the second oldest does not.
  uint64_t oldest = 0;
  while (!cache.contains(oldest % 4, oldest)) ++oldest;
  EXPECT_EQ(look(cache, oldest % 4, oldest, oldest), "");
  for (uint64_t i = 60; i < 64; ++i) EXPECT_TRUE(cache.write(0, i, content(i)));
  EXPECT_TRUE(cache.contains(oldest % 4, oldest));
  EXPECT_FALSE(cache.contains((oldest + 1) % 4, oldest + 1));
  EXPECT_FALSE(ShardCache(folder_ / "tiny", 100).write(1, 1, content(1)));  // does not fit at all
}

TEST_F(ShardCacheTest, KilledInTheMiddleOfAWrite) {
  {
    ShardCache cache(folder_.string(), 64 * kMiB);
    EXPECT_TRUE(cache.write(1, 1, content(1)));
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ShardCache cache(folder_.string(), 64 * kMiB);
    set_kill_order("cache_chunk_begun:1");
    cache.write(1, 1, content(2));
    std::_Exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(files(true).size(), 1u);
  ShardCache cache(folder_.string(), 64 * kMiB);
  EXPECT_EQ(look(cache, 1, 1, 1), "");  // the old one is whole
  EXPECT_EQ(cache.bytes(), fs::file_size(files().at(0)));
}

TEST_F(ShardCacheTest, OneFetchesAndADeadHolderHoldsNobodyUp) {
  ShardCache cache(folder_.string(), 64 * kMiB);
  const auto now = std::chrono::steady_clock::now();
  {
    const auto held = cache.lock(1, 5, now);
    EXPECT_TRUE(held.valid());
    EXPECT_FALSE(cache.lock(1, 5, now + 20ms).valid());
    EXPECT_TRUE(cache.lock(1, 6, now).valid());
    EXPECT_TRUE(cache.lock(2, 5, now).valid());
  }
  EXPECT_TRUE(cache.lock(1, 5, now).valid());
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ShardCache mine(folder_.string(), 64 * kMiB);
    const auto held = mine.lock(1, 5, now + 60s);
    (void)!::write(ready[1], "x", 1);
    ::pause();
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_FALSE(cache.lock(1, 5, now).valid());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(cache.lock(1, 5, now).valid());
}

TEST_F(ShardCacheTest, ADiskThatTakesNothingIsToldAndLeftAlone) {
  // A file where the folder should be: works for root too, whom no permission stops.
  test::write_text(folder_ / "file", "");
  ShardCache none(folder_ / "file", 64 * kMiB);
  EXPECT_NE(none.trouble(), "");
  EXPECT_FALSE(none.write(1, 1, content(1)));
  EXPECT_EQ(look(none, 1, 1, 1), "missing");
  EXPECT_FALSE(none.lock(1, 1, std::chrono::steady_clock::now()).valid());
  EXPECT_EQ(none.bytes(), 0u);

  ShardCache cache(folder_.string(), 64 * kMiB);
  EXPECT_EQ(cache.trouble(), "");
  EXPECT_TRUE(cache.write(1, 1, content(1)));
  const fs::path shard = files().at(0).parent_path();
  fs::rename(shard, folder_ / "aside");
  test::write_text(shard, "no folder");
  EXPECT_FALSE(cache.write(1, 2, content(2)));
  EXPECT_NE(cache.trouble(), "");
  EXPECT_EQ(look(cache, 1, 1, 1), "missing");
  fs::remove(shard);
  fs::rename(folder_ / "aside", shard);
  EXPECT_EQ(look(cache, 1, 1, 1), "");         // reading goes on at once
  EXPECT_FALSE(cache.write(1, 2, content(2)));  // writing is tried again after a while only
  EXPECT_EQ(cache.counters().failed_writes, 1u);
}

TEST_F(ShardCacheTest, ManyThreadsOneBound) {
  ShardCache cache(folder_.string(), 8 * kMiB);
  std::vector<std::jthread> threads;
  std::atomic<int> wrong = 0;
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      std::unique_ptr<ShardCache> own;
      for (int i = 0; i < 40; ++i) {
        if (i % 10 == 0 && t % 2 == 1) own = std::make_unique<ShardCache>(folder_.string(), 8 * kMiB);  // counts anew, as a new process does
        ShardCache& used = own ? *own : cache;
        const uint64_t chunk = random() % 12;
        if (look(used, 1, chunk, chunk) == "wrong") ++wrong;
        used.write(1, chunk, content(chunk));
      }
    });
  threads.clear();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(cache.counters().damaged, 0u);
  uint64_t bytes = 0;
  for (const fs::path& file : files()) bytes += fs::file_size(file);
  EXPECT_LE(bytes, 8 * kMiB);
  EXPECT_EQ(cache.bytes(), bytes);
}

}  // namespace
}  // namespace mso
