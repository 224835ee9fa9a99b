// Indexes of ordinary and of damaged shards. The rule for keys is WebDataset's (base_plus_ext of webdataset/tariterators.py).
#include "io/index_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "io/dataset.h"
#include "io/tar_index.h"
#include "media_fixture.h"
#include "tests/unit/io/shard_fixture.h"

namespace mso {
namespace {

using test::fake_picture;
using test::TarBytes;
using test::write_text;

class ShardIndexTest : public ::testing::Test {
 protected:
  IndexDraft index_of(const std::string& bytes) {
    write_text(folder_ / "s.tar", bytes);
    bytes_ = bytes;
    return build_index(folder_ / "s.tar");
  }
  std::string content(const MemberDraft* member) { return bytes_.substr(member->offset, member->size); }
  test::TemporaryFolder folder_;
  std::string bytes_;
};

TEST(SplitMemberPath, FollowsWebDataset) {
  auto split = [](const char* path) {
    auto result = split_member_path(path);
    return result ? result->key + "|" + result->extension : std::string("none");
  };
  EXPECT_EQ(split("a.jpg"), "a|jpg");
  EXPECT_EQ(split("dir.with.dots/a.JPG"), "dir.with.dots/a|jpg");
  EXPECT_EQ(split("x/y/a.seg.PNG"), "x/y/a|seg.png");
  EXPECT_EQ(split("./a.txt"), "a|txt");
  EXPECT_EQ(split(".//a.txt"), "a|txt");
  EXPECT_EQ(split("a."), "a|");
  for (const char* none : {"a", ".hidden", "dir/.hidden.jpg", "dir.x/a", "", "/", "__meta__/a.txt", "a/__info__"})
    EXPECT_EQ(split(none), "none") << none;
}

TEST_F(ShardIndexTest, FindsMembersSizesAndLengths) {
  const IndexDraft index = index_of(TarBytes()
                                        .entry("animals/", "", '5')
                                        .file("animals/cat.jpg", fake_picture(640, 480))
                                        .file("animals/cat.txt", "Gr\xc3\xbc\xc3\x9f" "e")
                                        .file("animals/cat.json", "{}")
                                        .file("note.txt", "text only")
                                        .file("README", "no dot: not a member")
                                        .end());
  ASSERT_EQ(index.samples.size(), 2u);
  EXPECT_TRUE(index.end_mark);
  EXPECT_FALSE(index.trailing_data);
  const SampleDraft& cat = index.samples[0];
  EXPECT_EQ(cat.key, "animals/cat");
  EXPECT_EQ(cat.members.size(), 3u);
  EXPECT_EQ(content(cat.picture()), fake_picture(640, 480));
  EXPECT_EQ(content(cat.find("json")), "{}");
  EXPECT_EQ(cat.picture_width, 640u);
  EXPECT_EQ(cat.picture_height, 480u);
  EXPECT_EQ(cat.text_bytes, 7u);
  EXPECT_EQ(cat.text_code_points, 5u);
  EXPECT_EQ(cat.flags, 0u);
  EXPECT_EQ(index.samples[1].picture(), nullptr);
}

TEST_F(ShardIndexTest, ReadsLongNamesOfGnuAndPax) {
  const std::string name = std::string(150, 'd') + "/" + std::string(120, 'n');
  const IndexDraft index = index_of(TarBytes()
                                        .gnu_long(name + ".jpg", fake_picture(1, 2))
                                        .pax(name + ".txt", "caption")
                                        .pax("gr\xc3\xbc\xc3\x9f" "e.txt", "x")
                                        .end());
  ASSERT_EQ(index.samples.size(), 2u);
  EXPECT_EQ(index.samples[0].key, name);
  EXPECT_EQ(content(index.samples[0].find("txt")), "caption");
  EXPECT_EQ(content(index.samples[0].picture()), fake_picture(1, 2));
  EXPECT_EQ(index.samples[1].key, "gr\xc3\xbc\xc3\x9f" "e");
}

TEST_F(ShardIndexTest, JoinsMembersThatAreNotAdjacent) {
  const IndexDraft index = index_of(TarBytes()
                                        .file("a.jpg", fake_picture(1, 1))
                                        .file("b.jpg", fake_picture(2, 2))
                                        .file("a.txt", "of a")
                                        .file("b.txt", "of b")
                                        .end());
  ASSERT_EQ(index.samples.size(), 2u);
  EXPECT_EQ(content(index.samples[0].find("txt")), "of a");
  EXPECT_EQ(content(index.samples[1].find("txt")), "of b");
  EXPECT_EQ(index.samples[0].picture_width, 1u);
  EXPECT_EQ(index.samples[0].flags, kSampleMerged);
  EXPECT_EQ(index.samples[1].flags, kSampleMerged);
}

TEST_F(ShardIndexTest, TheSameMemberTwiceMakesTheSampleUnusable) {
  const IndexDraft index = index_of(TarBytes()
                                        .file("a.jpg", fake_picture(1, 1))
                                        .file("a.txt", "one")
                                        .file("b.txt", "b")
                                        .file("a.jpg", fake_picture(2, 2))
                                        .file("a.txt", "two")
                                        .file("c.TXT", "c")
                                        .file("c.txt", "C")
                                        .end());
  ASSERT_EQ(index.samples.size(), 3u);
  EXPECT_TRUE(index.samples[0].flags & kSampleDuplicateMember);
  EXPECT_EQ(index.samples[1].flags, 0u);
  EXPECT_TRUE(index.samples[2].flags & kSampleDuplicateMember);
}

TEST_F(ShardIndexTest, ASecondDotNeverMakesHalfASample) {
  const IndexDraft index = index_of(TarBytes()
                                        .file("my.photo.jpg", fake_picture(1, 1))
                                        .file("my.txt", "caption without its picture")
                                        .file("x.jpg", fake_picture(1, 1))
                                        .file("x.mask.png", fake_picture(1, 1))
                                        .file("x.txt", "the picture is x.jpg")
                                        .file("y.jpg", fake_picture(1, 1))
                                        .file("y.1.txt", "odd caption")
                                        .end());
  ASSERT_EQ(index.samples.size(), 3u);
  EXPECT_TRUE(index.samples[0].flags & kSampleOddName);
  EXPECT_EQ(index.samples[1].flags, 0u);
  EXPECT_EQ(index.samples[1].picture()->extension, "jpg");
  EXPECT_TRUE(index.samples[2].flags & kSampleOddName);
}

TEST_F(ShardIndexTest, FollowsHardLinksAndRefusesOtherLinks) {
  const IndexDraft index = index_of(TarBytes()
                                        .file("a.jpg", fake_picture(3, 4))
                                        .file("a.txt", "a")
                                        .link("b.jpg", "a.jpg")
                                        .file("b.txt", "b")
                                        .link("c.jpg", "a.jpg", '2')
                                        .file("c.txt", "c")
                                        .link("d.jpg", "missing.jpg")
                                        .file("d.txt", "d")
                                        .end());
  ASSERT_EQ(index.samples.size(), 4u);
  EXPECT_EQ(content(index.samples[1].picture()), fake_picture(3, 4));
  EXPECT_EQ(index.samples[1].picture_height, 4u);
  EXPECT_EQ(index.samples[1].flags, 0u);
  EXPECT_TRUE(index.samples[2].flags & kSampleBadMember);
  EXPECT_TRUE(index.samples[3].flags & kSampleBadMember);
}

TEST_F(ShardIndexTest, CutAtEveryByteNeverGivesHalfASample) {
  TarBytes tar;
  tar.file("a.jpg", fake_picture(1, 1)).file("a.txt", "first");
  tar.file("b.jpg", fake_picture(2, 2)).file("b.txt", "second");
  const std::string whole = tar.end();
  // Every byte near a block's edge, every 31st elsewhere.
  for (size_t cut = 1; cut < whole.size(); cut += cut % 512 < 4 || cut % 512 > 476 ? 1 : 31) {
    IndexDraft index;
    try {
      index = index_of(whole.substr(0, cut));
    } catch (const Error& error) {
      ASSERT_LT(cut, 512u) << cut << error.what();
      continue;
    }
    for (const SampleDraft& sample : index.samples) {
      if (sample.flags & kSampleUnusable) continue;
      ASSERT_EQ(sample.members.size(), 2u) << cut;
      ASSERT_EQ(content(sample.find("txt")), sample.key == "a" ? "first" : "second") << cut;
    }
    const size_t usable = static_cast<size_t>(std::count_if(
        index.samples.begin(), index.samples.end(), [](const SampleDraft& s) { return !(s.flags & kSampleUnusable); }));
    // One block of zeros behind the last member is accepted as the end, as GNU tar and Python do.
    EXPECT_EQ(usable, cut >= whole.size() - 512 ? 2u : cut >= 5 * 512 ? 1u : 0u) << cut;
    EXPECT_EQ(index.end_mark, cut >= whole.size() - 512) << cut;
  }
}

TEST_F(ShardIndexTest, DamagedHeaderInTheMiddleEndsTheShardThere) {
  std::string bytes = TarBytes()
                          .file("a.jpg", fake_picture(1, 1))
                          .file("a.txt", "first")
                          .file("b.jpg", fake_picture(2, 2))
                          .file("b.txt", "second")
                          .end();
  for (size_t at = 1024; at < 1536; at += 7) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    const IndexDraft index = index_of(damaged);
    for (const SampleDraft& sample : index.samples) {
      if (sample.flags & kSampleUnusable) continue;
      EXPECT_EQ(sample.members.size(), 2u) << at;
    }
  }
}

TEST_F(ShardIndexTest, EmptyArchivesAndOthers) {
  EXPECT_TRUE(index_of(std::string(10240, '\0')).samples.empty());
  EXPECT_TRUE(index_of(TarBytes().entry("dir/", "", '5').end()).samples.empty());
  EXPECT_THROW(index_of(""), Error);
  EXPECT_THROW(index_of("this is no tar"), Error);
  EXPECT_THROW(index_of(std::string(2000, 'x')), Error);
  EXPECT_THROW(index_of("\x1f\x8b\x08" + std::string(2000, 'x')), Error);
  EXPECT_THROW(build_index(folder_ / "missing.tar"), Error);
  EXPECT_THROW(build_index(folder_.string()), Error);
}

TEST_F(ShardIndexTest, TwoTarsJoinedByCatAreNoticed) {
  const std::string one = TarBytes().file("a.txt", "a").end();
  EXPECT_FALSE(index_of(one + std::string(8192, '\0')).trailing_data);
  const IndexDraft index = index_of(one + one);
  EXPECT_TRUE(index.trailing_data);
  EXPECT_EQ(index.samples.size(), 1u);
}

TEST_F(ShardIndexTest, HugeSizesAreRefused) {
  for (const char* size : {"77777777777", "\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"}) {
    const std::string field(size, 11 + (size[0] != '7'));
    const IndexDraft index = index_of(TarBytes().file("a.txt", "a").entry("b.txt", "b", '0', "", field).end());
    for (const SampleDraft& sample : index.samples)
      EXPECT_TRUE(sample.key == "a" || (sample.flags & kSampleUnusable));
  }
}

TEST_F(ShardIndexTest, LimitsHold) {
  TarBytes many;
  for (int i = 0; i < 300; ++i) many.file("a." + std::to_string(i), "");
  EXPECT_THROW(index_of(many.end()), Error);
  TarIndexLimits limits;
  limits.members = 2;
  write_text(folder_ / "m.tar", TarBytes().file("a.txt", "").file("b.txt", "").file("c.txt", "").end());
  EXPECT_THROW(build_index(folder_ / "m.tar", limits), Error);
  EXPECT_THROW(index_of(TarBytes().pax(std::string(5000, 'n') + ".txt", "x").end()), Error);
}

TEST_F(ShardIndexTest, SerializesAndRefusesEveryChange) {
  IndexDraft index = index_of(TarBytes()
                                  .file("k/a.jpg", fake_picture(7, 9))
                                  .file("k/a.txt", "x")
                                  .file("b.json", R"({"category": "of the json", "video_source": "camera"})")
                                  .file("b.mp4", "y")
                                  .without_end());
  EXPECT_TRUE(index.samples[1].media.empty());  // the archive is cut behind it
  MediaFactsDraft facts;
  facts.member = 1;
  facts.kind = kHasVideo;
  facts.flags = kMediaWithSound;
  facts.codec = "h264";
  facts.duration_us = uint64_t{1} << 40;
  facts.width = 64;
  facts.height = 48;
  facts.rotation = 90;
  facts.frames = 17;
  facts.millihertz = 29970;
  MediaFactsDraft sound;
  sound.kind = kHasAudio;
  sound.codec = "opus";
  sound.sample_rate = 48000;
  sound.channels = 2;
  index.samples[1].media = {sound, facts};
  const std::string bytes = index.serialize();
  const auto again = ShardIndex::from_bytes(bytes, "i");
  EXPECT_EQ(again->draft().serialize(), bytes);
  const ShardSample first = again->sample(0), second = again->sample(1);
  EXPECT_EQ(first.key, "k/a");
  EXPECT_EQ(first.picture_width, 7u);
  EXPECT_EQ(first.modalities, kHasText | kHasImage);
  EXPECT_EQ(first.lineage.category, "k");
  EXPECT_TRUE(first.media.empty());
  EXPECT_EQ(second.modalities, kHasText | kHasVideo);
  EXPECT_EQ(second.video()->extension, "mp4");
  EXPECT_EQ(second.audio(), nullptr);
  EXPECT_EQ(second.lineage.category, "of the json");
  EXPECT_EQ(second.lineage.video_source, "camera");
  EXPECT_EQ(second.lineage.image_source, "");
  ASSERT_EQ(second.media.size(), 2u);
  EXPECT_EQ(again->draft().samples[1].media, (std::vector<MediaFactsDraft>{sound, facts}));
  EXPECT_EQ(second.facts(*second.video()), &second.media[1]);
  EXPECT_EQ(second.media[1].codec, "h264");
  EXPECT_EQ(second.media[1].duration_us, uint64_t{1} << 40);
  EXPECT_TRUE(second.media[1].swaps_sides());
  EXPECT_EQ(second.media[0].sample_rate, 48000u);
  EXPECT_FALSE(again->has_uncounted_media());
  EXPECT_FALSE(again->end_mark());
  EXPECT_THROW(again->sample(2), Error);
  auto read_all = [](std::string changed) { ShardIndex::from_bytes(std::move(changed), "i")->draft(); };
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_THROW(read_all(damaged), Error) << i;
    EXPECT_THROW(read_all(bytes.substr(0, i)), Error) << i;
  }
  EXPECT_THROW(read_all(bytes + "x"), Error);
}

TEST_F(ShardIndexTest, KnowsWhatHeadersSayOfEveryMediumOfASample) {
  const IndexDraft index = index_of(TarBytes()
                                        .file("a.json", R"({"messages": []})")
                                        .file("a.png", fake_picture(7, 9))
                                        .file("a.image1.png", fake_picture(30, 20))
                                        .file("a.image2.png", "no picture")
                                        .file("a.mp4", media_fixture("rot90.mp4"))
                                        .file("a.video1.mkv", media_fixture("vfr.mkv"))
                                        .file("a.ogg", media_fixture("speech.ogg"))
                                        .file("a.notes", media_fixture("speech.ogg"))
                                        .file("b.mp4", "no video")
                                        .end());
  const auto stored = ShardIndex::from_bytes(index.serialize(), "i");
  const ShardSample a = stored->sample(0), b = stored->sample(1);
  ASSERT_EQ(a.media.size(), 5u);
  EXPECT_EQ(a.facts(*a.picture()), nullptr);  // picture_width and picture_height are of it
  EXPECT_EQ(a.picture_width, 7u);
  const MediaFacts* second = a.facts(*a.find("image1.png"));
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->codec, "png");
  EXPECT_EQ(second->width, 30u);
  EXPECT_EQ(second->height, 20u);
  EXPECT_EQ(a.facts(*a.find("image2.png"))->flags, kMediaUnreadable);
  EXPECT_EQ(a.facts(*a.video())->rotation, 90u);
  EXPECT_EQ(a.facts(*a.find("video1.mkv"))->frames, 24u);
  EXPECT_EQ(a.facts(*a.audio())->sample_rate, 11025u);
  EXPECT_EQ(a.facts(*a.find("notes")), nullptr);
  ASSERT_EQ(b.media.size(), 1u);
  EXPECT_EQ(b.media[0].flags, kMediaUnreadable);
}

TEST_F(ShardIndexTest, LargeMediaAreCountedWhenAskedFor) {
  const auto tar = folder_ / "s.tar";
  // Of more than 8 MiB: padded with an element that Matroska readers skip (EBML Void).
  std::string video = media_fixture("vfr.mkv");
  const std::string padding = std::string("\xec\x01\x00\x00\x00\x00\x90\x00\x00", 9) + std::string(0x900000, '\0');
  write_text(tar, TarBytes().file("a.mkv", video + padding).file("b.mkv", video).end());
  const auto quick = load_or_build_index(tar);
  EXPECT_TRUE(quick->has_uncounted_media());
  EXPECT_EQ(quick->sample(0).media[0].frames, 0u);
  EXPECT_EQ(quick->sample(1).media[0].frames, 24u);
  EXPECT_EQ(load_or_build_index(tar)->checksum(), quick->checksum());
  const auto counted = count_media_in_index(tar);
  EXPECT_FALSE(counted->has_uncounted_media());
  EXPECT_EQ(counted->sample(0).media[0].frames, 24u);
  EXPECT_EQ(load_or_build_index(tar)->checksum(), counted->checksum());
}

TEST_F(ShardIndexTest, IsStoredBesideAndMadeAnewWhenStale) {
  const auto tar = folder_ / "s.tar", idx = folder_ / "s.idx";
  write_text(tar, TarBytes().file("a.txt", "first").end());
  EXPECT_EQ(load_or_build_index(tar)->size(), 1u);
  EXPECT_TRUE(std::filesystem::exists(idx));
  EXPECT_TRUE(load_or_build_index(tar)->mapped());
  // Same size, other content, perhaps within the same tick of the clock.
  write_text(tar, TarBytes().file("z.txt", "other").end());
  EXPECT_EQ(load_or_build_index(tar)->sample(0).key, "z");
  // Other size.
  write_text(tar, TarBytes().file("a.txt", "first").file("b.txt", "x").end());
  EXPECT_EQ(load_or_build_index(tar)->size(), 2u);
  // Damaged header, and indexes of earlier versions.
  for (const std::string& content : {std::string("garbage"), std::string("MSOIDX\r\n\1\0\0\0", 12) + std::string(200, 'x'),
                                     std::string("MSOIDX\r\n\3\0\0\0", 12) + std::string(200, 'x')}) {
    write_text(idx, content);
    EXPECT_EQ(load_or_build_index(tar)->size(), 2u);
    EXPECT_EQ(ShardIndex::open(idx)->size(), 2u);
  }
}

TEST_F(ShardIndexTest, AnUntouchedTarIsKnownByItsTimeAlone) {
  const auto tar = folder_ / "s.tar", idx = folder_ / "s.idx";
  write_text(tar, TarBytes().file("a.txt", "first").end());
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  std::filesystem::last_write_time(tar, old);
  EXPECT_EQ(load_or_build_index(tar)->sample(0).key, "a");
  EXPECT_NE(ShardIndex::open(idx)->tar_changed_ns(), 0);
  // The same size and time: not read again. (That this hides a change made with the clock set back is the price.)
  write_text(tar, TarBytes().file("z.txt", "other").end());
  std::filesystem::last_write_time(tar, old);
  EXPECT_EQ(load_or_build_index(tar)->sample(0).key, "a");
  // Another time: its content decides.
  std::filesystem::last_write_time(tar, old + std::chrono::seconds(1));
  EXPECT_EQ(load_or_build_index(tar)->sample(0).key, "z");
}

TEST_F(ShardIndexTest, DamageFoundWhileInUseIsMended) {
  const auto tar = folder_ / "s.tar", idx = folder_ / "s.idx";
  TarBytes bytes;
  for (int i = 0; i < 50; ++i) bytes.file("k" + std::to_string(i) + ".txt", "caption");
  write_text(tar, bytes.end());
  load_or_build_index(tar);
  std::string index = read_file(idx);
  index[index.size() - 3] = static_cast<char>(index[index.size() - 3] ^ 4);  // in the last key
  write_text(idx, index);
  const auto data = Dataset::open({tar.string()});
  EXPECT_EQ(data->size(), 50u);
  EXPECT_EQ(data->sample(49).key, "k49");
  EXPECT_EQ(data->sample(7).find("txt")->size, 7u);
  // With the shard gone it cannot be mended.
  write_text(idx, index);
  const auto again = Dataset::open({tar.string()});
  std::filesystem::remove(tar);
  EXPECT_THROW(again->sample(0), Error);
}

TEST_F(ShardIndexTest, StaysInMemoryWhereNothingCanBeWritten) {
  write_text(folder_ / "s.tar", TarBytes().file("a.txt", "first").end());
  std::filesystem::create_directory(folder_ / "s.idx");  // works for root too: the rename fails
  EXPECT_EQ(load_or_build_index(folder_ / "s.tar")->size(), 1u);
}

TEST_F(ShardIndexTest, SeveralAtOnceMakeOneIndex) {
  TarBytes tar;
  for (int i = 0; i < 500; ++i) tar.file("s" + std::to_string(i) + ".txt", "caption");
  write_text(folder_ / "s.tar", tar.end());
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] { right += load_or_build_index(folder_ / "s.tar")->size() == 500; });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 4);
  int files = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(folder_.string())) ++files;
  EXPECT_EQ(files, 2);
}

}  // namespace
}  // namespace mso
