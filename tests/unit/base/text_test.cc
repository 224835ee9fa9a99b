// Small helpers on text: nearest names, byte sizes, patterns, plain YAML scalars.
#include <gtest/gtest.h>

#include "base/config_tree.h"
#include "base/glob.h"
#include "base/json_text.h"
#include "base/suggest.h"
#include "base/units.h"

namespace mso {
namespace {

TEST(EditDistance, CountsSwapsAsOne) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("stesp", "steps"), 1u);
  EXPECT_EQ(edit_distance("ca", "abc"), 3u);  // optimal string alignment
}

TEST(NearestName, IsNearOrNothing) {
  const std::vector<std::string> names = {"train", "plan", "data", "ckpt"};
  EXPECT_EQ(nearest_name("trian", names), "train");
  EXPECT_EQ(nearest_name("pln", names), "plan");
  EXPECT_EQ(nearest_name("x", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name("configuration", names), "");
  EXPECT_EQ(nearest_name("a", {}), "");
}

TEST(ParseBytes, PowersOf1024) {
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("16G"), int64_t{16} << 30);
  EXPECT_EQ(parse_bytes("1.5 GiB"), int64_t{3} << 29);
  EXPECT_EQ(parse_bytes("512k"), 512 << 10);
  EXPECT_EQ(parse_bytes("3MB"), 3 << 20);
  EXPECT_EQ(parse_bytes("2T"), int64_t{2} << 40);
  EXPECT_EQ(parse_bytes("7B"), 7);
  for (const char* bad :
       {"", "G", "-1", "1X", "1 2", "1GG", "1GiBx", "nan", "inf", "1e30", "9e9T", "+1", " 1"})
    EXPECT_FALSE(parse_bytes(bad).has_value()) << bad;
}

TEST(FormatBytes, ThreeDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(10 * 1024), "10.0 KiB");
  EXPECT_EQ(format_bytes(1536.0 * 1024 * 1024), "1.50 GiB");
  EXPECT_EQ(format_bytes(1023.9 * 1024), "1.00 MiB");
}

TEST(FormatCount, GroupsOfThree) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(7063427072), "7,063,427,072");
  EXPECT_EQ(format_count(-1234567), "-1,234,567");
  EXPECT_EQ(format_count(-123), "-123");
}

TEST(GlobMatch, StarsAndQuestionMarks) {
  EXPECT_TRUE(glob_match("", ""));
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("a*c", "abbc"));
  EXPECT_TRUE(glob_match("*.layers.?.*.bias", "x.layers.3.y.bias"));
  EXPECT_TRUE(glob_match("*ab", "aab"));
  EXPECT_TRUE(glob_match("a**b", "ab"));
  EXPECT_FALSE(glob_match("*.layers.?.*", "x.layers.13.y"));
  EXPECT_FALSE(glob_match("a", ""));
  EXPECT_FALSE(glob_match("?", ""));
  EXPECT_FALSE(glob_match("a*b", "ac"));
  EXPECT_FALSE(glob_match("", "a"));
  EXPECT_FALSE(glob_match("[a]", "a"));
  EXPECT_FALSE(glob_match("*a*a*a*a*a*a*a*a*a*b", std::string(3000, 'a')));  // quickly
}

TEST(PlainScalar, FollowsTheCoreSchema) {
  for (const char* text : {"", "~", "null", "NULL"})
    EXPECT_TRUE(resolve_plain_scalar(text).is_null()) << text;
  EXPECT_EQ(resolve_plain_scalar("12"), 12);
  EXPECT_EQ(resolve_plain_scalar("+12"), 12);
  EXPECT_EQ(resolve_plain_scalar("-12"), -12);
  EXPECT_EQ(resolve_plain_scalar("0x1F"), 31);
  EXPECT_EQ(resolve_plain_scalar("0o17"), 15);
  EXPECT_EQ(resolve_plain_scalar("1e-3"), 1e-3);
  EXPECT_EQ(resolve_plain_scalar(".5"), 0.5);
  EXPECT_EQ(resolve_plain_scalar("true"), true);
  for (const char* text : {"yes", "inf", ".inf", "nan", "1.2.3", "0x", "0xG", "0x-1", "+-1", "--1", "-", "+",
                           ".", "1e", "12a", "1 2", "1e999"})
    EXPECT_TRUE(resolve_plain_scalar(text).is_string()) << text;
}

TEST(ParseShallowJson, DepthIsBounded) {
  EXPECT_EQ(json_depth(""), 0);
  EXPECT_EQ(json_depth("[[1, {}], []]"), 3);
  EXPECT_EQ(json_depth(R"({"[[[": "\"[[", "a\\": [1]})"), 2);
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(parse_shallow_json(nested(kMaxJsonDepth)).dump(), nested(kMaxJsonDepth));
  EXPECT_THROW(parse_shallow_json(nested(kMaxJsonDepth + 1)), nlohmann::json::exception);
  EXPECT_THROW(parse_shallow_json(std::string(1000000, '[')), nlohmann::json::exception);
  EXPECT_THROW(parse_shallow_json("]]]]"), nlohmann::json::exception);
  EXPECT_THROW(parse_shallow_json<nlohmann::ordered_json>(nested(100)), nlohmann::ordered_json::exception);
}

TEST(Utf8, WellFormedOnly) {
  for (const char* text : {"", "abc", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x90\xa7", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(is_clean_utf8(text)) << text;
  for (const char* text : {"\x80", "\xc3", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                           "\xf8\x88\x80\x80\x80", "a\xff"})
    EXPECT_FALSE(is_clean_utf8(text)) << text;
  EXPECT_FALSE(is_clean_utf8(std::string("a\0b", 3)));
}

}  // namespace
}  // namespace mso
