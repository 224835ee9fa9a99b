// The ledger: survives torn lines, refuses to contradict itself, and proves exactly-once.
#include "io/ledger.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/unit/io/shard_fixture.h"

namespace mso {
namespace {

LedgerEntry entry(uint64_t position, uint64_t id) {
  return {position / 4, position / 10, position, id, "key" + std::to_string(id), "shard-000000.tar", "decode_error", "cut"};
}

TEST(Ledger, KeepsEntriesOverReopening) {
  test::TemporaryFolder folder;
  {
    Ledger ledger = Ledger::open(folder / "ledger.jsonl");
    ledger.append({entry(3, 7), entry(5, 2)});
    ledger.append({});
    ledger.append({entry(5, 2)});  // a repeated step
  }
  EXPECT_EQ(Ledger::open(folder / "ledger.jsonl").entries(), (std::vector<LedgerEntry>{entry(3, 7), entry(5, 2)}));
  EXPECT_EQ(Ledger::load(folder / "none"), std::vector<LedgerEntry>{});
}

TEST(Ledger, MendsATornLastLineAtEveryByte) {
  test::TemporaryFolder folder;
  const std::string whole = to_json_line(entry(1, 1)), torn = to_json_line(entry(2, 2));
  for (size_t cut = 0; cut < torn.size(); ++cut) {
    test::write_text(folder / "l", whole + torn.substr(0, cut));
    EXPECT_EQ(Ledger::load(folder / "l").size(), 1u);
    {
      Ledger ledger = Ledger::open(folder / "l");
      ASSERT_EQ(ledger.entries().size(), 1u) << cut;
      ledger.append({entry(3, 3)});
    }
    ASSERT_EQ(Ledger::load(folder / "l"), (std::vector<LedgerEntry>{entry(1, 1), entry(3, 3)}));
  }
}

TEST(Ledger, NamesADamagedLineInTheMiddle) {
  test::TemporaryFolder folder;
  test::write_text(folder / "l", to_json_line(entry(1, 1)) + "{\"step\":\n" + to_json_line(entry(2, 2)));
  try {
    Ledger::open(folder / "l");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("l:2"), std::string::npos);
    EXPECT_EQ(error.exit_code(), ExitCode::kBadData);
  }
  for (const char* line : {"[]\n", "3\n", "{}\n", "{\"step\":\"x\"}\n", "\n"}) {
    test::write_text(folder / "l", line + to_json_line(entry(2, 2)));
    EXPECT_THROW(Ledger::load(folder / "l"), Error) << line;
  }
}

TEST(Ledger, RefusesAnotherSampleAtTheSamePosition) {
  test::TemporaryFolder folder;
  Ledger ledger = Ledger::open(folder / "l");
  ledger.append({entry(3, 7)});
  EXPECT_THROW(ledger.append({entry(3, 8)}), Error);
}

TEST(Ledger, AnyBytesInKeysStayOneLine) {
  LedgerEntry odd = entry(1, 1);
  odd.key = "a\nb\"\\\x01\xff\xfe";
  const std::string line = to_json_line(odd);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_EQ(ledger_entry_from_json(line, "").id, 1u);
}

TEST(Ledger, TailAndMerge) {
  const std::vector<LedgerEntry> all = {entry(1, 1), entry(2, 2), entry(9, 3)};
  EXPECT_EQ(parse_tail(serialize_tail(all)), all);
  EXPECT_EQ(parse_tail(serialize_tail(all, 2)), (std::vector<LedgerEntry>{entry(2, 2), entry(9, 3)}));
  EXPECT_EQ(parse_tail(serialize_tail({})), std::vector<LedgerEntry>{});
  EXPECT_EQ(merge_entries({entry(1, 1), entry(9, 3)}, {entry(2, 2), entry(9, 3)}), all);
  for (const char* bad : {"", "{", "[1]", "[{}]"}) EXPECT_THROW(parse_tail(bad), Error) << bad;
}

TEST(Ledger, SelectsBySteps) {
  test::TemporaryFolder folder;
  Ledger ledger = Ledger::open(folder / "l");
  ledger.append({entry(1, 1), entry(4, 2), entry(9, 3)});
  EXPECT_EQ(ledger.from_step(1), (std::vector<LedgerEntry>{entry(4, 2), entry(9, 3)}));
  const auto of_step_1 = ledger.of_positions(4, 4);
  ASSERT_EQ(of_step_1.size(), 1u);
  EXPECT_EQ(of_step_1.at(0), entry(4, 2));
}

TEST(Audit, AcceptsWholeEpochsAndNamesEveryViolation) {
  std::vector<TrainedSample> trained;
  for (uint64_t p = 0; p < 20; ++p)
    if (p != 7) trained.push_back({p, p % 10});
  const std::vector<LedgerEntry> ledger = {entry(7, 7)};
  EXPECT_TRUE(audit_exactly_once(10, 20, trained, ledger).empty());

  auto expect_wrong = [](std::vector<TrainedSample> t, std::vector<LedgerEntry> l, const char* words) {
    const auto wrong = audit_exactly_once(10, 20, t, l);
    ASSERT_FALSE(wrong.empty()) << words;
    EXPECT_NE(wrong[0].find(words), std::string::npos) << wrong[0];
  };
  expect_wrong(trained, {}, "neither");
  expect_wrong(trained, {entry(7, 7), entry(8, 8)}, "and is in the ledger");
  expect_wrong(trained, {entry(7, 7), entry(7, 7)}, "twice");
  auto doubled = trained;
  doubled.push_back({3, 3});
  expect_wrong(doubled, ledger, "trained on twice");
  auto repeated = trained;
  repeated[2].id = 1;
  expect_wrong(repeated, ledger, "sample 1 twice in epoch 0");
  auto beyond = trained;
  beyond.push_back({20, 0});
  expect_wrong(beyond, ledger, "beyond the end");
  auto unknown = trained;
  unknown[0].id = 99;
  expect_wrong(unknown, ledger, "no sample 99");
}

}  // namespace
}  // namespace mso
