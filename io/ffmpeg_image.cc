#include "io/ffmpeg_image.h"

extern "C" {
#include <libavutil/imgutils.h>
}

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>

#include "base/error.h"
#include "io/ffmpeg.h"
#include "io/frame_to_rgb.h"

namespace mso {
namespace {

[[noreturn]] void damaged(const ImageHeader& header, const std::string& why, const std::string& name) {
  throw Error(
      std::string(format_name(header.format)) + " picture is damaged or of an unsupported kind (" + why + ")",
      name, "copy it again, convert it to PNG or JPEG, or delete it", ExitCode::kBadData);
}

AVCodecID codec_of(ImageFormat format) {
  switch (format) {
    case ImageFormat::kPng:
      return AV_CODEC_ID_PNG;
    case ImageFormat::kWebp:
      return AV_CODEC_ID_WEBP;
    case ImageFormat::kGif:
      return AV_CODEC_ID_GIF;
    case ImageFormat::kBmp:
      return AV_CODEC_ID_BMP;
    case ImageFormat::kTiff:
      return AV_CODEC_ID_TIFF;
    case ImageFormat::kJpeg:
      break;
  }
  return AV_CODEC_ID_NONE;
}

uint32_t be32(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | p[1] << 16 | p[2] << 8 | p[3];
}

// The chunks that pixels depend on, so that a strange profile or text does not spoil a good picture, and
// animation is left out. FFmpeg knows no tRNS for gray of 1, 2 and 4 bits: there it is taken out and returned
// as `key`, in 8 bits. The structure was checked before.
std::vector<uint8_t> essential_png(std::span<const std::byte> bytes, ColourKey* key) {
  const uint8_t* p = reinterpret_cast<const uint8_t*>(bytes.data());
  const uint8_t depth = p[24], colour_type = p[25];
  std::vector<uint8_t> out(p, p + 8);
  out.reserve(bytes.size());
  for (size_t at = 8; at + 12 <= bytes.size();) {
    const size_t length = be32(p + at);
    const std::string_view type(reinterpret_cast<const char*>(p) + at + 4, 4);
    const bool small_gray_key = type == "tRNS" && colour_type == 0 && depth < 8;
    if (small_gray_key && length >= 2 && depth > 0)
      key->gray = (p[at + 9] & ((1 << depth) - 1)) * 255 / ((1 << depth) - 1);
    else if (type == "IHDR" || type == "PLTE" || type == "tRNS" || type == "IDAT" || type == "IEND")
      out.insert(out.end(), p + at, p + at + 12 + length);
    if (type == "IEND") break;
    at += 12 + length;
  }
  return out;
}

// Frames are filled with a byte before decoding (opaque: the byte), so that rows the decoder never wrote are
// seen.
int filled_buffer(AVCodecContext* context, AVFrame* frame, int flags) {
  const int result = avcodec_default_get_buffer2(context, frame, flags);
  if (result >= 0 && frame->buf[0]) {
    const int fill = *static_cast<const uint8_t*>(context->opaque);
    for (AVBufferRef* buffer : frame->buf)
      if (buffer) std::memset(buffer->data, fill, buffer->size);
  }
  return result;
}

AvFramePtr decode_frame(const ImageHeader& header, std::span<const uint8_t> data, uint8_t fill,
                        const std::string& name) {
  const AVCodec* codec = avcodec_find_decoder(codec_of(header.format));
  if (!codec) damaged(header, "this FFmpeg has no decoder for it", name);
  AvCodecContextPtr context(avcodec_alloc_context3(codec));
  AvPacketPtr packet(av_packet_alloc());
  AvFramePtr frame(av_frame_alloc());
  if (!context || !packet || !frame) throw std::bad_alloc();
  context->thread_count = 1;
  // TIFF's decoder takes any tag it does not know for a fault then.
  if (header.format != ImageFormat::kTiff)
    context->err_recognition = AV_EF_EXPLODE | AV_EF_BITSTREAM | AV_EF_BUFFER;
  context->max_pixels = (int64_t{header.width} + 63) / 64 * 64 * header.height;  // FFmpeg counts aligned rows
  context->opaque = &fill;
  context->get_buffer2 = filled_buffer;
  int result = avcodec_open2(context.get(), codec, nullptr);
  if (result >= 0) result = av_new_packet(packet.get(), static_cast<int>(data.size()));
  if (result >= 0) {
    std::copy(data.begin(), data.end(), packet->data);
    packet->flags |= AV_PKT_FLAG_KEY;
    result = avcodec_send_packet(context.get(), packet.get());
  }
  if (result >= 0) result = avcodec_receive_frame(context.get(), frame.get());
  if (result == AVERROR(EAGAIN)) {  // a decoder that waits for more: there is none
    avcodec_send_packet(context.get(), nullptr);
    result = avcodec_receive_frame(context.get(), frame.get());
  }
  if (result < 0) damaged(header, ffmpeg_error_text(result), name);
  if (frame->flags & AV_FRAME_FLAG_CORRUPT || frame->decode_error_flags)
    damaged(header, "corrupt data", name);
  if (frame->width != header.width || frame->height != header.height)
    damaged(header, "two sizes in one file", name);
  return frame;
}

// Rows of the first plane that hold nothing but `fill`, as flags.
std::vector<bool> untouched_rows(const AVFrame& frame, uint8_t fill) {
  std::vector<bool> rows(frame.height);
  const int bytes = av_image_get_linesize(static_cast<AVPixelFormat>(frame.format), frame.width, 0);
  for (int y = 0; y < frame.height; ++y) {
    const uint8_t* row = frame.data[0] + ptrdiff_t{y} * frame.linesize[0];
    rows[y] = bytes > 0 && std::all_of(row, row + bytes, [fill](uint8_t v) { return v == fill; });
  }
  return rows;
}

// Decodes, and decodes again with another fill where rows look untouched: either the picture has rows of
// exactly that byte, or pixels are missing, and then it shows.
AvFramePtr decode_whole_frame(const ImageHeader& header, std::span<const uint8_t> data,
                              const std::string& name) {
  constexpr uint8_t kFill = 0xA5, kOtherFill = 0x5A;
  AvFramePtr frame = decode_frame(header, data, kFill, name);
  const std::vector<bool> suspect = untouched_rows(*frame, kFill);
  if (std::find(suspect.begin(), suspect.end(), true) == suspect.end()) return frame;
  frame = decode_frame(header, data, kOtherFill, name);
  const std::vector<bool> again = untouched_rows(*frame, kOtherFill);
  for (int y = 0; y < frame->height; ++y)
    if (suspect[y] && again[y]) damaged(header, "rows are missing", name);
  return frame;
}

// An interlaced PNG's missing pixels do not show as untouched rows: FFmpeg fills them from earlier passes.
// Whether all its data are there is seen by reading the same data as a gray picture of one row. (Up to 16 MB
// of pixels; FFmpeg takes no longer rows.)
void check_interlaced_png(const std::vector<uint8_t>& png, const ImageHeader& header,
                          const std::string& name) {
  if (png[28] == 0) return;
  constexpr int kPasses[7][4] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                                 {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};  // x, y, steps
  constexpr int kChannels[7] = {1, 0, 3, 1, 2, 0, 4};
  const int bits = png[24] * (png[25] < 7 ? kChannels[png[25]] : 0);
  int64_t bytes = 0;
  for (const auto& [x, y, step_x, step_y] : kPasses) {
    const int64_t width = (int64_t{header.width} - x + step_x - 1) / step_x;
    const int64_t height = (int64_t{header.height} - y + step_y - 1) / step_y;
    if (width > 0 && height > 0) bytes += height * (1 + (width * bits + 7) / 8);
  }
  if (bytes < 2 || bytes > 16'000'000) return;
  std::vector<uint8_t> gray(png);
  ImageHeader one_row = header;
  one_row.width = static_cast<int>(bytes - 1);
  one_row.height = 1;
  for (int i = 0; i < 4; ++i) {
    gray[16 + i] = static_cast<uint8_t>(one_row.width >> (24 - 8 * i));
    gray[20 + i] = i == 3;
  }
  gray[24] = 8;  // depth
  gray[25] = gray[28] = 0;
  // PLTE and tRNS would be refused or applied: keep the header, the data and the end.
  for (size_t at = 33; at + 12 <= gray.size();) {
    const size_t length = be32(gray.data() + at);
    const std::string_view type(reinterpret_cast<const char*>(gray.data()) + at + 4, 4);
    if (type == "PLTE" || type == "tRNS") {
      gray.erase(gray.begin() + static_cast<ptrdiff_t>(at),
                 gray.begin() + static_cast<ptrdiff_t>(at + 12 + length));
      continue;
    }
    at += 12 + length;
  }
  decode_whole_frame(one_row, gray, name);
}

}  // namespace

void decode_with_ffmpeg(std::span<const std::byte> bytes, const ImageHeader& header, const std::string& name,
                        Image* out) {
  route_ffmpeg_messages();
  if (bytes.size() > INT32_MAX / 2) damaged(header, "larger than 1 GiB", name);
  ColourKey key;
  std::vector<uint8_t> png;
  std::span<const uint8_t> data(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  if (header.format == ImageFormat::kPng) data = png = essential_png(bytes, &key);

  const AvFramePtr frame = decode_whole_frame(header, data, name);
  if (header.format == ImageFormat::kPng) check_interlaced_png(png, header, name);
  if (!frame_to_rgb(*frame, key, out)) damaged(header, "unknown pixel format", name);
}

}  // namespace mso
