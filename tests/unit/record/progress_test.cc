// What people see while training: numbers as text, the live line at any width, plain lines.
#include "record/progress.h"

#include <gtest/gtest.h>

#include <cmath>

#include "record/format.h"

namespace mso {
namespace {

TEST(Format, Durations) {
  EXPECT_EQ(format_duration(0), "0.0 s");
  EXPECT_EQ(format_duration(-3), "0.0 s");
  EXPECT_EQ(format_duration(0.24), "0.2 s");
  EXPECT_EQ(format_duration(9.94), "9.9 s");
  EXPECT_EQ(format_duration(9.96), "10 s");
  EXPECT_EQ(format_duration(59.4), "59 s");
  EXPECT_EQ(format_duration(59.6), "1:00");
  EXPECT_EQ(format_duration(72), "1:12");
  EXPECT_EQ(format_duration(3599.7), "1:00:00");
  EXPECT_EQ(format_duration(7384), "2:03:04");
  EXPECT_EQ(format_duration(86400 * 3 + 4 * 3600 + 300), "3 d 04:05");
  EXPECT_EQ(format_duration(std::nan("")), "?");
  EXPECT_EQ(format_duration(INFINITY), "?");
}

TEST(Format, Quantities) {
  EXPECT_EQ(format_quantity(3120.4), "3,120");
  EXPECT_EQ(format_quantity(42), "42.0");
  EXPECT_EQ(format_quantity(3.14159), "3.14");
  EXPECT_EQ(format_quantity(0), "0");
  EXPECT_EQ(format_percent(0.004), "0.4 %");
  EXPECT_EQ(format_percent(0.12), "12 %");
  EXPECT_EQ(format_percent(1), "100 %");
  EXPECT_EQ(format_loss(2.314159), "2.314");
  EXPECT_EQ(format_loss(12.3456), "12.35");
  EXPECT_EQ(format_loss(0.000123456), "0.0001235");
  EXPECT_EQ(format_loss(std::nan("")), "nan");
  EXPECT_EQ(format_utc(0), "1970-01-01 00:00:00");
}

TEST(Format, HtmlEscape) {
  EXPECT_EQ(html_escape("<script>alert('x' & \"y\")</script>"),
            "&lt;script&gt;alert(&#39;x&#39; &amp; &quot;y&quot;)&lt;/script&gt;");
  EXPECT_EQ(html_escape("héllo 漢 🎈\n"), "héllo 漢 🎈\n");
  EXPECT_EQ(html_escape("\xff\xc0\xaf\x01"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(html_escape("a\xe6\xbc"), "a\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(Format, DisplayWidth) {
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("━━╸"), 3);
  EXPECT_EQ(display_width("\x1b[1mab\x1b[0m"), 2);
}

ProgressView usual() {
  ProgressView v;
  v.step = 120, v.steps = 300, v.loss = 2.3141, v.tokens_per_s = 3120, v.data_wait = 0.004, v.left_s = 72;
  v.levels = {{0, 119, 0.2, false}, {1, 90, 12, false}};
  return v;
}

TEST(Progress, WideLine) {
  EXPECT_EQ(progress_line(usual(), 200, false, false),
            "step 120/300 [===========>                ] | loss 2.314 | 3,120 tokens/s | data wait 0.4 % | "
            "L0 119 (0.2 s ago)  L1 90 (12 s ago) | 1:12 left");
  EXPECT_EQ(progress_line(usual(), 200, true, false),
            "step 120/300 ━━━━━━━━━━━━────────────────── · loss 2.314 · 3,120 tokens/s · data wait 0.4 % · "
            "L0 119 (0.2 s ago)  L1 90 (12 s ago) · 1:12 left");
}

TEST(Progress, NeverWiderThanTheTerminal) {
  ProgressView v = usual();
  v.resumed_from = 17;
  v.eval_loss = 2.5;
  v.incidents = 12345;
  v.levels.push_back({2, -1, 0, true});
  for (bool utf8 : {false, true})
    for (bool color : {false, true})
      for (int width = 12; width < 220; ++width)
        ASSERT_LE(display_width(progress_line(v, width, utf8, color)), width) << width;
  EXPECT_EQ(progress_line(v, 12, false, false), "step 120/300");
  EXPECT_EQ(progress_line(v, 1, false, false), "step 120/300");
  EXPECT_EQ(progress_line(usual(), 80, false, false),
            "step 120/300 [===>    ] | loss 2.314 | 3,120 tokens/s | L0 119 L1 90 | 1:12 left");
}

TEST(Progress, StatesInWords) {
  ProgressView v = usual();
  v.levels = {{0, -1, 0, true}, {1, 90, 1, true}};
  v.resumed_from = 17;
  std::string line = progress_plain(v, false);
  EXPECT_NE(line.find("L0 none, failing"), std::string::npos) << line;
  EXPECT_NE(line.find("L1 90 (1.0 s ago) failing"), std::string::npos) << line;
  EXPECT_NE(line.find("resumed at 17"), std::string::npos);
  v.repeating = true;
  EXPECT_NE(progress_plain(v, false).find("repeating lost steps"), std::string::npos);
  EXPECT_NE(progress_line(v, 200, false, false).find("repeating lost steps"), std::string::npos);
}

TEST(Progress, NothingKnownYet) {
  ProgressView v;
  EXPECT_EQ(progress_plain(v, false), "step 0");
  EXPECT_EQ(progress_line(v, 80, false, false), "step 0");
  v.steps = 10;
  EXPECT_EQ(progress_line(v, 80, false, false), "step 0/10 [>                           ]");
  v.step = 12, v.loss = NAN;  // more than planned
  EXPECT_EQ(progress_line(v, 80, false, false), "step 12/10 [============================] | loss nan");
}

TEST(Progress, SpeedWaitAndTimeLeftOfRecentSteps) {
  ProgressOptions options;
  options.steps = 100;
  options.plain_interval_s = 1000;
  options.resume = ResumeRecord{0, 2, 0, 10, "local", 0.25, 3};
  Progress progress(options, Terminal{});
  EXPECT_EQ(progress.view().resumed_from, 10);
  StepRecord r;
  r.tokens = 500, r.step_s = 0.5, r.data_wait_s = 0.05, r.loss = 3;
  for (int s = 11; s <= 14; ++s) {
    r.step = s;
    progress.step(r);
    EXPECT_EQ(progress.view().repeating, s <= 13);
  }
  progress.snapshot(SnapshotRecord{0, 2, 0, 14, 0.1, 5, true, false, ""});
  progress.snapshot(SnapshotRecord{0, 2, 1, 14, 0.1, 5, false, false, "full"});
  progress.snapshot(SnapshotRecord{0, 2, 9, 14, 0.1, 5, true, false, ""});
  ProgressView v = progress.view();
  EXPECT_DOUBLE_EQ(v.tokens_per_s, 1000);
  EXPECT_DOUBLE_EQ(v.data_wait, 0.1);
  EXPECT_DOUBLE_EQ(v.left_s, 43);
  ASSERT_EQ(v.levels.size(), 2u);
  EXPECT_EQ(v.levels[0].step, 14);
  EXPECT_FALSE(v.levels[0].failing);
  EXPECT_EQ(v.levels[1].step, -1);
  EXPECT_TRUE(v.levels[1].failing);
  progress.finish();
  progress.finish();
}

}  // namespace
}  // namespace mso
