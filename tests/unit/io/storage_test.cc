// Reading through slow, hung, failing and lying paths: the right bytes come within the deadlines, or an error does.
#include "io/storage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <thread>

#include "base/error.h"
#include "io/shard_index.h"
#include "tests/unit/io/shard_fixture.h"

namespace mso {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A source whose speed is set at run time.
class FakeSource : public Source {
 public:
  explicit FakeSource(std::string name) : name_(std::move(name)), folder_(name_) {}
  ~FakeSource() override { hang(false); }
  const std::string& name() const override { return name_; }
  const std::filesystem::path& folder() const override { return folder_; }
  bool try_read(const std::string&, uint64_t, std::span<std::byte>) override { return false; }
  void forget(const std::string&) override {}
  uint64_t size(const std::string& shard) override { return files_.at(shard).size(); }
  void read(const std::string& shard, uint64_t offset, std::span<std::byte> to) override {
    std::unique_lock lock(mutex_);
    ++reads;
    changed_.wait(lock, [&] { return !hung_; });
    const auto delay = delay_;
    lock.unlock();
    std::this_thread::sleep_for(delay);
    if (failing > 0 && failing-- > 0) throw Error("cannot read", name_ + "/" + shard);
    const auto at = files_.find(shard);
    if (at == files_.end() || offset + to.size() > at->second.size()) throw Error("no such file or range", name_ + "/" + shard);
    std::ranges::copy(std::as_bytes(std::span(at->second)).subspan(offset, to.size()), to.begin());
  }

  void put(const std::string& shard, const std::string& content) { files_[shard] = content; }
  void hang(bool on) {
    std::lock_guard lock(mutex_);
    hung_ = on;
    changed_.notify_all();
  }
  void delay(std::chrono::milliseconds ms) {
    std::lock_guard lock(mutex_);
    delay_ = ms;
  }
  std::atomic<int> reads = 0, failing = 0;

 private:
  const std::string name_;
  const std::filesystem::path folder_;
  std::map<std::string, std::string> files_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool hung_ = false;
  std::chrono::milliseconds delay_{0};
};

class StorageTest : public testing::Test {
 protected:
  StorageTest() {
    std::mt19937_64 random(9);
    content_.resize(3 << 20);
    for (char& c : content_) c = static_cast<char>(random());
    for (const char* name : {"main", "second"}) {
      sources_[name] = std::make_shared<FakeSource>(name);
      sources_[name]->put("a.tar", content_);
    }
    options_.open = [this](const std::string& url) -> std::shared_ptr<Source> { return sources_.at(url); };
    options_.read_deadline_s = 1;
    options_.latency_limit_s = 0.1;
    options_.policy.confirm_s = 0.2;
    options_.policy.late_s = 0.2;
    options_.policy.slow_at_least_s = 0.5;
    options_.policy.probing_s = 0.3;
    options_.policy.probe_interval_s = 0.1;
  }
  ~StorageTest() override {
    for (auto& [name, source] : sources_) source->hang(false);
  }
  void open() {
    storage_ = std::make_unique<Storage>(options_);
    shard_ = storage_->add_shard({"main", "a.tar", content_.size(), fingerprint(), 77});
  }
  uint64_t fingerprint() {
    test::write_text(folder_ / "a.tar", content_);
    FileDescriptor fd = open_file(folder_ / "a.tar", 0);
    return fingerprint_tar(fd.get(), content_.size(), folder_ / "a.tar");
  }
  // "" where the bytes are right, else what went wrong.
  std::string read(uint64_t offset, uint64_t size = 5000, uint8_t modality = kHasImage) {
    try {
      const std::vector<std::byte> bytes = storage_->read({shard_, modality, offset, size});
      return std::ranges::equal(bytes, std::as_bytes(std::span(content_)).subspan(offset, size)) ? "" : "wrong bytes";
    } catch (const Error& error) {
      return error.what();
    }
  }
  SourceStatus status(const std::string& name) {
    for (const SourceStatus& s : storage_->status().sources)
      if (s.name == name) return s;
    return {};
  }
  // Reads on until the source is in that state.
  bool becomes(const std::string& name, SourceState state, bool reading = true) {
    for (int i = 0; i < 3000; ++i) {
      if (status(name).state == state) return true;
      if (reading) read((i * 7919) % (2 << 20));
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }
  // One step a sample: stretch k is [k × 10000, + 10000).
  void follow() {
    storage_->follow([shard = shard_](uint64_t step) {
      std::vector<ShardRange> ranges;
      if (step < 300) ranges.push_back({shard, kHasImage, step * 10000, 10000});
      return ranges;
    });
  }

  test::TemporaryFolder folder_;
  std::string content_;
  std::map<std::string, std::shared_ptr<FakeSource>> sources_;
  StorageOptions options_;
  std::unique_ptr<Storage> storage_;
  uint32_t shard_ = 0;
};

TEST_F(StorageTest, ReadsAndCounts) {
  open();
  EXPECT_EQ(read(0), "");
  EXPECT_EQ(read(content_.size() - 5000), "");
  EXPECT_EQ(read(100, 0), "");
  EXPECT_EQ(read(100, 1 << 20), "");
  EXPECT_EQ(status("main").reads, 3u);
  EXPECT_EQ(status("main").bytes, 10000u + (1 << 20));
  EXPECT_EQ(status("main").state, SourceState::kHealthy);
  EXPECT_EQ(storage_->prefetch_factor(), 1);
  EXPECT_NE(read(content_.size() - 10), "");
}

TEST_F(StorageTest, AMomentsFailureIsRetriedALongOneTold) {
  open();
  sources_["main"]->failing = 3;
  EXPECT_EQ(read(0), "");
  EXPECT_EQ(status("main").errors, 3u);
  sources_["main"]->failing = 100;
  EXPECT_NE(read(0).find("cannot read"), std::string::npos);
}

TEST_F(StorageTest, AHungReadIsGivenUpAtItsDeadline) {
  open();
  EXPECT_EQ(read(0), "");
  sources_["main"]->hang(true);
  const auto begin = Clock::now();
  EXPECT_NE(read(5000).find("mdp.read_deadline_ms"), std::string::npos);
  EXPECT_GE(Clock::now() - begin, 1s);
  EXPECT_TRUE(becomes("main", SourceState::kHung, false));
  EXPECT_GE(storage_->status().left_behind, 1u);
  sources_["main"]->hang(false);
  EXPECT_TRUE(becomes("main", SourceState::kHealthy));
  EXPECT_EQ(read(5000), "");
  std::string story;
  for (const StorageEvent& event : storage_->take_events()) story += event.kind + " ";
  EXPECT_NE(story.find("source_hung "), std::string::npos);
  EXPECT_NE(story.find("source_slow source_probing source_healthy "), std::string::npos) << story;
}

TEST_F(StorageTest, AHungOneIsReadElsewhere) {
  options_.sources["any"] = {"main", "second"};
  open();
  EXPECT_EQ(read(0), "");
  sources_["main"]->hang(true);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(read(i * 5000), "");
  EXPECT_TRUE(becomes("main", SourceState::kHung));
  EXPECT_GT(sources_["second"]->reads, 0);
  EXPECT_GT(status("main").elsewhere, 0u);
  // All that was asked while it hung was asked of the other one in time: nothing waited for the deadline.
  const auto begin = Clock::now();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(read(i * 5000), "");
  EXPECT_LT(Clock::now() - begin, 10s);
}

TEST_F(StorageTest, APathOfItsOwnForAModality) {
  options_.sources["video"] = {"second"};
  options_.policy.late_s = options_.read_deadline_s = 60;  // however busy the machine, nothing counts as late
  open();
  EXPECT_EQ(read(0, 5000, kHasVideo), "");
  EXPECT_EQ(sources_["main"]->reads, 0);
  EXPECT_EQ(read(0, 5000, kHasImage), "");
  EXPECT_EQ(sources_["main"]->reads, 1);
  // It fails: the folder of data.path is the last resort.
  sources_["second"]->failing = 1000;
  EXPECT_EQ(read(0, 5000, kHasVideo), "");
}

TEST_F(StorageTest, AnotherPathWithOtherContentIsNotBelieved) {
  options_.sources["any"] = {"second"};
  std::string other = content_;
  other[other.size() / 2] ^= 1;
  sources_["second"]->put("a.tar", other);
  options_.policy.late_s = options_.read_deadline_s = 60;
  open();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(read(1 << 20, 1 << 20), "");
  EXPECT_EQ(sources_["second"]->reads, 3);  // the three stretches, once
}

TEST_F(StorageTest, WhileSlowItReadsAheadIntoMemory) {
  open();
  follow();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(read(i * 10000, 10000), "");
  sources_["main"]->delay(200ms);
  EXPECT_TRUE(becomes("main", SourceState::kSlow));
  EXPECT_GT(storage_->prefetch_factor(), 1);
  storage_->at_step(100);
  for (int i = 0; i < 3000 && storage_->status().read_ahead < 50; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_GE(storage_->status().read_ahead, 50u);
  const uint64_t before = status("main").cached;
  for (uint64_t step = 100; step < 140; ++step) {
    storage_->at_step(step);
    EXPECT_EQ(read(step * 10000, 10000), "");
  }
  EXPECT_GE(status("main").cached - before, 30u);
  sources_["main"]->delay(0ms);
  EXPECT_TRUE(becomes("main", SourceState::kHealthy));
}

TEST_F(StorageTest, FromTheCacheWhileHungForEver) {
  options_.cache_path = folder_ / "cache";
  options_.cache_bytes = 64 << 20;
  open();
  follow();
  storage_->at_step(0);
  for (int i = 0; i < 3000 && storage_->status().cache.fills < 3; ++i) std::this_thread::sleep_for(10ms);
  ASSERT_EQ(storage_->status().cache.fills, 3u);  // the whole shard, in chunks of a MiB
  sources_["main"]->hang(true);
  const auto begin = Clock::now();
  for (uint64_t step = 0; step < 200; ++step) EXPECT_EQ(read(step * 10000, 10000), "") << step;
  EXPECT_LT(Clock::now() - begin, 60s);
  EXPECT_TRUE(becomes("main", SourceState::kHung));
  EXPECT_GE(status("main").cached, 190u);
  // A damaged chunk is not believed; the source being gone, its reader is told.
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "cache"))
    if (entry.path().filename() == "1") std::filesystem::resize_file(entry.path(), 5000);
  EXPECT_NE(read(1 << 20), "");
  EXPECT_EQ(read(0), "");
  sources_["main"]->hang(false);
  EXPECT_EQ(read(1 << 20), "");
  EXPECT_EQ(storage_->status().cache.damaged, 1u);
}

// Long before it is known to be slow: nothing that the cache has waits for a late read's end. The limit of a read is a minute here.
TEST_F(StorageTest, NoWaitingForTheFirstLateReadOfACachedStretch) {
  options_.cache_path = folder_ / "cache";
  options_.cache_bytes = 64 << 20;
  options_.read_deadline_s = options_.policy.late_s = 60;
  open();
  follow();
  storage_->at_step(0);
  for (int i = 0; i < 3000 && storage_->status().cache.fills < 3; ++i) std::this_thread::sleep_for(10ms);
  ASSERT_EQ(storage_->status().cache.fills, 3u);
  sources_["main"]->hang(true);
  for (uint64_t step = 0; step < 100; ++step) EXPECT_EQ(read(step * 10000, 10000), "") << step;
  EXPECT_EQ(status("main").given_up, 0u);
  EXPECT_GE(status("main").elsewhere + status("main").cached, 100u);
  EXPECT_EQ(status("main").state, SourceState::kHealthy);
}

// A healthy source whose reads take milliseconds each: with no cache they are made ahead, into memory.
TEST_F(StorageTest, AFarOneIsReadAhead) {
  options_.latency_limit_s = options_.read_deadline_s = 60;  // nothing here counts as slow
  open();
  follow();
  sources_["main"]->delay(10ms);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(read(i * 10000, 10000), "");
  storage_->at_step(100);
  for (int i = 0; i < 3000 && storage_->status().read_ahead < 50; ++i) {
    EXPECT_EQ(read(3000000 + i, 1000), "");  // of no step; keeps the source measured
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_GE(storage_->status().read_ahead, 50u);
  for (uint64_t step = 100; step < 140; ++step) {
    storage_->at_step(step);
    EXPECT_EQ(read(step * 10000, 10000), "");
  }
  EXPECT_GE(status("main").cached, 30u);
  EXPECT_EQ(status("main").missed, 0u);
  EXPECT_EQ(status("main").state, SourceState::kHealthy);
}

TEST_F(StorageTest, AFullCacheNeverStopsAnything) {
  options_.cache_path = folder_ / "file";
  test::write_text(folder_ / "file", "no folder");
  options_.cache_bytes = 64 << 20;
  open();
  follow();
  sources_["main"]->delay(20ms);
  for (uint64_t step = 0; step < 30; ++step) {
    storage_->at_step(step);
    EXPECT_EQ(read(step * 10000, 10000), "");
  }
  EXPECT_NE(storage_->status().cache_trouble, "");
  bool told = false;
  for (int i = 0; i < 500 && !told; ++i) {
    for (const StorageEvent& event : storage_->take_events()) told = told || event.kind == "cache_degraded";
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_TRUE(told);
}

// A loader's end leaves the data set to whoever asks it last; that may be the storage's own thread.
TEST_F(StorageTest, EndsOnItsOwnThread) {
  options_.cache_path = (folder_ / "cache").string();
  options_.cache_bytes = 4 << 20;
  auto storage = std::make_shared<Storage>(options_);
  storage->add_shard({"main", "a.tar", content_.size(), fingerprint(), 77});
  std::promise<void> alone, ended;
  auto held = std::make_shared<std::shared_ptr<Storage>>(storage);
  storage->follow([held, &alone, &ended, once = std::make_shared<bool>(false)](uint64_t) {
    if (std::exchange(*once, true)) return std::vector<ShardRange>();
    alone.get_future().wait();
    held->reset();
    ended.set_value();
    return std::vector<ShardRange>();
  });
  storage.reset();
  alone.set_value();
  ended.get_future().wait();
}

TEST_F(StorageTest, ClosingWithAReadThatHangs) {
  open();
  sources_["main"]->hang(true);
  EXPECT_NE(read(0), "");
  storage_.reset();
  sources_["main"]->hang(false);
}

TEST(StorageOptions, MistakesAreTold) {
  StorageOptions options;
  options.sources["vidoe"] = {"/a"};
  try {
    check_storage_options(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean video"), std::string::npos);
  }
  options.sources = {{"video", {}}};
  EXPECT_THROW(check_storage_options(options), Error);
  options.sources.clear();
  options.cache_path = "/tmp/x";
  EXPECT_THROW(check_storage_options(options), Error);
  options.cache_bytes = 1 << 30;
  check_storage_options(options);
}

}  // namespace
}  // namespace mso
