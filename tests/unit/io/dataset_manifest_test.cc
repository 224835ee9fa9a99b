// A packed data set whose shards went missing or were changed is refused by name; other people's dataset.json is not
// our business.
#include "io/dataset_manifest.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "io/dataset.h"
#include "io/shard_writer.h"
#include "tests/unit/io/shard_fixture.h"

namespace mso {
namespace {

namespace fs = std::filesystem;
using test::write_text;

class ManifestTest : public testing::Test {
 protected:
  void SetUp() override {
    ShardWriter writer(folder_.string(), {.bytes = 1 << 20, .samples = 2});
    for (int i = 0; i < 6; ++i) writer.add("k" + std::to_string(i), {{"txt", "x"}});
    writer.finish();
    std::string files;
    for (const ListedShard& shard : writer.closed())
      files += (files.empty() ? "" : ",") + ("{\"name\": \"" + shard.name + "\", \"bytes\": " + std::to_string(*shard.bytes) +
                                              ", \"samples\": " + std::to_string(*shard.samples) + "}");
    write_text(folder_ / "dataset.json", "{\"made_by\": \"mso data pack\", \"shards\": 3, \"files\": [" + files + "]}");
  }
  // "" where the data set opens.
  std::string refusal() {
    try {
      const uint64_t samples = Dataset::open({folder_.string()})->size();
      EXPECT_EQ(Dataset::check_files({folder_.string()}), 3u);
      return samples == 6 ? "" : std::to_string(samples) + " samples";
    } catch (const Error& e) {
      EXPECT_EQ(e.exit_code(), ExitCode::kBadData);
      EXPECT_FALSE(e.hint().empty());
      return e.what();
    }
  }
  bool names(const std::string& text) { return refusal().find(text) != std::string::npos; }
  test::TemporaryFolder folder_;
};

TEST_F(ManifestTest, WholeSetOpens) { EXPECT_EQ(refusal(), ""); }

TEST_F(ManifestTest, MissingShardIsNamed) {
  fs::remove(folder_ / "shard-000001.tar");
  EXPECT_TRUE(names("shard-000001.tar is missing")) << refusal();
  EXPECT_THROW(Dataset::check_files({folder_.string()}), Error);
  // Asked for by name, the others are all that is wanted.
  EXPECT_EQ(Dataset::open({folder_ / "shard-000000.tar", folder_ / "shard-000002.tar"})->size(), 4u);
  for (int i : {0, 2}) fs::remove(folder_ / ("shard-00000" + std::to_string(i) + ".tar"));
  EXPECT_TRUE(names("shard-000000.tar is missing; shard-000001.tar is missing; shard-000002.tar is missing"));
}

TEST_F(ManifestTest, OtherSizeOrNumberOfSamplesIsNamed) {
  fs::resize_file(folder_ / "shard-000002.tar", fs::file_size(folder_ / "shard-000002.tar") - 512);
  EXPECT_TRUE(names("shard-000002.tar has ")) << refusal();
  // As long as before, with one sample.
  SetUp();
  const uint64_t size = fs::file_size(folder_ / "shard-000002.tar");
  write_text(folder_ / "shard-000002.tar", test::TarBytes().file("k.txt", "x").end());
  fs::resize_file(folder_ / "shard-000002.tar", size);
  EXPECT_TRUE(names("shard-000002.tar: 1 samples instead of 2")) << refusal();
}

TEST_F(ManifestTest, ListOfAnEarlyVersionHasTheirNumber) {
  write_text(folder_ / "dataset.json", R"({"made_by": "mso data pack", "samples": 6, "shards": 3})");
  EXPECT_EQ(refusal(), "");
  fs::remove(folder_ / "shard-000002.tar");
  EXPECT_TRUE(names("shard-000002.tar is missing"));
}

TEST_F(ManifestTest, DamagedListIsSaidAndAForeignOneIgnored) {
  const std::string text = read_file(folder_ / "dataset.json");
  for (size_t size : {text.size() / 2, text.size() - 1}) {
    write_text(folder_ / "dataset.json", text.substr(0, size));
    EXPECT_TRUE(names("dataset.json")) << size;
  }
  for (const char* bad : {R"({"made_by": "mso data pack"})", R"({"made_by": "mso data pack", "files": [{"name": 3}]})",
                          R"({"made_by": "mso data pack", "shards": 99999999999})"}) {
    write_text(folder_ / "dataset.json", bad);
    EXPECT_TRUE(names("dataset.json")) << bad;
  }
  for (const char* foreign : {"", "{", "[]", R"({"made_by": "somebody", "shards": 9})", R"({"shards": 9})", "\xff"}) {
    write_text(folder_ / "dataset.json", foreign);
    EXPECT_EQ(refusal(), "") << foreign;
  }
}

TEST_F(ManifestTest, ShardThatIsNotListedIsTrainedOn) {
  write_text(folder_ / "shard-000003.tar", test::TarBytes().file("k.txt", "x").end());
  EXPECT_EQ(Dataset::open({folder_.string()})->size(), 7u);  // with a warning
}

}  // namespace
}  // namespace mso
