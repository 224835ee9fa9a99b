// Neighbours: the exact search against a plain double loop, the side file and its damage, and data sets that hold only a
// part of it.
#include "io/neighbours.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <mutex>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "io/descriptor.h"
#include "io/half.h"
#include "io/neighbour_builder.h"
#include "tests/unit/io/shard_fixture.h"

namespace mso {
namespace {

using test::TarBytes;
using test::write_text;
namespace fs = std::filesystem;

TEST(Half, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = from_half(half);
    // By the definition: sign, exponent biased by 15, 10 bits of mantissa.
    const int exponent = static_cast<int>(bits >> 10), mantissa = static_cast<int>(bits & 1023);
    ASSERT_EQ(value, exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25)) << bits;
    ASSERT_EQ(to_half(value), half);
    ASSERT_EQ(to_half(-value), half | 0x8000);
    if (bits + 1 == 0x7c00) break;
    const float next = from_half(static_cast<uint16_t>(bits + 1)), middle = value + (next - value) / 2;
    ASSERT_EQ(to_half(middle), (bits & 1) != 0 ? bits + 1 : bits) << bits;
    ASSERT_EQ(to_half(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(to_half(std::nextafter(middle, 1e9f)), bits + 1);
  }
  EXPECT_EQ(to_half(70000.0f), 0x7c00);
  EXPECT_EQ(to_half(1e-9f), 0);
}

// Rows of random numbers; some without one of their parts, some the same as others.
struct RandomTable {
  uint32_t media = 5, text = 7;
  std::vector<float> values;
  std::vector<uint8_t> parts;
  EmbeddingTable table;

  explicit RandomTable(uint32_t rows) {
    for (uint32_t row = 0; row < rows; ++row) {
      const uint8_t has = row % 11 == 3 ? kMediaPart : row % 11 == 7 ? kTextPart : kMediaPart | kTextPart;
      parts.push_back(has);
      const uint64_t like = row % 5 == 4 ? row / 10 : row;  // many equal rows
      for (uint32_t i = 0; i < media + text; ++i) {
        const bool there = (has & (i < media ? kMediaPart : kTextPart)) != 0;
        values.push_back(there ? static_cast<float>(random_uniform({like, i}) - 0.4) : 0);
      }
    }
    table = {reinterpret_cast<const std::byte*>(values.data()), rows, media, text, false};
  }
  double similarity(uint32_t a, uint32_t b, uint8_t which) const {
    double product = 0, aa = 0, bb = 0;
    for (uint32_t i = 0; i < media + text; ++i) {
      if ((which & (i < media ? kMediaPart : kTextPart)) == 0) continue;
      const double x = values[a * (media + text) + i], y = values[b * (media + text) + i];
      product += x * y, aa += x * x, bb += y * y;
    }
    return aa > 0 && bb > 0 ? product / std::sqrt(aa * bb) : 0;
  }
};

TEST(NeighbourSearch, EqualsTheDoubleLoopOnAnyNumberOfThreads) {
  const RandomTable random(700);
  std::vector<SearchGroup> groups;
  for (uint8_t which : {3, 1, 2}) {
    SearchGroup group;
    group.parts = which;
    for (uint32_t row = 0; row < 700; ++row) {
      if (random.parts[row] == which) group.queries.push_back(row);
      if (row % 3 != 0) group.candidates.push_back(row);
    }
    groups.push_back(group);
  }
  groups.push_back({{5, 6}, {5}, 3});  // a group of one candidate
  std::map<uint32_t, std::vector<FoundNeighbour>> first;
  for (int threads : {1, 3}) {
    std::map<uint32_t, std::vector<FoundNeighbour>> all;
    std::mutex mutex;
    std::atomic<uint64_t> done = 0;
    search_neighbours(random.table, std::span(groups).first(3), 8, threads,
                      [&](uint32_t row, std::span<const FoundNeighbour> found) {
                        std::lock_guard lock(mutex);
                        EXPECT_TRUE(all.emplace(row, std::vector(found.begin(), found.end())).second);
                      },
                      &done);
    EXPECT_EQ(done, 700u);
    EXPECT_EQ(all.size(), 700u);
    if (threads == 1) first = all;
    EXPECT_EQ(all, first);
  }
  for (const SearchGroup& group : std::span(groups).first(3))
    for (uint32_t query : group.queries) {
      std::vector<std::pair<double, uint32_t>> right;
      for (uint32_t row : group.candidates)
        if (row != query) right.emplace_back(-random.similarity(query, row, group.parts), row);
      std::sort(right.begin(), right.end());
      const auto& found = first.at(query);
      ASSERT_EQ(found.size(), 8u);
      for (size_t i = 0; i < 8; ++i) {
        ASSERT_NEAR(found[i].similarity, -right[i].first, 1e-6) << query << " " << i;
        ASSERT_NEAR(random.similarity(query, found[i].row, group.parts), found[i].similarity, 1e-6);
        // Equal ones by row: no row that is as near stands in front of it and was left out.
        if (i > 0 && found[i].similarity == found[i - 1].similarity) {
          ASSERT_LT(found[i - 1].row, found[i].row);
        }
      }
    }
  search_neighbours(random.table, std::span(groups).last(1), 8, 1, [&](uint32_t row, std::span<const FoundNeighbour> found) {
    EXPECT_EQ(found.size(), row == 5 ? 0u : 1u);
  });
}

// A data set of three shards: pictures and captions in two folders, with broken ones among them.
struct Fixture {
  test::TemporaryFolder folder;
  static constexpr uint64_t kSamples = 90;

  static std::string picture(uint64_t i) {
    Image image{16, 12, {}};
    for (int p = 0; p < 16 * 12 * 3; ++p)
      image.rgb.push_back(static_cast<uint8_t>(random_bits({i % 30, static_cast<uint64_t>(p / 40)}) % 256));
    const auto bytes = encode_jpeg(image, 90);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  Fixture() {
    for (int shard = 0; shard < 3; ++shard) {
      TarBytes tar;
      for (int k = 0; k < 30; ++k) {
        const uint64_t i = static_cast<uint64_t>(shard * 30 + k);
        const std::string key = std::string(i % 3 == 0 ? "tools/" : "animals/birds/") + "k" + std::to_string(i);
        std::string jpeg = picture(i);
        if (i % 9 == 4) jpeg.resize(jpeg.size() / 2);  // broken
        if (i % 10 != 7) tar.file(key + ".jpg", jpeg);  // the others are text alone
        tar.file(key + ".txt", i % 17 == 5 ? "" : "caption " + std::to_string(i % 13) + " of a thing");
      }
      write_text(folder / ("s" + std::to_string(shard) + ".tar"), tar.end());
    }
  }
  std::shared_ptr<const Dataset> open() const { return Dataset::open({folder.string()}); }
  NeighbourSummary build(const NeighbourOptions& options = {}) const {
    return build_neighbours(*open(), BuiltinEmbedder(), options, folder / kNeighbourFile);
  }
};

TEST(Neighbours, AreHealthyOfOneCategoryAndKindAndTheNearest) {
  Fixture f;
  const NeighbourSummary summary = f.build();
  const auto data = f.open();
  uint64_t broken = 0;
  for (uint64_t i = 0; i < Fixture::kSamples; ++i) broken += (i % 9 == 4 && i % 10 != 7) || i % 17 == 5;
  EXPECT_EQ(summary.samples, Fixture::kSamples);
  EXPECT_EQ(summary.healthy, Fixture::kSamples - broken);
  EXPECT_EQ(summary.categories, 2u);
  const auto neighbours = Neighbours::open(data);
  EXPECT_TRUE(neighbours->problems().empty());
  EXPECT_EQ(neighbours->category_sizes(), (std::map<std::string, uint64_t>{{"animals", 60}, {"tools", 30}}));
  const auto file = NeighbourFile::open(f.folder / kNeighbourFile);
  file->verify();
  const EmbeddingTable table = file->checked_table();
  uint64_t text_only_queries = 0;
  for (uint64_t i = 0; i < Fixture::kSamples; ++i) {
    EXPECT_EQ(neighbours->category(i), i % 3 == 0 ? "tools" : "animals");
    const auto row = file->row(i);
    const bool picture_broken = i % 9 == 4 && i % 10 != 7, text_alone = i % 10 == 7;
    EXPECT_EQ(row.healthy, !picture_broken && i % 17 != 5) << i;
    EXPECT_EQ((row.parts & kMediaPart) != 0, !picture_broken && !text_alone) << i;
    text_only_queries += picture_broken;
    std::vector<std::pair<double, uint64_t>> right;
    for (uint64_t other = 0; other < Fixture::kSamples; ++other) {
      const auto candidate = file->row(other);
      if (other == i || !candidate.healthy || candidate.category != row.category || candidate.modality != row.modality) continue;
      right.emplace_back(-cosine(table, i, other, row.parts), other);
    }
    std::sort(right.begin(), right.end());
    const auto found = neighbours->nearest(i, -1, 3);
    if (row.parts == 0) {
      EXPECT_TRUE(found.empty());
      continue;
    }
    ASSERT_EQ(found.size(), std::min<size_t>(3, right.size()));
    for (size_t k = 0; k < found.size(); ++k) EXPECT_NEAR(found[k].similarity, -right[k].first, 1e-6) << i << " " << k;
    // At or above a threshold, and no more than asked for.
    const auto close = neighbours->nearest(i, 0.9, 2);
    EXPECT_LE(close.size(), 2u);
    for (const Neighbour& n : close) EXPECT_GE(n.similarity, 0.9 - 1e-6);
  }
  EXPECT_GT(text_only_queries, 5u);
}

TEST(Neighbours, SameBytesOnAnyNumberOfThreads) {
  Fixture f;
  f.build({.threads = 1});
  const std::string one = read_file(f.folder / kNeighbourFile);
  f.build({.threads = 4});
  EXPECT_EQ(read_file(f.folder / kNeighbourFile), one);
  f.build({.half = false});
  EXPECT_GT(read_file(f.folder / kNeighbourFile).size(), one.size());
  EXPECT_TRUE(Neighbours::open(f.open())->problems().empty());
}

TEST(Neighbours, KnownBadOnesAreLeftOutAndTheScanTakesOverWhereTheListEnds) {
  Fixture f;
  f.build({.kept = 3});
  const auto neighbours = Neighbours::open(f.open());
  const auto file = NeighbourFile::open(f.folder / kNeighbourFile);
  const auto before = neighbours->nearest(0, -1, 3);
  std::set<uint64_t> bad;
  // Take the best away again and again: what is left is always the best of the rest.
  std::vector<uint64_t> order;
  for (;;) {
    const auto found = neighbours->nearest(0, -1, 1, [&](uint64_t id) { return bad.count(id) != 0; });
    if (found.empty()) break;
    EXPECT_TRUE(bad.insert(found[0].id).second);
    order.push_back(found[0].id);
  }
  ASSERT_GE(order.size(), 10u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(order[i], before[i].id);
  const auto row = file->row(0);
  for (size_t i = 1; i < order.size(); ++i)
    EXPECT_GE(cosine(file->checked_table(), 0, order[i - 1], row.parts) + 1e-7,
              cosine(file->checked_table(), 0, order[i], row.parts));
}

TEST(Neighbours, NothingOutsideThePartOfTheDataSet) {
  Fixture f;
  f.build();
  const auto [train, held_out] = Dataset::split(f.open(), 1);
  for (const auto& [part, first] : {std::pair(train, uint64_t{0}), std::pair(held_out, uint64_t{60})}) {
    const auto neighbours = Neighbours::open(part);
    EXPECT_TRUE(neighbours->problems().empty());
    uint64_t found = 0;
    for (uint64_t i = 0; i < part->size(); ++i) {
      EXPECT_EQ(neighbours->category(i), (first + i) % 3 == 0 ? "tools" : "animals");
      for (const Neighbour& n : neighbours->nearest(i, -1, 3)) {
        ASSERT_LT(n.id, part->size());
        EXPECT_EQ(neighbours->category(n.id), neighbours->category(i));
        ++found;
      }
    }
    EXPECT_GT(found, part->size());
  }
  // One shard by its name, and shards in another order.
  const auto two = Dataset::open({f.folder / "s2.tar", f.folder / "s0.tar"});
  const auto neighbours = Neighbours::open(two);
  EXPECT_TRUE(neighbours->problems().empty());
  EXPECT_EQ(neighbours->category(0), "tools");   // sample 60
  EXPECT_EQ(neighbours->category(31), "animals");  // sample 1
}

TEST(Neighbours, AFileForOtherShardsIsNotBelieved) {
  Fixture f;
  EXPECT_NE(Neighbours::open(f.open())->problems().at(0).find("mso data index --embed"), std::string::npos);
  f.build();
  TarBytes tar;
  tar.file("animals/new.txt", "a new one");
  write_text(f.folder / "s1.tar", tar.end());
  const auto changed = Neighbours::open(f.open());
  ASSERT_EQ(changed->problems().size(), 1u);
  EXPECT_NE(changed->problems()[0].find("s1.tar"), std::string::npos);
  EXPECT_FALSE(changed->covers(0));
  EXPECT_TRUE(changed->nearest(0, -1, 3).empty());
  EXPECT_EQ(changed->category(0), "tools");  // by the key
  f.build();
  EXPECT_TRUE(Neighbours::open(f.open())->problems().empty());
  EXPECT_EQ(Neighbours::open(f.open(), CategoryRule("/kind"))->problems().size(), 1u);
  // The measurement's file hides the categories; training must not take it.
  f.build({.hide_category = true});
  EXPECT_EQ(Neighbours::open(f.open())->problems().size(), 1u);
}

TEST(Neighbours, DamageIsNoticedWhereverItIs) {
  Fixture f;
  f.build({.kept = 3});
  const fs::path path = f.folder / kNeighbourFile;
  const std::string good = read_file(path);
  auto refused = [&](const std::string& bytes) {
    write_text(path, bytes);
    try {
      NeighbourFile::open(path)->verify();
      return false;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kBadData);
      EXPECT_NE(std::string(error.what()).find(kNeighbourFile), std::string::npos);
      return true;
    }
  };
  // Every byte but the padding between the parts, which nothing reads.
  size_t missed = 0;
  for (size_t i = 0; i < good.size(); i += i < 2000 ? 1 : 61) {
    std::string bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x40);
    if (!refused(bytes)) {
      ++missed;
      EXPECT_EQ(good[i], '\0') << i;
    }
  }
  EXPECT_LT(missed, 7 * 64u);
  for (size_t size : {size_t{0}, size_t{1}, size_t{79}, size_t{80}, good.size() / 2, good.size() - 1})
    EXPECT_TRUE(refused(good.substr(0, size))) << size;
  EXPECT_TRUE(refused(good + "x"));
  // A data set over it goes on without neighbours, and says why.
  write_text(path, good.substr(0, good.size() - 1));
  EXPECT_EQ(Neighbours::open(f.open())->problems().size(), 1u);
  write_text(path, good);
  NeighbourFile::open(path)->verify();
}

TEST(Neighbours, AFullOrForbiddenPlaceIsAnErrorAndLeavesNothing) {
  Fixture f;
  EXPECT_THROW(build_neighbours(*f.open(), BuiltinEmbedder(), {}, f.folder / "no/such/folder/x.mso"), Error);
  for (const auto& entry : fs::directory_iterator(f.folder.string()))
    EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos);
}

TEST(CategoryRule, FoldersAndPointers) {
  test::TemporaryFolder folder;
  TarBytes tar;
  tar.file("animals/birds/owl.txt", "x");
  tar.file("./sports/ball.txt", "x");
  tar.file("k1.txt", "x").file("k1.json", R"({"category": "plants/trees", "kind": "oak/red"})");
  tar.file("k2.txt", "x").file("k2.json", R"({"category": "plants"})");
  tar.file("k3.txt", "x").file("k3.json", "not json");
  tar.file("k4.txt", "x").file("k4.json", R"({"category": 7})");
  tar.file("k5.txt", "x");
  write_text(folder / "a.tar", tar.end());
  const auto data = Dataset::open({folder.string()});
  auto all = [&](const std::string& rule) {
    std::vector<std::string> names;
    for (uint64_t i = 0; i < data->size(); ++i) names.push_back(CategoryRule(rule).of(*data, i));
    return names;
  };
  EXPECT_EQ(all("auto"), (std::vector<std::string>{"animals", "sports", "plants", "plants", "", "", ""}));
  EXPECT_EQ(all("/kind"), (std::vector<std::string>{"", "", "oak/red", "", "", "", ""}));
  EXPECT_EQ(all("/category"), (std::vector<std::string>{"", "", "plants/trees", "plants", "", "", ""}));
  for (const char* wrong : {"", "category", "/a~"}) EXPECT_THROW(CategoryRule rule(wrong), Error) << wrong;
}

TEST(Descriptor, UnitVectorsThatKnowColoursAndWords) {
  auto describe = [](const char* text) {
    std::vector<float> v(kTextDescriptorSize);
    describe_text(text, v.data());
    return v;
  };
  auto product = [](const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
    return sum;
  };
  for (const char* text : {"A cat.", "The", "Страус эму", "猫", "a"}) EXPECT_NEAR(product(describe(text), describe(text)), 1, 1e-5) << text;
  for (const char* text : {"", " ", "…!?"}) EXPECT_EQ(product(describe(text), describe(text)), 0) << text;
  const auto cat = describe("A black cat");
  EXPECT_NEAR(product(cat, describe("the BLACK, cat!")), 1, 1e-6);
  EXPECT_GT(product(cat, describe("a white cat")), product(cat, describe("a steam engine")));
  EXPECT_GT(product(cat, describe("two black cats")), product(cat, describe("a black piano")));

  auto flat = [&](uint8_t r, uint8_t g, uint8_t b) {
    Image image{40, 30, std::vector<uint8_t>(40 * 30 * 3, 255)};
    for (int y = 8; y < 22; ++y)
      for (int x = 10; x < 30; ++x) {
        uint8_t* pixel = image.rgb.data() + (y * 40 + x) * 3;
        pixel[0] = r, pixel[1] = g, pixel[2] = b;
      }
    std::vector<float> v(kPictureDescriptorSize);
    describe_picture(image, v.data());
    return v;
  };
  EXPECT_NEAR(product(flat(200, 0, 0), flat(200, 0, 0)), 1, 1e-5);
  EXPECT_GT(product(flat(200, 0, 0), flat(220, 20, 10)), product(flat(200, 0, 0), flat(0, 0, 200)));
  // One colour all over, and one pixel.
  for (const Image& image : {Image{9, 9, std::vector<uint8_t>(243, 7)}, Image{1, 1, {1, 2, 3}}}) {
    std::vector<float> v(kPictureDescriptorSize);
    describe_picture(image, v.data());
    EXPECT_NEAR(product(v, v), 1, 1e-5);
  }
}

}  // namespace
}  // namespace mso
