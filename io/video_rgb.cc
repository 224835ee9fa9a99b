#include "io/video_rgb.h"

#include <cstdlib>
#include <cstring>

extern "C" {
#include <libavutil/opt.h>
}

namespace mso {
namespace {

struct Rgb {
  uint8_t r, g, b;
};

bool is_420(int format) {
  const AVPixFmtDescriptor* d = av_pix_fmt_desc_get(static_cast<AVPixelFormat>(format));
  return d && d->log2_chroma_w == 1 && d->log2_chroma_h == 1;
}

void turn(const uint8_t* rows, int stride, int width, int height, Orientation o, uint8_t* rgb) {
  const int out_width = o.swap_sides ? height : width, out_height = o.swap_sides ? width : height;
  Rgb* to = reinterpret_cast<Rgb*>(rgb);
  for (int y = 0; y < out_height; ++y)
    for (int x = 0; x < out_width; ++x) {
      int column = o.swap_sides ? y : x, row = o.swap_sides ? x : y;
      if (o.flip_columns) column = width - 1 - column;
      if (o.flip_rows) row = height - 1 - row;
      *to++ = reinterpret_cast<const Rgb*>(rows + ptrdiff_t{stride} * row)[column];
    }
}

}  // namespace

Orientation orientation_of(const int32_t m[9]) {
  // x' = m[0] x + m[3] y, y' = m[1] x + m[4] y
  const auto size = [&](int i) { return std::llabs(m[i]); };
  const bool straight = size(0) > 64 * size(1) && size(4) > 64 * size(3);
  const bool crossed = size(1) > 64 * size(0) && size(3) > 64 * size(4);
  if (straight) return {false, m[0] < 0, m[4] < 0};
  if (crossed) return {true, m[1] < 0, m[3] < 0};
  return {};
}

bool FrameConverter::prepare(const AVFrame& frame) {
  if (scaler_ && in_width_ == frame.width && in_height_ == frame.height && in_format_ == frame.format &&
      in_matrix_ == frame.colorspace && in_range_ == frame.color_range)
    return true;
  const auto format = static_cast<AVPixelFormat>(frame.format);
  if (frame.width <= 0 || frame.height <= 0 || !sws_isSupportedInput(format)) return false;
  scaler_.reset(sws_alloc_context());
  if (!scaler_) return false;
  const auto set = [&](const char* key, int64_t value) { av_opt_set_int(scaler_.get(), key, value, 0); };
  set("srcw", frame.width);
  set("srch", frame.height);
  set("src_format", frame.format);
  set("dstw", width_);
  set("dsth", height_);
  set("dst_format", AV_PIX_FMT_RGB24);
  set("sws_flags", SWS_BICUBIC);
  if (is_420(frame.format)) set("src_v_chr_pos", 128);
  if (frame.color_range != AVCOL_RANGE_UNSPECIFIED) set("src_range", frame.color_range == AVCOL_RANGE_JPEG);
  if (sws_init_context(scaler_.get(), nullptr, nullptr) < 0) {
    scaler_.reset();
    return false;
  }
  int *inverse, *table;
  int in_full, out_full, brightness, contrast, saturation;
  if (sws_getColorspaceDetails(scaler_.get(), &inverse, &in_full, &table, &out_full, &brightness, &contrast,
                               &saturation) >= 0) {
    // swscale takes numbers it does not know for BT.601.
    const int* matrix =
        sws_getCoefficients(frame.colorspace == AVCOL_SPC_UNSPECIFIED ? SWS_CS_ITU601 : frame.colorspace);
    if (frame.color_range != AVCOL_RANGE_UNSPECIFIED) in_full = frame.color_range == AVCOL_RANGE_JPEG;
    sws_setColorspaceDetails(scaler_.get(), matrix, in_full, table, out_full, brightness, contrast,
                             saturation);
  }
  in_width_ = frame.width;
  in_height_ = frame.height;
  in_format_ = frame.format;
  in_matrix_ = frame.colorspace;
  in_range_ = frame.color_range;
  return true;
}

bool FrameConverter::convert(const AVFrame& frame, uint8_t* rgb) {
  if (!prepare(frame)) return false;
  const bool direct = orientation_.upright() && width_ % 64 == 0;  // such rows have no rest to write past
  uint8_t* planes[4] = {rgb};
  int strides[4] = {3 * width_};
  if (!direct) {
    stride_ = (width_ * 3 + 63) / 64 * 64;
    rows_.resize(size_t(stride_) * height_ + 64);
    planes[0] = rows_.data();
    strides[0] = stride_;
  }
  if (sws_scale(scaler_.get(), frame.data, frame.linesize, 0, frame.height, planes, strides) != height_)
    return false;
  if (direct) return true;
  if (!orientation_.upright()) {
    turn(rows_.data(), stride_, width_, height_, orientation_, rgb);
    return true;
  }
  for (int y = 0; y < height_; ++y)
    std::memcpy(rgb + size_t{3} * width_ * y, rows_.data() + size_t(stride_) * y, size_t{3} * width_);
  return true;
}

}  // namespace mso
