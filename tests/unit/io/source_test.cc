// Plain reads and io_uring give the same bytes; what is cut or missing is an error that names the file.
#include "io/source.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "base/error.h"
#include "tests/unit/io/shard_fixture.h"

namespace mso {
namespace {

class SourceTest : public testing::Test {
 protected:
  void SetUp() override {
    std::mt19937_64 random(1);
    content_.resize(3'000'001);
    for (char& c : content_) c = static_cast<char>(random());
    test::write_text(folder_ / "a.tar", content_);
    sources_.push_back(make_file_source("file", folder_.string()));
    for (unsigned direct : {0u, 512u, 4096u}) {
      std::string why;
      auto source = make_uring_source("uring", folder_.string(), direct, &why);
      if (!source) {
        EXPECT_FALSE(why.empty());
        continue;
      }
      std::byte byte;
      try {
        source->read("a.tar", 7, {&byte, 1});
      } catch (const Error& error) {  // a file system without O_DIRECT
        if (direct == 0) ADD_FAILURE() << error.what();
        continue;
      }
      sources_.push_back(source);
    }
    RecordProperty("io_uring sources", static_cast<int>(sources_.size()) - 1);
  }
  test::TemporaryFolder folder_;
  std::string content_;
  std::vector<std::shared_ptr<Source>> sources_;
};

TEST_F(SourceTest, EveryRangeIsRight) {
  std::mt19937_64 random(2);
  for (const auto& source : sources_) {
    EXPECT_EQ(source->size("a.tar"), content_.size());
    for (int i = 0; i < 120; ++i) {
      // Ends of blocks, of pages and of the file, and anything between.
      uint64_t offset = random() % content_.size(), size = 1 + random() % (i % 4 == 0 ? 2'600'000 : 5000);
      if (i % 5 == 0) offset = offset / 4096 * 4096;
      if (i % 7 == 0) size = 262144;
      size = std::min(size, content_.size() - offset);
      std::vector<std::byte> got(size);
      source->read("a.tar", offset, got);
      ASSERT_EQ(std::memcmp(got.data(), content_.data() + offset, size), 0) << source->name() << offset << " " << size;
    }
    source->read("a.tar", 5, {});
  }
}

TEST_F(SourceTest, BeyondTheEndAndMissing) {
  std::vector<std::byte> got(5000);
  for (const auto& source : sources_) {
    try {
      source->read("a.tar", content_.size() - 4000, got);
      ADD_FAILURE() << source->name();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("a.tar"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("ends too early"), std::string::npos);
    }
    EXPECT_THROW(source->read("b.tar", 0, got), Error);
    EXPECT_THROW(source->size("b.tar"), Error);
  }
}

TEST_F(SourceTest, ManyThreadsAtOnce) {
  for (const auto& source : sources_) {
    std::vector<std::jthread> threads;
    std::atomic<int> right = 0;
    for (int t = 0; t < 6; ++t)
      threads.emplace_back([&, t] {
        std::mt19937_64 random(static_cast<unsigned>(t));
        for (int i = 0; i < 40; ++i) {
          const uint64_t offset = random() % (content_.size() - 70000);
          std::vector<std::byte> got(70000);
          if (!source->try_read("a.tar", offset, got)) source->read("a.tar", offset, got);
          right += std::memcmp(got.data(), content_.data() + offset, got.size()) == 0;
          if (i % 10 == 0) source->forget("a.tar");
        }
      });
    threads.clear();
    EXPECT_EQ(right, 240) << source->name();
  }
}

}  // namespace
}  // namespace mso
