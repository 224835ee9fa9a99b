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
  context->err_recognition = AV_EF_EXPLODE | AV_EF_CRCCHECK | AV_EF_BITSTREAM | AV_EF_BUFFER;
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

}  // namespace

void decode_with_ffmpeg(std::span<const std::byte> bytes, const ImageHeader& header, const std::string& name,
                        Image* out) {
  route_ffmpeg_messages();
  if (bytes.size() > INT32_MAX / 2) damaged(header, "larger than 1 GiB", name);
  ColourKey key;
  std::vector<uint8_t> png;
  std::span<const uint8_t> data(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  if (header.format == ImageFormat::kPng) data = png = essential_png(bytes, &key);

  constexpr uint8_t kFill = 0xA5, kOtherFill = 0x5A;
  AvFramePtr frame = decode_frame(header, data, kFill, name);
  const std::vector<bool> suspect = untouched_rows(*frame, kFill);
  if (std::find(suspect.begin(), suspect.end(), true) != suspect.end()) {
    // Either the picture has rows of exactly that byte, or pixels are missing: with another byte it shows.
    frame = decode_frame(header, data, kOtherFill, name);
    const std::vector<bool> again = untouched_rows(*frame, kOtherFill);
    for (int y = 0; y < frame->height; ++y)
      if (suspect[y] && again[y]) damaged(header, "rows are missing", name);
  }
  if (!frame_to_rgb(*frame, key, out)) damaged(header, "unknown pixel format", name);
}

}  // namespace mso
