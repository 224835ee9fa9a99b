// The ledger: survives torn lines, refuses to contradict itself, and proves exactly-once.
#include "io/ledger.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/unit/io/shard_fixture.h"

namespace mso {
namespace {

LedgerEntry entry(uint64_t position, uint64_t id) {
  LedgerEntry e;
  e.step = position / 4;
  e.epoch = position / 10;
  e.position = position;
  e.id = id;
  e.key = "key" + std::to_string(id);
  e.shard = "shard-000000.tar";
  e.reason = "decode_error";
  e.detail = "cut";
  return e;
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
}

TEST(Ledger, KeepsDeferralsBesideTheFateOfTheSample) {
  test::TemporaryFolder folder;
  LedgerEntry first = entry(4, 2), again = entry(4, 2), replaced = entry(4, 2);
  first.event = again.event = LedgerEvent::kDeferred;
  first.reason = again.reason = "late";
  first.step = 1, first.stand_in = 17;
  again.step = 2;
  replaced.step = 3;
  replaced.event = LedgerEvent::kReplaced;
  replaced.category = "animals";
  replaced.by_id = 9, replaced.by_key = "animals/cat", replaced.by_shard = "s.tar", replaced.similarity = 0.953125;
  const std::vector<LedgerEntry> all = {first, again, replaced};
  {
    Ledger ledger = Ledger::open(folder / "l");
    ledger.append(all);
    ledger.append(all);  // a repeated step
    EXPECT_EQ(ledger.entries(), all);
  }
  EXPECT_EQ(Ledger::load(folder / "l"), all);
  EXPECT_EQ(parse_tail(serialize_tail(all)), all);
  EXPECT_EQ(merge_entries({again}, {first, again, replaced}), all);
  LedgerEntry other = first;
  other.id = 3;
  EXPECT_THROW(Ledger::open(folder / "l").append({other}), Error);
  // Deferred twice and replaced: gone once.
  std::vector<TrainedSample> trained;
  for (uint64_t p = 0; p < 10; ++p)
    if (p != 4) trained.push_back({p, p == 2 ? 4 : p == 4 ? 2 : p});
  EXPECT_EQ(audit_exactly_once(10, 10, trained, all), std::vector<std::string>{});
  EXPECT_THROW(ledger_entry_from_json(R"({"event":"sold","step":1})", "x"), Error);
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
