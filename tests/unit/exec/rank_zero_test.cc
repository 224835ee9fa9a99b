// One error of several ranks is told once, with the rank where it matters.
#include "exec/rank_zero.h"

#include <gtest/gtest.h>

#include <thread>
#include <typeinfo>

#include "tests/unit/ckpt/thread_communicator.h"

namespace mso {
namespace {

// What each of three ranks gets: "" for no error, "quiet: …" for RankZeroFailed.
std::vector<std::string> outcomes(const std::function<void(Communicator&)>& work) {
  std::vector<std::string> result(3);
  auto group = std::make_shared<testing::ThreadGroup>(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      auto world = group->join(rank);
      try {
        work(*world);
      } catch (const RankZeroFailed& e) {
        result[rank] = "quiet: " + std::string(e.what());
      } catch (const Error& e) {
        result[rank] = e.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return result;
}

using Texts = std::vector<std::string>;

TEST(Together, TellsOneErrorOfAllOnce) {
  EXPECT_EQ(outcomes([](Communicator& world) { together(world, 5, [] {}); }), Texts(3));
  EXPECT_EQ(outcomes([](Communicator& world) { together(world, 5, [] { throw Error("bad", "file", "mend it"); }); }),
            (Texts{"bad: file (hint: mend it)", "quiet: bad: file (hint: mend it)", "quiet: bad: file (hint: mend it)"}));
}

TEST(Together, NamesTheRankWhereOthersAreWell) {
  auto fails_on = [](int which) {
    return outcomes([which](Communicator& world) {
      together(world, 5, [&] {
        if (world.rank() == which) throw Error("bad", "file");
      });
    });
  };
  EXPECT_EQ(fails_on(2), (Texts{"bad: rank 2: file", "quiet: bad: rank 2: file", "quiet: bad: rank 2: file"}));
  EXPECT_EQ(fails_on(0)[0], "bad: rank 0: file");
}

TEST(Together, KeepsExitCodeAndStrangeBytes) {
  for (const std::string& text : outcomes([](Communicator& world) {
         try {
           together(world, 5, [] { throw Error("\xff", "a\nb", "", ExitCode::kBadData); });
         } catch (const Error& e) {
           EXPECT_EQ(e.exit_code(), ExitCode::kBadData);
           throw;
         }
       }))
    EXPECT_NE(text.find("a\nb"), std::string::npos);
  EXPECT_NE(outcomes([](Communicator& world) { together(world, 5, [] { throw std::bad_alloc(); }); })[0].find("bad_alloc"),
            std::string::npos);
}

TEST(OnRankZero, OthersDoNothingAndAreQuiet) {
  std::atomic<int> calls = 0;
  const Texts texts = outcomes([&](Communicator& world) {
    on_rank_zero(world, 5, [&] {
      ++calls;
      throw Error("bad", "file");
    });
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(texts, (Texts{"bad: file", "quiet: bad: file", "quiet: bad: file"}));
}

}  // namespace
}  // namespace mso
