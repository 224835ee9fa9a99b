// The loader: the same batches for any number of threads, exactly once for any number of ranks, resumable at any step.
#include "io/data_loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>

#include "base/error.h"
#include "tests/unit/io/shard_fixture.h"

namespace mso {
namespace {

using test::fake_picture;
using test::TarBytes;

// 37 samples in 3 shards: pictures, texts, and 6 bad ones.
class LoaderTest : public ::testing::Test {
 protected:
  LoaderTest() {
    for (int shard = 0; shard < 3; ++shard) {
      TarBytes tar;
      for (int i = 0; i < (shard == 2 ? 11 : 13); ++i) {
        const std::string key = "s" + std::to_string(shard) + "-" + std::to_string(i);
        if (i % 4 == 3) {
          tar.file(key + ".txt", "text only " + std::string(static_cast<size_t>(i), 'x'));
          continue;
        }
        tar.file(key + ".png", i % 7 == 6 ? "broken" : fake_picture(10, 10, shard * 100 + i));
        if (i != 8) tar.file(key + ".txt", "caption " + key);
      }
      test::write_text(folder_ / ("shard-00000" + std::to_string(shard) + ".tar"), tar.end());
    }
    assembler_ = test::make_assembler(Dataset::open({folder_.string()}));
  }
  uint64_t n() const { return assembler_->dataset().size(); }

  DataLoaderOptions options(int rank = 0, int ranks = 1, int threads = 2, uint64_t batch = 8) const {
    DataLoaderOptions o;
    o.seed = 3;
    o.batch_samples = batch;
    o.rank = rank;
    o.ranks = ranks;
    o.threads = threads;
    o.micro_batch_tokens = 60;
    o.timeout_s = 20;
    return o;
  }

  // Everything a batch holds, as text.
  static std::string text_of(const RankBatch& batch) {
    std::string text = std::to_string(batch.step) + ":" + std::to_string(batch.samples);
    auto add = [&](const auto& values) {
      for (auto v : values) text += " " + std::to_string(v);
      text += ";";
    };
    for (const MicroBatch& m : batch.micro_batches) {
      add(m.tokens), add(m.labels), add(m.positions), add(m.sample_starts), add(m.sample_ids);
      for (const auto& [name, tensor] : m.media)
        text += name + std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
      for (const auto& [name, at] : m.media_positions) add(at);
    }
    for (const BadSample& bad : batch.bad_samples)
      text += "bad " + std::to_string(bad.id) + "@" + std::to_string(bad.index) + bad.reason + bad.detail;
    return text;
  }

  test::TemporaryFolder folder_;
  std::shared_ptr<const SampleAssembler> assembler_;
};

TEST_F(LoaderTest, ThreadsAndPrefetchChangeNothing) {
  std::vector<std::string> first;
  for (int threads : {1, 2, 5}) {
    for (uint64_t depth : {0u, 1u, 7u}) {
      DataLoaderOptions o = options(1, 2, threads);
      o.prefetch_steps = depth;
      o.memory_bytes = depth == 7 ? 1 : 1 << 20;  // the due step is decoded even where the memory allows nothing
      DataLoader loader(assembler_, o);
      loader.start(0);
      std::vector<std::string> batches;
      for (int step = 0; step < 12; ++step) batches.push_back(text_of(loader.next()));
      if (first.empty()) first = batches;
      EXPECT_EQ(batches, first) << threads << " " << depth;
    }
  }
}

TEST_F(LoaderTest, ExactlyOnceOverAnyNumberOfRanks) {
  std::vector<std::vector<uint64_t>> global;  // trained ids by step, of one rank
  std::vector<std::string> digests;
  const uint64_t steps = 2 * n();  // 8·37·2 / 37 = 16 epochs
  for (int ranks : {1, 2, 3, 4, 8}) {
    std::vector<std::unique_ptr<DataLoader>> loaders;
    for (int r = 0; r < ranks; ++r) {
      loaders.push_back(std::make_unique<DataLoader>(assembler_, options(r, ranks, 1)));
      loaders.back()->start(0);
    }
    std::vector<TrainedSample> trained;
    std::vector<LedgerEntry> ledger;
    for (uint64_t step = 0; step < steps; ++step) {
      const GlobalBatch batch = loaders[0]->global_batch(step);
      std::vector<uint8_t> agreed(8, 0);
      std::vector<BadSample> own;
      std::multiset<uint64_t> ids;
      std::vector<uint64_t> indices;
      for (auto& loader : loaders) {
        const RankBatch mine = loader->next();
        ASSERT_EQ(mine.step, step);
        const auto codes = loader->bad_codes(mine);
        for (size_t i = 0; i < 8; ++i) agreed[i] = std::max(agreed[i], codes[i]);
        own.insert(own.end(), mine.bad_samples.begin(), mine.bad_samples.end());
        uint64_t count = 0;
        for (const MicroBatch& m : mine.micro_batches) {
          ids.insert(m.sample_ids.begin(), m.sample_ids.end());
          count += m.sample_ids.size();
          ASSERT_TRUE(m.size() <= 60 || m.samples() == 1);
        }
        ASSERT_EQ(count, mine.samples);
      }
      std::multiset<uint64_t> expected;
      for (size_t i = 0; i < 8; ++i) {
        if (agreed[i]) continue;
        expected.insert(batch.ids[i]);
        trained.push_back({batch.first_position + i, batch.ids[i]});
      }
      ASSERT_EQ(ids, expected);
      for (LedgerEntry& entry : loaders[0]->ledger_entries(batch, agreed, own)) {
        EXPECT_FALSE(entry.detail.empty());
        ledger.push_back(std::move(entry));
      }
      std::vector<bool> skipped(agreed.begin(), agreed.end());
      if (ranks == 1) {
        global.emplace_back(ids.begin(), ids.end());
        digests.push_back(sample_digest(batch, skipped));
      } else {
        ASSERT_EQ(std::vector<uint64_t>(ids.begin(), ids.end()), global[step]);
        ASSERT_EQ(sample_digest(batch, skipped), digests[step]);
      }
    }
    EXPECT_EQ(audit_exactly_once(n(), steps * 8, trained, ledger), std::vector<std::string>{});
    EXPECT_EQ(ledger.size(), steps * 8 / n() * 6);  // 16 epochs of 6 bad samples
  }
}

TEST_F(LoaderTest, ResumesAtAnyStep) {
  DataLoader whole(assembler_, options(0, 2));
  whole.start(0);
  std::vector<std::string> batches;
  for (int step = 0; step < 10; ++step) batches.push_back(text_of(whole.next()));
  DataLoader resumed(assembler_, options(0, 2));
  for (uint64_t from = 0; from < 10; ++from) {
    resumed.start(from);  // also in the middle of work on other steps
    for (uint64_t step = from; step < std::min<uint64_t>(from + 3, 10); ++step)
      EXPECT_EQ(text_of(resumed.next()), batches[step]);
  }
}

TEST_F(LoaderTest, KnownBadSamplesAreNotReadAgain) {
  DataLoader first(assembler_, options());
  first.start(0);
  std::vector<std::string> batches;
  std::vector<LedgerEntry> ledger;
  for (int step = 0; step < 20; ++step) {  // beyond what is read ahead below
    const RankBatch batch = first.next();
    batches.push_back(text_of(batch));
    for (auto& e : first.ledger_entries(first.global_batch(batch.step), first.bad_codes(batch), batch.bad_samples))
      ledger.push_back(e);
  }
  ASSERT_GT(ledger.size(), 5u);
  // The pictures would be good now, but the ledger decides.
  PictureDecoder decoder = test::stub_decoder();
  auto decode = decoder.decode;
  decoder.decode = [decode](std::span<const std::byte> file, float* pixels) {
    std::string text(reinterpret_cast<const char*>(file.data()), file.size());
    EXPECT_EQ(text.find("broken"), std::string::npos);
    decode(file, pixels);
  };
  DataLoader again(test::make_assembler(Dataset::open({folder_.string()}), {}, decoder), options());
  again.start(4, ledger);
  for (int step = 4; step < 10; ++step) EXPECT_EQ(text_of(again.next()), batches[step]);

  std::vector<LedgerEntry> foreign = ledger;
  for (LedgerEntry& entry : foreign) entry.id = (entry.id + 1) % n();
  again.start(0, foreign);
  EXPECT_THROW(again.next(), Error);
}

TEST_F(LoaderTest, ARankWithoutSamplesGetsEmptyBatches) {
  DataLoaderOptions o = options(3, 4, 2, 2);
  DataLoader loader(assembler_, o);
  loader.start(0);
  for (int step = 0; step < 20; ++step) {
    const RankBatch batch = loader.next();
    EXPECT_TRUE(batch.micro_batches.empty());
    EXPECT_TRUE(batch.bad_samples.empty());
    EXPECT_EQ(batch.samples, 0u);
  }
}

TEST_F(LoaderTest, AllSamplesBadIsFine) {
  test::TemporaryFolder folder;
  test::write_text(folder / "s.tar", TarBytes().file("a.png", "broken").file("a.txt", "x").end());
  DataLoader loader(test::make_assembler(Dataset::open({folder.string()})), options(0, 1, 1, 2));
  loader.start(0);
  const RankBatch batch = loader.next();
  EXPECT_TRUE(batch.micro_batches.empty());
  ASSERT_EQ(batch.bad_samples.size(), 2u);
  EXPECT_EQ(batch.bad_samples[1].index, 1u);
  EXPECT_EQ(loader.bad_codes(batch), (std::vector<uint8_t>(2, reason_code("decode_error"))));
}

TEST_F(LoaderTest, OneShardServesEightRanks) {
  std::multiset<uint64_t> seen;
  const auto one = test::make_assembler(Dataset::open({folder_ / "shard-000000.tar"}));
  for (int rank = 0; rank < 8; ++rank) {
    DataLoader loader(one, options(rank, 8, 1, 13));  // N = all 13 samples: an epoch is one step
    loader.start(0);
    const RankBatch batch = loader.next();
    for (const MicroBatch& m : batch.micro_batches) seen.insert(m.sample_ids.begin(), m.sample_ids.end());
    for (const BadSample& bad : batch.bad_samples) seen.insert(bad.id);
  }
  EXPECT_EQ(seen.size(), 13u);
  for (uint64_t id = 0; id < 13; ++id) EXPECT_EQ(seen.count(id), 1u);
}

TEST_F(LoaderTest, HeldOutSamplesComeOnceInOrder) {
  for (int ranks : {1, 2, 3}) {
    std::multiset<uint64_t> seen;
    for (int rank = 0; rank < ranks; ++rank) {
      DataLoaderOptions o = options(rank, ranks);
      o.sequential = true;
      o.max_samples = 20;
      DataLoader loader(assembler_, o);
      EXPECT_EQ(loader.steps_per_epoch(), 3u);
      for (int round = 0; round < 2; ++round) {
        loader.start(0);
        for (uint64_t step = 0; step < loader.steps_per_epoch(); ++step) {
          const RankBatch batch = loader.next();
          for (const MicroBatch& m : batch.micro_batches) seen.insert(m.sample_ids.begin(), m.sample_ids.end());
          for (const BadSample& bad : batch.bad_samples) seen.insert(bad.id);
        }
        EXPECT_TRUE(loader.next().micro_batches.empty());
      }
    }
    ASSERT_EQ(seen.size(), 40u);
    for (uint64_t id = 0; id < 20; ++id) EXPECT_EQ(seen.count(id), 2u);
  }
}

TEST_F(LoaderTest, NamesTheSampleItWaitsFor) {
  struct Gate {
    std::mutex mutex;
    std::condition_variable open;
    bool is_open = false;
  };
  auto gate = std::make_shared<Gate>();
  PictureDecoder decoder = test::stub_decoder();
  decoder.decode = [gate](std::span<const std::byte>, float*) {
    std::unique_lock lock(gate->mutex);
    gate->open.wait(lock, [&] { return gate->is_open; });
  };
  DataLoaderOptions o = options();
  o.timeout_s = 0.05;
  DataLoader loader(test::make_assembler(Dataset::open({folder_.string()}), {}, decoder), o);
  loader.start(0);
  try {
    loader.next();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("step 0, waiting for shard-0"), std::string::npos) << error.what();
  }
  std::lock_guard lock(gate->mutex);
  gate->is_open = true;
  gate->open.notify_all();
}

TEST_F(LoaderTest, CursorNoticesChanges) {
  DataLoader loader(assembler_, options());
  const std::string cursor = loader.cursor(17);
  EXPECT_EQ(DataLoader::step_of_cursor(cursor), 17u);
  EXPECT_TRUE(loader.differences(cursor).empty());
  DataLoaderOptions o = options(0, 4, 3, 16);  // ranks and threads may change, N may not
  o.seed = 4;
  EXPECT_EQ(DataLoader(assembler_, o).differences(cursor).size(), 2u);
  test::write_text(folder_ / "shard-000009.tar", TarBytes().file("a.txt", "one more").end());
  DataLoader more(test::make_assembler(Dataset::open({folder_.string()})), options());
  EXPECT_EQ(more.differences(cursor).size(), 2u);
  EXPECT_THROW(DataLoader::step_of_cursor("{"), Error);
}

TEST_F(LoaderTest, RefusesNonsense) {
  EXPECT_THROW(DataLoader(assembler_, options(0, 1, 1, 0)), Error);
  EXPECT_THROW(DataLoader(assembler_, options(2, 2)), Error);
  EXPECT_THROW(DataLoader(assembler_, options(0, 0)), Error);
  DataLoader loader(assembler_, options());
  EXPECT_THROW(loader.next(), Error);
}

TEST(Dataset, SplitsSortsAndNames) {
  test::TemporaryFolder folder;
  test::write_text(folder / "b.tar", TarBytes().file("two.txt", "x").file("three.txt", "x").end());
  test::write_text(folder / "a.tar", TarBytes().file("one.txt", "x").end());
  test::write_text(folder / "c.tar", TarBytes().end());
  test::write_text(folder / "d.tar", TarBytes().file("four.txt", "x").end());
  test::write_text(folder / ".hidden.tar", "");
  const auto all = Dataset::open({folder.string()});
  EXPECT_EQ(all->size(), 4u);
  EXPECT_EQ(all->sample(0).key, "one");
  EXPECT_EQ(all->sample(3).key, "four");
  EXPECT_EQ(all->locate(3).shard, 3u);
  EXPECT_EQ(all->describe(2), "b.tar: three (sample 2)");
  EXPECT_THROW(all->locate(4), Error);
  const auto [train, held_out] = Dataset::split(all, 2);
  EXPECT_EQ(train->size(), 3u);
  EXPECT_EQ(held_out->size(), 1u);
  EXPECT_EQ(held_out->sample(0).key, "four");
  EXPECT_NE(train->fingerprint(), all->fingerprint());
  EXPECT_THROW(Dataset::split(all, 0), Error);
  EXPECT_THROW(Dataset::split(all, 4), Error);
  EXPECT_EQ(Dataset::open({folder / "d.tar", folder / "a.tar"})->sample(0).key, "four");
  EXPECT_THROW(Dataset::open({folder / "none"}), Error);
  EXPECT_THROW(Dataset::open({folder / "c.tar"}), Error);
  test::TemporaryFolder empty;
  EXPECT_THROW(Dataset::open({empty.string()}), Error);
  EXPECT_THROW(Dataset::open({}), Error);
}

}  // namespace
}  // namespace mso
