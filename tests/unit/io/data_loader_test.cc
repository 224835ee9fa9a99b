// The loader: the same batches for any number of threads, exactly once for any number of ranks, resumable at any step.
#include "io/data_loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <map>
#include <set>
#include <thread>

#include "base/error.h"
#include "io/storage.h"
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
    o.micro_batch.positions = 60;
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

TEST(LoaderStorage, IsToldWhatComes) {
  test::TemporaryFolder folder;
  constexpr int kShards = 40;
  for (int shard = 0; shard < kShards; ++shard)
    test::write_text(folder / ("shard-0000" + std::to_string(10 + shard) + ".tar"), TarBytes().file("a.txt", "caption " + std::to_string(shard)).end());
  StorageOptions storage;
  storage.cache_path = (folder / "cache").string();
  storage.cache_bytes = uint64_t{64} << 20;
  const auto assembler = test::make_assembler(Dataset::open({folder.string()}, std::make_shared<Storage>(storage)));
  DataLoaderOptions o;
  o.threads = 1;
  o.memory_bytes = 1;  // the due step alone is decoded
  DataLoader loader(assembler, o);
  loader.start(0);
  // Without a step taken, the cache holds what the next steps need.
  auto filled = [&] { return assembler->dataset().storage().status().cache.fills; };
  for (int i = 0; i < 2000 && filled() < kShards; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(filled(), uint64_t{kShards});
}

TEST_F(LoaderTest, ThreadsAndPrefetchChangeNothing) {
  std::vector<std::string> first;
  for (int threads : {1, 2, 5}) {
    for (uint64_t depth : {0u, 1u, 7u}) {
      DataLoaderOptions o = options(1, 2, threads);
      for (uint64_t& d : o.prefetch_depth) d = depth;
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
      std::vector<uint8_t> agreed(8, 0);
      for (auto& loader : loaders) {
        const std::vector<uint8_t> codes = loader->open();
        ASSERT_EQ(codes.size(), 8u);
        for (size_t i = 0; i < 8; ++i) agreed[i] |= codes[i];
      }
      std::vector<BadSample> own;
      std::multiset<uint64_t> ids;
      for (auto& loader : loaders) {
        ASSERT_FALSE(loader->decide(agreed));
        ASSERT_EQ(loader->settle().batch.ids, loaders[0]->global_batch(step).ids);
        const RankBatch mine = loader->take();
        ASSERT_EQ(mine.step, step);
        own.insert(own.end(), mine.bad_samples.begin(), mine.bad_samples.end());
        uint64_t count = 0;
        for (const MicroBatch& m : mine.micro_batches) {
          ids.insert(m.sample_ids.begin(), m.sample_ids.end());
          count += m.sample_ids.size();
          ASSERT_TRUE(m.size() <= 60 || m.samples() == 1);
        }
        ASSERT_EQ(count, mine.samples);
      }
      const SettledStep& settled = loaders.back()->settled();
      const std::vector<uint64_t> expected = settled.trained_ids();
      ASSERT_EQ(ids, std::multiset<uint64_t>(expected.begin(), expected.end()));
      for (size_t i = 0; i < 8; ++i)
        if (settled.fates[i] == 0) trained.push_back({settled.batch.positions[i], settled.batch.ids[i]});
      for (LedgerEntry& entry : loaders[0]->ledger_entries(settled, own)) {
        EXPECT_FALSE(entry.detail.empty());
        ledger.push_back(std::move(entry));
      }
      if (ranks == 1) {
        global.push_back(expected);
        digests.push_back(sample_digest(expected));
      } else {
        ASSERT_EQ(expected, global[step]);
        ASSERT_EQ(sample_digest(expected), digests[step]);
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
  for (int step = 0; step < 40; ++step) {  // beyond what is read ahead below
    const RankBatch batch = first.next();
    batches.push_back(text_of(batch));
    for (auto& e : first.ledger_entries(first.settled(), batch.bad_samples))
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
  EXPECT_EQ(loader.settled().fates, (std::vector<uint8_t>(2, reason_code("decode_error"))));
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

// Four kinds of samples; those of `slow` wait at a gate.
class MixedLoaderTest : public ::testing::Test {
 protected:
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    std::set<std::string> closed;  // names of files
    void wait(const std::string& name) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return closed.count(name) == 0; });
    }
    void set(std::set<std::string> names) {
      std::lock_guard lock(mutex);
      closed = std::move(names);
      changed.notify_all();
    }
  };

  MixedLoaderTest() {
    TarBytes tar;
    for (int i = 0; i < 60; ++i) {
      const std::string key = "k" + std::to_string(i);
      if (i % 6 == 0) tar.file(key + ".mp4", "video " + key);
      else if (i % 6 == 1) tar.file(key + ".ogg", i == 13 ? "broken" : "sound " + key);
      else if (i % 6 < 4) tar.file(key + ".png", fake_picture(10, 10, i));
      tar.file(key + ".txt", "caption " + key);
    }
    test::write_text(folder_ / "s.tar", tar.end());
    data_ = Dataset::open({folder_.string()});
    tokenizer_ = load_tokenizer("bytes");
  }
  ~MixedLoaderTest() override { gate_->set({}); }

  std::shared_ptr<const SampleAssembler> assembler() const {
    PerModality<MediaDecoder> others;
    for (Modality m : {Modality::kVideo, Modality::kAudio}) {
      MediaDecoder& decoder = others[m];
      decoder.token = m == Modality::kVideo ? 260 : 261;
      decoder.most_tokens = 3;
      decoder.most_bytes = 64;
      decoder.decode = [gate = gate_, m](std::span<const std::byte> file, const std::string&, BufferPool*) {
        const std::string text(reinterpret_cast<const char*>(file.data()), file.size());
        gate->wait(text);
        if (text == "broken") throw Error("damaged", "stub");
        HostTensor tensor = HostTensor::make(DType::kF32, {static_cast<int64_t>(text.size() % 3 + 1), 2});
        for (int64_t i = 0; i < tensor.count(); ++i) tensor.data<float>()[i] = static_cast<float>(text.back());
        return one_tensor(name_of(m), std::move(tensor), 3);
      };
    }
    AssemblerOptions options;
    options.text_template = "<video><audio><image>{caption}";
    options.image_token = *tokenizer_->token_id("<image>");
    options.bytes_per_token = 1;
    return std::make_shared<SampleAssembler>(data_, tokenizer_, test::stub_decoder(), options, others);
  }
  DataLoaderOptions options(int rank = 0, int ranks = 1) const {
    DataLoaderOptions o;
    o.seed = 5;
    o.batch_samples = 6;
    o.rank = rank;
    o.ranks = ranks;
    o.threads = 2;
    o.timeout_s = 20;
    o.recipe[Modality::kText] = 2, o.recipe[Modality::kImage] = 2, o.recipe[Modality::kVideo] = 1, o.recipe[Modality::kAudio] = 1;
    return o;
  }
  std::string video_of(uint64_t id) const { return "video " + std::string(data_->sample(id).key); }

  test::TemporaryFolder folder_;
  std::shared_ptr<const Dataset> data_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
};

TEST_F(MixedLoaderTest, EveryBatchFollowsTheRecipeAndEveryModalityHasItsEpochs) {
  const auto made = assembler();
  DataLoader loader(made, options());
  loader.start(0);
  PerModality<std::map<uint64_t, int>> seen;
  for (int step = 0; step < 20; ++step) {
    const RankBatch batch = loader.next();
    PerModality<int> counts;
    const SettledStep& settled = loader.settled();
    for (size_t i = 0; i < settled.batch.ids.size(); ++i) {
      const Modality m = made->modality(settled.batch.ids[i]);
      ++counts[m];
      ++seen[m][settled.batch.ids[i]];
    }
    EXPECT_EQ(counts[Modality::kText], 2);
    EXPECT_EQ(counts[Modality::kImage], 2);
    EXPECT_EQ(counts[Modality::kVideo], 1);
    EXPECT_EQ(counts[Modality::kAudio], 1);
    for (const MicroBatch& m : batch.micro_batches) {
      EXPECT_EQ(m.media_positions.count("text"), 0u);
      if (m.media.count("video")) {
        EXPECT_EQ(m.media_positions.at("video").size() % 3, 0u);
        for (int64_t at : m.media_positions.at("video")) EXPECT_EQ(m.tokens[static_cast<size_t>(at)], 260);
      }
    }
  }
  EXPECT_EQ(seen[Modality::kText].size(), 20u);  // two epochs of 20 texts and of 20 pictures, two of 10 videos and sounds
  EXPECT_EQ(seen[Modality::kVideo].size(), 10u);
  for (const auto& of : seen)
    for (auto [id, times] : of) EXPECT_EQ(times, 2) << data_->describe(id);
}

TEST_F(MixedLoaderTest, ALateVideoComesLaterAndAResumedRunDefersItAgain) {
  DataLoaderOptions o = options();
  o.defer_after_s = 0.1;
  const auto made = assembler();
  std::vector<std::vector<uint64_t>> trained;
  std::vector<LedgerEntry> ledger;
  std::vector<std::string> cursors;
  const auto id_of_video = [&](const DataLoader& loader, uint64_t step) {
    for (uint64_t id : loader.global_batch(step).ids)
      if (made->modality(id) == Modality::kVideo) return id;
    return uint64_t{0};
  };
  uint64_t late = 0;
  {
    DataLoader loader(made, o);
    late = id_of_video(loader, 2);
    gate_->set({video_of(late)});
    loader.start(0);
    for (int step = 0; step < 9; ++step) {
      if (step == 5) gate_->set({});
      cursors.push_back(loader.cursor());
      std::vector<uint8_t> codes = loader.open();
      if (step >= 5)  // the gate is open: wait until the late one is there, so that this test does not hang on timing
        for (int i = 0; i < 200 && std::ranges::find(codes, kLate) != codes.end(); ++i) {
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
          codes = loader.open();
        }
      loader.settle(loader.decide(codes) ? loader.await_late() : std::vector<uint8_t>());
      const SettledStep settled = loader.settled();
      const RankBatch batch = loader.take();
      trained.push_back(settled.trained_ids());
      for (LedgerEntry& e : loader.ledger_entries(settled, batch.bad_samples)) ledger.push_back(std::move(e));
    }
  }
  std::multiset<uint64_t> deferred_steps;
  for (const LedgerEntry& e : ledger)
    if (e.event == LedgerEvent::kDeferred && e.id == late) deferred_steps.insert(e.step);  // on a busy machine others too
  EXPECT_EQ(deferred_steps, (std::multiset<uint64_t>{2, 3, 4}));
  EXPECT_NE(cursors[3].find("deferred"), std::string::npos);

  // Nothing is slow now; the ledger alone leads to the same batches, from any step, with or without the cursor.
  for (uint64_t from = 0; from < 9; ++from)
    for (bool with_cursor : {true, false}) {
      DataLoader again(made, o);
      LoaderPlace place;
      place.step = from;
      if (with_cursor) place.order = DataLoader::order_of_cursor(cursors[from]);
      place.known = ledger;
      place.replayed_until = 9;
      again.start(std::move(place));
      for (uint64_t step = from; step < 9; ++step) {
        again.next();
        EXPECT_EQ(again.settled().trained_ids(), trained[step]) << "step " << step << " from " << from;
      }
    }
  // A ledger of other data is refused.
  DataLoaderOptions other = o;
  other.seed = 6;
  DataLoader wrong(made, other);
  LoaderPlace place;
  place.known = ledger;
  EXPECT_THROW(
      {
        wrong.start(std::move(place));
        for (int step = 0; step < 9; ++step) wrong.next();
      },
      Error);
}

TEST_F(MixedLoaderTest, ABrokenSampleIsReplacedAlikeOnAllRanksAndOnResume) {
  DataLoaderOptions o = options(0, 2);
  const auto made = assembler();
  const auto find = [&](uint64_t broken) {  // the first is broken as well, the second good
    return std::vector<StandIn>{{13, 0.99}, {(broken + 6) % 60, 0.95}};
  };
  o.find_stand_ins = find;
  std::vector<LedgerEntry> ledger;
  std::vector<std::vector<uint64_t>> trained;
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<std::unique_ptr<DataLoader>> loaders;
    for (o.rank = 0; o.rank < 2; ++o.rank) {
      DataLoaderOptions mine = o;
      if (pass == 1) mine.find_stand_ins = nullptr;  // the ledger says it
      loaders.push_back(std::make_unique<DataLoader>(made, mine));
      LoaderPlace place;
      place.known = ledger;
      loaders.back()->start(std::move(place));
    }
    for (int step = 0; step < 12; ++step) {
      std::vector<uint8_t> agreed = loaders[0]->open(), other = loaders[1]->open();
      for (size_t i = 0; i < agreed.size(); ++i) agreed[i] |= other[i];
      std::multiset<uint64_t> ids;
      std::vector<BadSample> bad;
      for (auto& loader : loaders) {
        EXPECT_FALSE(loader->decide(agreed));
        loader->settle();
        const RankBatch batch = loader->take();
        bad.insert(bad.end(), batch.bad_samples.begin(), batch.bad_samples.end());
        for (const MicroBatch& m : batch.micro_batches) ids.insert(m.sample_ids.begin(), m.sample_ids.end());
      }
      const std::vector<uint64_t> expected = loaders[0]->settled().trained_ids();
      EXPECT_EQ(expected, loaders[1]->settled().trained_ids());
      EXPECT_EQ(ids, std::multiset<uint64_t>(expected.begin(), expected.end()));
      EXPECT_EQ(expected.size(), 6u);
      const auto entries = loaders[0]->ledger_entries(loaders[0]->settled(), bad);
      if (pass == 0) {
        trained.push_back(expected);
        ledger.insert(ledger.end(), entries.begin(), entries.end());
      } else {
        EXPECT_EQ(expected, trained[static_cast<size_t>(step)]);
      }
    }
  }
  ASSERT_GE(ledger.size(), 1u);
  for (const LedgerEntry& e : ledger) {
    EXPECT_EQ(e.event, LedgerEvent::kReplaced);
    EXPECT_EQ(e.id, 13u);
    EXPECT_EQ(e.by_id, 19u);
    EXPECT_EQ(e.by_key, "k19");
    EXPECT_EQ(e.similarity, 0.95);
    EXPECT_EQ(e.reason, "decode_error");
  }
}

TEST_F(LoaderTest, CursorNoticesChanges) {
  DataLoader loader(assembler_, options());
  loader.start(17);
  const std::string cursor = loader.cursor();
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
