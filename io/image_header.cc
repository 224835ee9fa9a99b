#include "io/image_header.h"

#include <array>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace mso {
namespace {

[[noreturn]] void bad(const std::string& what, const std::string& name, const std::string& hint = "") {
  throw Error(what, name, hint, ExitCode::kBadData);
}

// Bounds-checked reads from a picture file; a read past the end is the Error "cut short".
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& name, const char* format)
      : bytes_(bytes), name_(name), format_(format) {}

  size_t size() const { return bytes_.size(); }
  void need(uint64_t offset, uint64_t count) const {
    if (offset > bytes_.size() || count > bytes_.size() - offset)
      bad(std::string(format_) + " picture is cut short", name_,
          "it has " + std::to_string(bytes_.size()) + " bytes; copy it again or delete it");
  }
  uint32_t u8(uint64_t offset) const {
    need(offset, 1);
    return static_cast<uint32_t>(bytes_[offset]);
  }
  uint32_t be16(uint64_t o) const { return u8(o) << 8 | u8(o + 1); }
  uint32_t be32(uint64_t o) const { return be16(o) << 16 | be16(o + 2); }
  uint32_t le16(uint64_t o) const { return u8(o) | u8(o + 1) << 8; }
  uint32_t le24(uint64_t o) const { return le16(o) | u8(o + 2) << 16; }
  uint32_t le32(uint64_t o) const { return le16(o) | le16(o + 2) << 16; }
  std::string_view text(uint64_t offset, size_t count) const {
    need(offset, count);
    return {reinterpret_cast<const char*>(bytes_.data()) + offset, count};
  }
  std::span<const std::byte> part(uint64_t offset, uint64_t count) const {
    need(offset, count);
    return bytes_.subspan(offset, count);
  }
  const std::string& name() const { return name_; }

 private:
  std::span<const std::byte> bytes_;
  const std::string& name_;
  const char* format_;
};

// Values of the first directory of a TIFF structure that matter here; EXIF data are one too.
struct TiffFields {
  struct Values {
    uint32_t type = 0, count = 0;
    uint64_t at = 0;  // where they stand
  };
  Values offsets, sizes;  // of strips or tiles
  uint32_t width = 0, height = 0;
  int orientation = 1;
};

// Never throws for EXIF (`strict` false): damaged EXIF data do not make a picture unusable.
TiffFields read_tiff_fields(std::span<const std::byte> b, bool strict, const std::string& name) {
  TiffFields fields;
  const Reader r(b, name, "TIFF");
  if (b.size() < 8) {
    if (strict) r.need(0, 8);
    return fields;
  }
  const bool little = r.u8(0) == 'I';
  auto u16 = [&](uint64_t o) { return little ? r.le16(o) : r.be16(o); };
  auto u32 = [&](uint64_t o) { return little ? r.le32(o) : r.be32(o); };
  const uint64_t directory = u32(4);
  if (directory + 2 > b.size()) {
    if (strict) r.need(directory, 2);
    return fields;
  }
  const uint32_t entries = u16(directory);
  for (uint32_t i = 0; i < entries; ++i) {
    const uint64_t entry = directory + 2 + uint64_t{12} * i;
    if (entry + 12 > b.size()) {
      if (strict) r.need(entry, 12);
      break;
    }
    const uint32_t tag = u16(entry), type = u16(entry + 2);
    const uint32_t value = type == 3 ? u16(entry + 8) : type == 1 ? r.u8(entry + 8) : u32(entry + 8);
    if (tag == 256) fields.width = value;
    if (tag == 257) fields.height = value;
    if (tag == 273 || tag == 324 || tag == 279 || tag == 325) {
      TiffFields::Values& v = tag == 273 || tag == 324 ? fields.offsets : fields.sizes;
      v = {type, u32(entry + 4), entry + 8};
      if (uint64_t{v.count} * (type == 3 ? 2 : 4) > 4) v.at = u32(entry + 8);
    }
    if (tag == 274 && value >= 1 && value <= 8) fields.orientation = static_cast<int>(value);
  }
  return fields;
}

int exif_orientation(std::span<const std::byte> exif, const std::string& name) {
  static constexpr std::string_view kPrefix("Exif\0\0", 6);
  if (exif.size() >= 6 && std::memcmp(exif.data(), kPrefix.data(), 6) == 0) exif = exif.subspan(6);
  if (exif.size() < 8) return 1;
  const char* p = reinterpret_cast<const char*>(exif.data());
  if (std::memcmp(p, "II*\0", 4) != 0 && std::memcmp(p, "MM\0*", 4) != 0) return 1;
  return read_tiff_fields(exif, false, name).orientation;
}

void read_jpeg(const Reader& r, ImageHeader* header) {
  bool have_size = false;
  for (uint64_t at = 2;;) {
    if (r.u8(at) != 0xFF) {  // stray bytes between markers: libjpeg skips them, so do we
      ++at;
      continue;
    }
    const uint32_t marker = r.u8(at + 1);
    if (marker == 0xFF) {
      ++at;
      continue;
    }
    at += 2;
    if (marker == 0x00 || marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) continue;
    if (marker == 0xD9 || marker == 0xDA) break;
    const uint32_t length = r.be16(at);
    if (length < 2) bad("JPEG header is damaged (marker of impossible length)", r.name());
    if (marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC &&
        !have_size) {
      header->height = static_cast<int>(r.be16(at + 3));
      header->width = static_cast<int>(r.be16(at + 5));
      have_size = true;
    } else if (marker == 0xE1 && length >= 16 && r.text(at + 2, 6) == std::string_view("Exif\0\0", 6)) {
      header->orientation = exif_orientation(r.part(at + 2, length - 2), r.name());
    }
    at += length;
  }
  if (!have_size) bad("JPEG has no frame header", r.name());
}

void read_png(const Reader& r, ImageHeader* header) {
  if (r.text(12, 4) != "IHDR") bad("PNG does not begin with IHDR", r.name());
  const uint32_t width = r.be32(16), height = r.be32(20);
  if (width > INT32_MAX || height > INT32_MAX) bad("PNG header is damaged (impossible size)", r.name());
  header->width = static_cast<int>(width);
  header->height = static_cast<int>(height);
  // eXIf may stand after the pixels too; hopping over chunks is cheap. The end is checked by decode, not
  // here.
  for (uint64_t at = 8; at + 8 <= r.size();) {
    const uint64_t length = r.be32(at);
    const auto type = r.text(at + 4, 4);
    if (at + 12 + length > r.size() || type == "IEND") break;
    if (type == "eXIf") header->orientation = exif_orientation(r.part(at + 8, length), r.name());
    at += 12 + length;
  }
}

void read_webp(const Reader& r, ImageHeader* header) {
  const auto type = r.text(12, 4);
  if (type == "VP8X") {
    header->width = static_cast<int>(r.le24(24) + 1);
    header->height = static_cast<int>(r.le24(27) + 1);
    for (uint64_t at = 12; at + 8 <= r.size();) {
      const uint64_t length = r.le32(at + 4);
      if (at + 8 + length > r.size()) break;
      if (r.text(at, 4) == "EXIF") header->orientation = exif_orientation(r.part(at + 8, length), r.name());
      at += 8 + length + (length & 1);
    }
  } else if (type == "VP8L") {
    const uint32_t bits = r.le32(21);
    header->width = static_cast<int>((bits & 0x3FFF) + 1);
    header->height = static_cast<int>((bits >> 14 & 0x3FFF) + 1);
  } else if (type == "VP8 ") {
    if (r.text(23, 3) != "\x9D\x01\x2A") bad("WebP header is damaged", r.name());
    header->width = static_cast<int>(r.le16(26) & 0x3FFF);
    header->height = static_cast<int>(r.le16(28) & 0x3FFF);
  } else {
    bad("WebP holds no picture", r.name());
  }
}

void read_bmp(const Reader& r, ImageHeader* header) {
  const uint32_t size = r.le32(14);
  int64_t width, height;
  if (size == 12) {
    width = r.le16(18);
    height = r.le16(20);
  } else {
    width = static_cast<int32_t>(r.le32(18));
    height = static_cast<int32_t>(r.le32(22));  // negative: rows stored top to bottom
    if (height < 0) height = -height;
  }
  if (width <= 0 || height <= 0 || height > INT32_MAX)
    bad("BMP header is damaged (impossible size)", r.name());
  header->width = static_cast<int>(width);
  header->height = static_cast<int>(height);
}

void read_tiff(std::span<const std::byte> bytes, const std::string& name, ImageHeader* header) {
  const TiffFields fields = read_tiff_fields(bytes, true, name);
  if (fields.width > INT32_MAX || fields.height > INT32_MAX)
    bad("TIFF header is damaged (impossible size)", name);
  header->width = static_cast<int>(fields.width);
  header->height = static_cast<int>(fields.height);
  header->orientation = fields.orientation;
}

// CRC-32 of PNG (ISO 3309), slice-by-4.
uint32_t png_crc(std::span<const std::byte> data) {
  static const auto kTables = [] {
    std::array<std::array<uint32_t, 256>, 4> t{};
    for (uint32_t n = 0; n < 256; ++n) {
      uint32_t c = n;
      for (int k = 0; k < 8; ++k) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
      t[0][n] = c;
    }
    for (uint32_t n = 0; n < 256; ++n)
      for (int k = 1; k < 4; ++k) t[k][n] = t[k - 1][n] >> 8 ^ t[0][t[k - 1][n] & 255];
    return t;
  }();
  uint32_t crc = ~0u;
  const auto* p = reinterpret_cast<const unsigned char*>(data.data());
  size_t n = data.size();
  for (; n >= 4; n -= 4, p += 4) {
    crc ^= p[0] | p[1] << 8 | p[2] << 16 | static_cast<uint32_t>(p[3]) << 24;
    crc = kTables[3][crc & 255] ^ kTables[2][crc >> 8 & 255] ^ kTables[1][crc >> 16 & 255] ^
          kTables[0][crc >> 24];
  }
  for (; n > 0; --n, ++p) crc = crc >> 8 ^ kTables[0][(crc ^ *p) & 255];
  return ~crc;
}

void check_png(const Reader& r, const ImageHeader& header) {
  // Deflate packs at most 1032 to 1: a header that claims more pixels than the file can hold is hostile.
  const uint64_t bits = std::max<uint64_t>(1, r.u8(24));
  if (static_cast<uint64_t>(header.width) * header.height / 8 * bits / 1100 > r.size())
    bad("PNG header claims more pixels than the file can hold", r.name());
  bool have_data = false;
  for (uint64_t at = 8;;) {
    const uint64_t length = r.be32(at);
    const auto type = r.text(at + 4, 4);
    r.need(at, length + 12);
    if (png_crc(r.part(at + 4, length + 4)) != r.be32(at + 8 + length))
      bad("PNG checksum is wrong in chunk " + std::string(type), r.name(),
          "the file is damaged; copy it again");
    have_data |= type == "IDAT";
    if (type == "IEND") break;
    at += 12 + length;
  }
  if (!have_data) bad("PNG holds no pixels", r.name());
}

void check_webp(const Reader& r) {
  const uint64_t end = uint64_t{8} + r.le32(4);
  r.need(0, end);
  for (uint64_t at = 12; at + 8 <= end;) {
    const uint64_t length = r.le32(at + 4);
    r.need(at + 8, length);
    at += 8 + length + (length & 1);
  }
}

void check_gif(const Reader& r) {
  const uint32_t flags = r.u8(10);
  uint64_t at = 13 + (flags & 0x80 ? uint64_t{3} << ((flags & 7) + 1) : 0);
  auto skip_blocks = [&] {
    while (const uint32_t length = r.u8(at)) at += 1 + length;
    ++at;
  };
  bool have_frame = false;
  // Some writers forget the trailer: the end of the file between blocks is taken as one.
  while (!(have_frame && at == r.size())) {
    const uint32_t kind = r.u8(at);
    if (kind == 0x3B) break;
    if (kind == 0x21) {
      at += 2;
      skip_blocks();
    } else if (kind == 0x2C) {
      const uint32_t local = r.u8(at + 9);
      at += 10 + (local & 0x80 ? uint64_t{3} << ((local & 7) + 1) : 0) + 1;
      skip_blocks();
      have_frame = true;
    } else if (have_frame) {
      break;  // garbage after the first frame does not concern it
    } else {
      bad("GIF is damaged (unknown block)", r.name());
    }
  }
  if (!have_frame) bad("GIF holds no picture", r.name());
}

void check_bmp(const Reader& r) {
  const uint64_t claimed = r.le32(2), pixels_at = r.le32(10);
  r.need(pixels_at, 1);
  // Some writers leave the file size 0 or wrong by a few bytes; a cut file lacks more than that.
  if (claimed > r.size() + 4 && claimed > pixels_at) r.need(0, claimed);
}

// All strips or tiles must lie within the file: FFmpeg shows what it has and is silent about the rest.
void check_tiff(std::span<const std::byte> bytes, const std::string& name) {
  const TiffFields fields = read_tiff_fields(bytes, true, name);
  const Reader r(bytes, name, "TIFF");
  const bool little = r.u8(0) == 'I';
  auto value = [&](const TiffFields::Values& v, uint32_t i) {
    if (v.type == 3) return little ? r.le16(v.at + 2 * uint64_t{i}) : r.be16(v.at + 2 * uint64_t{i});
    return little ? r.le32(v.at + 4 * uint64_t{i}) : r.be32(v.at + 4 * uint64_t{i});
  };
  if (fields.offsets.count == 0 || (fields.sizes.count != 0 && fields.sizes.count != fields.offsets.count))
    bad("TIFF holds no pixels", name);
  for (uint32_t i = 0; i < fields.offsets.count; ++i)
    r.need(value(fields.offsets, i), fields.sizes.count ? value(fields.sizes, i) : 1);
}

}  // namespace

const char* format_name(ImageFormat format) {
  switch (format) {
    case ImageFormat::kJpeg:
      return "jpeg";
    case ImageFormat::kPng:
      return "png";
    case ImageFormat::kWebp:
      return "webp";
    case ImageFormat::kGif:
      return "gif";
    case ImageFormat::kBmp:
      return "bmp";
    case ImageFormat::kTiff:
      return "tiff";
  }
  return "unknown";
}

ImageHeader read_image_header(std::span<const std::byte> bytes, const std::string& name) {
  if (bytes.empty()) bad("picture is empty (0 bytes)", name, "copy it again or delete it");
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                               std::min<size_t>(bytes.size(), 16));
  ImageHeader header;
  auto is = [&](std::string_view magic) { return start.starts_with(magic); };
  if (is("\xFF\xD8\xFF")) {
    header.format = ImageFormat::kJpeg;
    read_jpeg(Reader(bytes, name, "JPEG"), &header);
  } else if (is("\x89PNG\r\n\x1A\n")) {
    header.format = ImageFormat::kPng;
    read_png(Reader(bytes, name, "PNG"), &header);
  } else if (is("RIFF") && start.size() >= 12 && start.substr(8, 4) == "WEBP") {
    header.format = ImageFormat::kWebp;
    read_webp(Reader(bytes, name, "WebP"), &header);
  } else if (is("GIF87a") || is("GIF89a")) {
    header.format = ImageFormat::kGif;
    const Reader r(bytes, name, "GIF");
    header.width = static_cast<int>(r.le16(6));
    header.height = static_cast<int>(r.le16(8));
  } else if (is("BM") && bytes.size() >= 26) {
    header.format = ImageFormat::kBmp;
    read_bmp(Reader(bytes, name, "BMP"), &header);
  } else if (is(std::string_view("II*\0", 4)) || is(std::string_view("MM\0*", 4))) {
    header.format = ImageFormat::kTiff;
    read_tiff(bytes, name, &header);
  } else {
    bad("not a picture of a known format (JPEG, PNG, WebP, GIF, BMP, TIFF)", name,
        "the content decides, not the name; convert it or delete it");
  }
  if (header.width <= 0 || header.height <= 0)
    bad(std::string(format_name(header.format)) + " header is damaged (no width or height)", name);
  return header;
}

void check_image_structure(std::span<const std::byte> bytes, const ImageHeader& header,
                           const std::string& name) {
  switch (header.format) {
    case ImageFormat::kPng:
      return check_png(Reader(bytes, name, "PNG"), header);
    case ImageFormat::kWebp:
      return check_webp(Reader(bytes, name, "WebP"));
    case ImageFormat::kGif:
      return check_gif(Reader(bytes, name, "GIF"));
    case ImageFormat::kBmp:
      return check_bmp(Reader(bytes, name, "BMP"));
    case ImageFormat::kTiff:
      return check_tiff(bytes, name);
    case ImageFormat::kJpeg:
      return;
  }
}

}  // namespace mso
