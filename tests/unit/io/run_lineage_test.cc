// What a run was trained on, by source: from order, ledger and index alone the same as the steps themselves tell.
#include "io/run_lineage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "io/data_loader.h"
#include "tests/unit/io/shard_fixture.h"

namespace mso {
namespace {

using test::fake_picture;
using test::TarBytes;

// 23 samples: pictures of two sources, of which two are broken, and texts of one or of none.
class RunLineageTest : public ::testing::Test {
 protected:
  RunLineageTest() {
    TarBytes tar;
    for (int i = 0; i < 23; ++i) {
      const std::string key = (i % 2 ? "a/" : "b/") + std::to_string(i);
      tar.file(key + ".txt", "caption");
      if (i % 3 == 0) continue;
      tar.file(key + ".png", i == 4 || i == 11 ? "broken" : fake_picture(10, 10, i));
      tar.file(key + ".json", std::string(R"({"image_source": ")") + (i % 5 ? "camera" : "scanner") + (i % 7 ? "\"}" : R"(", "text_source": "book"})"));
    }
    test::write_text(folder_ / "s.tar", tar.end());
    assembler_ = test::make_assembler(Dataset::open({folder_.string()}));
  }

  // Runs steps; in some of them the first samples count as late. Adds to the ledger and to what was trained on.
  void train(const DataLoaderOptions& o, uint64_t steps, bool late) {
    DataLoader loader(assembler_, o);
    loader.start(0);
    ledger_.clear();
    trained_.clear();
    for (uint64_t step = 0; step < steps; ++step) {
      std::vector<uint8_t> codes = loader.open();
      // Until those that may stand in are there, so that what is deferred does not hang on timing.
      for (int i = 0; i < 2000 && std::ranges::find(codes, kLate) != codes.end(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        codes = loader.open();
      }
      if (late && (step % 3 == 1 || step + 1 == steps)) codes[0] = codes[2] = kLate;
      ASSERT_FALSE(loader.decide(codes));
      const SettledStep settled = loader.settle({});
      const RankBatch batch = loader.take();
      for (uint64_t id : settled.trained_ids()) trained_.push_back(id);
      for (LedgerEntry& e : loader.ledger_entries(settled, batch.bad_samples)) ledger_.push_back(std::move(e));
    }
  }
  uint64_t trained_of(const std::string& source) const {
    return static_cast<uint64_t>(std::ranges::count_if(trained_, [&](uint64_t id) {
      const ShardSample sample = assembler_->dataset().sample(id);
      return sample.picture() && sample.lineage.image_source == source;
    }));
  }
  uint64_t events(LedgerEvent event) const {
    return static_cast<uint64_t>(std::ranges::count_if(ledger_, [&](const LedgerEntry& e) { return e.event == event; }));
  }
  DataLoaderOptions options() const {
    DataLoaderOptions o;
    o.seed = 5;
    o.batch_samples = 4;
    o.threads = 1;
    o.defer_after_s = 20;  // stand-ins are looked for; nothing is late but what the test says
    for (uint64_t& depth : o.prefetch_depth) depth = 64;
    return o;
  }

  test::TemporaryFolder folder_;
  std::shared_ptr<const SampleAssembler> assembler_;
  std::vector<LedgerEntry> ledger_;
  std::vector<uint64_t> trained_;
};

TEST_F(RunLineageTest, EqualsWhatTheStepsTell) {
  const Dataset& data = assembler_->dataset();
  const SampleOrder order = SampleOrder::shuffled(data.size(), 5);
  for (const bool late : {false, true})
    for (const bool replace : {false, true})
      for (uint64_t steps = 1; steps <= 14; ++steps) {
        SCOPED_TRACE(std::to_string(steps) + " steps, late " + std::to_string(late) + ", replace " + std::to_string(replace));
        DataLoaderOptions o = options();
        if (replace) o.find_stand_ins = [](uint64_t) { return std::vector<StandIn>{{1, 0.95}}; };
        train(o, steps, late);
        const RunLineage lineage = lineage_of_run(data, order, steps, 4, ledger_);
        EXPECT_EQ(lineage.all.trained, trained_.size());
        EXPECT_EQ(lineage.all.trained + lineage.all.left_out, 4 * steps);
        EXPECT_EQ(lineage.all.replaced, events(LedgerEvent::kReplaced));
        EXPECT_EQ(lineage.all.stood_in, lineage.all.replaced);
        EXPECT_EQ(lineage.all.left_out, events(LedgerEvent::kSkipped));
        EXPECT_EQ(lineage.all.deferred, events(LedgerEvent::kDeferred));
        for (const char* source : {"camera", "scanner"})
          EXPECT_EQ(lineage.sources.at("image").at(source).trained, trained_of(source)) << source;
        const auto& categories = lineage.categories;
        EXPECT_EQ(categories.at("a").trained + categories.at("b").trained, trained_.size());
        EXPECT_EQ(lineage.waiting > 0, late);
      }
  // In whole epochs every sample comes equally often.
  train(options(), 23, false);
  const RunLineage lineage = lineage_of_run(data, order, 23, 4, ledger_);
  EXPECT_EQ(lineage.sources.at("image").at("scanner").trained, 4 * 3u);  // 5, 10, 20
  EXPECT_EQ(lineage.sources.at("image").at("camera").trained, 4 * 10u);  // of 12 two are broken
  EXPECT_EQ(lineage.sources.at("image").at("camera").left_out, 4 * 2u);
  EXPECT_EQ(lineage.sources.at("text").at("book").trained, 4 * 2u);  // 7, 14
  EXPECT_EQ(lineage.sources.at("text").at("").trained, 4 * 19u);
  EXPECT_EQ(kinds_with_sources(lineage), (std::vector<std::string>{"image", "text"}));
  EXPECT_NE(to_text(lineage).find("scanner"), std::string::npos);
}

TEST_F(RunLineageTest, ALedgerOfOtherDataIsRefused) {
  train(options(), 23, false);
  ASSERT_FALSE(ledger_.empty());
  const Dataset& data = assembler_->dataset();
  EXPECT_THROW(lineage_of_run(data, SampleOrder::shuffled(data.size(), 6), 23, 4, ledger_), Error);
  ledger_[0].id = 1000;
  EXPECT_THROW(lineage_of_run(data, SampleOrder::shuffled(data.size(), 5), 23, 4, ledger_), Error);
  // Entries of steps that were never finished are of no account.
  EXPECT_EQ(lineage_of_run(data, SampleOrder::shuffled(data.size(), 5), 0, 4, ledger_).all.trained, 0u);
}

}  // namespace
}  // namespace mso
