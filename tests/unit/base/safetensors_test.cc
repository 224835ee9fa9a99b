// The safetensors reader against files the Python package wrote, damaged ones, and what our writer makes.
#include "base/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "base/file.h"

namespace mso {
namespace {

namespace fs = std::filesystem;

fs::path fixtures() {
  const char* directory = std::getenv("MSO_SRCDIR");
  if (!directory) directory = std::getenv("srcdir");
  return fs::path(directory ? directory : ".") / "tests/unit/base/fixtures/safetensors";
}

struct TemporaryFolder {
  TemporaryFolder() {
    char name[] = "/tmp/mso-safetensors-XXXXXX";
    path = ::mkdtemp(name);
  }
  ~TemporaryFolder() { fs::remove_all(path); }
  fs::path path;
};

float expected(const std::string& type, int64_t i) {
  if (type == "BOOL") return static_cast<float>(i % 2);
  return static_cast<float>(type == "U8" ? i % 7 : i % 7 - 3);
}

// A file with this header text and that many bytes of data.
std::string file_of(const std::string& header, size_t data) {
  std::string bytes(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data, '\1');
}

SafetensorsHeader parse(const std::string& header, size_t data) {
  const std::string bytes = file_of(header, data);
  return parse_safetensors_header(bytes, bytes.size(), "test");
}

TEST(Safetensors, ReadsWhatPythonWrote) {
  const SafetensorsFolder file(fixtures() / "all_types.safetensors");
  EXPECT_EQ(file.names().size(), 40u);
  for (const std::string& name : file.names()) {
    const std::string type = name.substr(0, name.find('.')), kind = name.substr(name.find('.') + 1);
    const SafetensorsEntry& entry = file.entry(name);
    EXPECT_EQ(name_of(entry.dtype), type);
    EXPECT_EQ(entry.shape, kind == "scalar"   ? (std::vector<int64_t>{})
                           : kind == "vector" ? (std::vector<int64_t>{5})
                           : kind == "matrix" ? (std::vector<int64_t>{3, 4})
                                              : (std::vector<int64_t>{0, 3}));
    const HostTensor tensor = file.read(name);
    ASSERT_EQ(tensor.bytes.size(), static_cast<size_t>(tensor.count()) * size_of(tensor.dtype));
    for (int64_t i = 0; i < tensor.count(); ++i) {
      float value = 0;
      if (type[0] == 'F' || type[0] == 'B') {
        if (type == "BOOL")
          value = static_cast<float>(tensor.data<uint8_t>()[i]);
        else
          file.read_f32(name, static_cast<uint64_t>(i), static_cast<uint64_t>(i) + 1, &value);
      } else if (type == "I64")
        value = static_cast<float>(tensor.data<int64_t>()[i]);
      else if (type == "I32")
        value = static_cast<float>(tensor.data<int32_t>()[i]);
      else if (type == "I16")
        value = static_cast<float>(tensor.data<int16_t>()[i]);
      else if (type == "I8")
        value = static_cast<float>(tensor.data<int8_t>()[i]);
      else
        value = static_cast<float>(tensor.data<uint8_t>()[i]);
      EXPECT_EQ(value, expected(type, i)) << name << " " << i;
    }
  }
  SafetensorsFile raw(fixtures() / "all_types.safetensors");
  EXPECT_EQ(raw.header().metadata.at("note"), "naïve — ü");
}

TEST(Safetensors, TakesSlices) {
  const SafetensorsFolder file(fixtures() / "all_types.safetensors");
  const HostTensor rows = file.read_rows("F32.matrix", 1, 3);
  EXPECT_EQ(rows.shape, (std::vector<int64_t>{2, 4}));
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(rows.data<float>()[i], expected("F32", 4 + i));
  EXPECT_EQ(file.read_rows("F32.matrix", 2, 2).count(), 0);
  EXPECT_EQ(file.read_rows("F32.empty", 0, 0).count(), 0);
  EXPECT_THROW(file.read_rows("F32.matrix", 1, 4), Error);
  EXPECT_THROW(file.read_rows("F32.matrix", -1, 2), Error);
  EXPECT_THROW(file.read_rows("F32.scalar", 0, 1), Error);
  float values[4];
  EXPECT_THROW(file.read_f32("F32.vector", 3, 6, values), Error);
  EXPECT_THROW(file.read_f32("I64.vector", 0, 1, values), Error);
  EXPECT_THROW(file.read("nothing"), Error);
}

TEST(Safetensors, ReadsShards) {
  const SafetensorsFolder folder(fixtures() / "sharded");
  EXPECT_EQ(folder.names().size(), 8u);
  EXPECT_EQ(folder.file_of("F16.empty").filename(), "model-00001-of-00002.safetensors");
  EXPECT_EQ(folder.file_of("F32.vector").filename(), "model-00002-of-00002.safetensors");
  float value = 0;
  folder.read_f32("F32.vector", 4, 5, &value);
  EXPECT_EQ(value, 1);
}

TEST(Safetensors, RefusesDamagedIndexes) {
  TemporaryFolder work;
  auto refused = [&](const std::string& index) {
    std::ofstream(work.path / "model.safetensors.index.json") << index;
    EXPECT_THROW(SafetensorsFolder{work.path}, Error) << index;
  };
  EXPECT_THROW(SafetensorsFolder{work.path}, Error);  // neither weights nor index
  refused("");
  refused("[]");
  refused(R"({"weight_map": []})");
  refused(R"({"weight_map": {"a": 1}})");
  refused(R"({"weight_map": {"a": "../secret.safetensors"}})");
  refused(R"({"weight_map": {"a": "/etc/passwd"}})");
  refused(R"({"weight_map": {"a": ""}})");
  refused(R"({"weight_map": {"a": ".."}})");
  refused(R"({"weight_map": {"a": "missing.safetensors"}})");
  float one = 1;
  write_safetensors(work.path / "b.safetensors", {{"b", DType::kF32, {1}, &one}});
  refused(R"({"weight_map": {"a": "b.safetensors"}})");  // the shard lacks it
}

TEST(Safetensors, RefusesHostileHeaders) {
  EXPECT_EQ(parse("{}", 0).tensors.size(), 0u);
  EXPECT_EQ(parse(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}   )", 8).tensors.size(), 1u);
  auto refused = [](const std::string& header, size_t data) {
    EXPECT_THROW(parse(header, data), Error) << header;
  };
  refused("", 0);
  refused("[]", 0);
  refused("{", 0);
  refused(" {}", 0);  // the format demands { first
  refused("null", 0);
  refused(R"({"a":1})", 0);
  refused(R"({"a":{"dtype":"F32","shape":[2]}})", 8);
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})", 8);
  refused(R"({"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})", 8);
  refused(R"({"a":{"dtype":4,"shape":[2],"data_offsets":[0,8]}})", 8);
  refused(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8);
  refused(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8);
  refused(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8);
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8);
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,16]}})", 8);  // past the end
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", 8);
  refused(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8);    // shape and bytes differ
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9);    // bytes without a tensor
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12);  // a hole
  refused(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
      12);
  refused(
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
      4);
  // Products that overflow 64 bits, also with a zero among them.
  refused(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]}})", 8);
  refused(R"({"a":{"dtype":"F32","shape":[0,9223372036854775807,9223372036854775807],"data_offsets":[0,0]}})",
          0);
  refused(R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0);
  refused(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,0]}})", 0);
  refused(R"({"__metadata__":{"a":1}})", 0);
  refused(R"({"__metadata__":[]})", 0);
  refused("{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}", 0);
}

TEST(Safetensors, RefusesDamagedFiles) {
  TemporaryFolder work;
  const fs::path path = work.path / "x.safetensors";
  const std::string good = read_file(fixtures() / "all_types.safetensors");
  auto refused = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    EXPECT_THROW(SafetensorsFile{path}, Error) << bytes.size();
  };
  refused("");
  refused("1234567");
  refused(std::string(8, '\xff'));
  refused(std::string("\x01\xe1\xf5\x05\0\0\0\0{", 9));  // a header of 100,000,001 bytes
  for (size_t size = 1; size < good.size(); size += 61) refused(good.substr(0, size));
  refused(good + "x");
  EXPECT_THROW(SafetensorsFile{work.path}, Error);
  EXPECT_THROW(SafetensorsFile{work.path / "missing"}, Error);
}

TEST(Safetensors, WritesWhatItReads) {
  TemporaryFolder work;
  const SafetensorsFolder source(fixtures() / "all_types.safetensors");
  std::vector<HostTensor> tensors;
  for (const std::string& name : source.names()) tensors.push_back(source.read(name));
  std::vector<SafetensorsItem> items;
  for (size_t i = 0; i < tensors.size(); ++i)
    items.push_back({source.names()[i], tensors[i].dtype, tensors[i].shape, tensors[i].bytes.data()});
  write_safetensors(work.path / "a.safetensors", items);
  std::reverse(items.begin(), items.end());
  write_safetensors(work.path / "b.safetensors", items);
  EXPECT_EQ(read_file(work.path / "a.safetensors"), read_file(work.path / "b.safetensors"));
  const SafetensorsFile file(work.path / "a.safetensors");
  EXPECT_EQ(file.header().metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  EXPECT_EQ(file.header().data_offset % 8, 0u);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = source.names()[i];
    EXPECT_EQ(file.entry(name).shape, tensors[i].shape);
    EXPECT_TRUE(std::ranges::equal(file.bytes(name), tensors[i].bytes)) << name;
    // Widest types come first, so that every tensor is aligned to its elements.
    EXPECT_EQ(file.entry(name).begin % size_of(tensors[i].dtype), 0u) << name;
  }
  EXPECT_THROW(write_safetensors(work.path / "c.safetensors", {items[0], items[0]}), Error);
  EXPECT_FALSE(fs::exists(work.path / "c.safetensors"));
  EXPECT_THROW(write_safetensors(work.path / "no/such/folder.safetensors", items), Error);
}

TEST(Safetensors, WritesShards) {
  TemporaryFolder work;
  const std::vector<float> values(100, 2.0f);
  std::vector<SafetensorsItem> items;
  for (const char* name : {"c", "a", "b", "d"}) items.push_back({name, DType::kF32, {100}, values.data()});
  write_safetensors_folder(work.path, items, 800);
  const SafetensorsFolder folder(work.path);
  EXPECT_EQ(folder.names().size(), 4u);
  EXPECT_EQ(folder.file_of("c").filename(), "model-00001-of-00002.safetensors");
  EXPECT_EQ(folder.file_of("b").filename(), "model-00002-of-00002.safetensors");
  EXPECT_FALSE(fs::exists(work.path / "model.safetensors"));
}

TEST(Safetensors, ConvertsToFloat) {
  auto convert = [](DType dtype, auto bits) {
    std::byte bytes[8];
    std::memcpy(bytes + 1 - 1, &bits, sizeof bits);
    float value;
    convert_to_f32(dtype, bytes, &value, 1);
    return value;
  };
  EXPECT_EQ(convert(DType::kF16, uint16_t{0x3c00}), 1.0f);
  EXPECT_EQ(convert(DType::kF16, uint16_t{0xc500}), -5.0f);
  EXPECT_EQ(convert(DType::kF16, uint16_t{0x0001}), 0x1p-24f);  // least subnormal
  EXPECT_EQ(convert(DType::kF16, uint16_t{0x83ff}), -1023 * 0x1p-24f);
  EXPECT_EQ(convert(DType::kF16, uint16_t{0x7bff}), 65504.0f);
  EXPECT_EQ(convert(DType::kF16, uint16_t{0x7c00}), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(convert(DType::kF16, uint16_t{0x7e00})));
  EXPECT_TRUE(std::signbit(convert(DType::kF16, uint16_t{0x8000})));
  EXPECT_EQ(convert(DType::kBF16, uint16_t{0xc0a0}), -5.0f);
  EXPECT_EQ(convert(DType::kF64, 0.1), 0.1f);
}

}  // namespace
}  // namespace mso
