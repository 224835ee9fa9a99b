// Makes tar shards byte by byte, also those no tool would write, and a data set with a stub picture decoder.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "base/error.h"
#include "io/data_loader.h"
#include "io/tokenizer.h"

namespace mso::test {

// A folder that is deleted with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "mso-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  std::string string() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// POSIX.1-1988 ustar, IEEE Std 1003.1 "pax", section "ustar Interchange Format".
class TarBytes {
 public:
  TarBytes& file(const std::string& name, const std::string& content) { return entry(name, content, '0'); }
  TarBytes& link(const std::string& name, const std::string& target, char type = '1') {
    return entry(name, "", type, target);
  }
  TarBytes& entry(const std::string& name, const std::string& content, char type, const std::string& target = "",
                  const std::string& size_field = "") {
    char header[512] = {};
    std::strncpy(header, name.c_str(), 100);
    std::snprintf(header + 100, 8, "%07o", 0644);
    std::snprintf(header + 108, 8, "%07o", 0);
    std::snprintf(header + 116, 8, "%07o", 0);
    std::snprintf(header + 124, 12, "%011lo", static_cast<unsigned long>(content.size()));
    if (!size_field.empty()) std::memcpy(header + 124, size_field.data(), std::min<size_t>(12, size_field.size()));
    std::snprintf(header + 136, 12, "%011o", 0);
    header[156] = type;
    std::strncpy(header + 157, target.c_str(), 100);
    std::memcpy(header + 257, "ustar\00000", 8);
    std::memset(header + 148, ' ', 8);
    unsigned sum = 0;
    for (unsigned char c : header) sum += c;
    std::snprintf(header + 148, 8, "%06o", sum);
    bytes_.append(header, 512);
    bytes_ += content;
    bytes_.append((512 - content.size() % 512) % 512, '\0');
    return *this;
  }
  // GNU's way to write a name of more than 100 bytes.
  TarBytes& gnu_long(const std::string& name, const std::string& content) {
    entry("././@LongLink", name + '\0', 'L');
    return file(name.substr(0, 100), content);
  }
  // A pax header with a path in front of the file.
  TarBytes& pax(const std::string& name, const std::string& content) {
    std::string record = " path=" + name + "\n";
    size_t length = record.size() + 1;
    while (std::to_string(length).size() + record.size() != length) ++length;
    entry("PaxHeaders/x", std::to_string(length) + record, 'x');
    return file("short", content);
  }
  std::string end() const { return bytes_ + std::string(1024, '\0'); }
  const std::string& without_end() const { return bytes_; }

 private:
  std::string bytes_;
};

inline void write_text(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

// A header that says width × height and then nothing a decoder could use: the tests' decoder is a stub.
inline std::string fake_picture(int width, int height, int seed = 0) {
  std::string png("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16);
  for (int side : {width, height})
    for (int shift : {24, 16, 8, 0}) png.push_back(static_cast<char>(side >> shift));
  png += std::string("\x08\x02\0\0\0", 5) + "seed" + std::to_string(seed);
  return png;
}

// 2 × 3 "pixels" made of the file's bytes; a file that contains "broken" is a bad picture.
inline PictureDecoder stub_decoder(int64_t tokens = 4) {
  PictureDecoder decoder;
  decoder.shape = {3, 1, 2};
  decoder.tokens = tokens;
  decoder.decode = [](std::span<const std::byte> file, float* pixels) {
    std::string text(reinterpret_cast<const char*>(file.data()), file.size());
    if (text.find("broken") != std::string::npos) throw Error("damaged picture", "stub");
    for (int i = 0; i < 6; ++i) pixels[i] = static_cast<float>(static_cast<uint8_t>(text[text.size() - 1 - i]));
  };
  return decoder;
}

inline std::shared_ptr<const SampleAssembler> make_assembler(std::shared_ptr<const Dataset> data,
                                                             AssemblerOptions options = {},
                                                             PictureDecoder decoder = stub_decoder()) {
  std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer("bytes");
  options.image_token = *tokenizer->token_id("<image>");
  options.bytes_per_token = 1;
  return std::make_shared<SampleAssembler>(std::move(data), tokenizer, std::move(decoder), options);
}

}  // namespace mso::test
