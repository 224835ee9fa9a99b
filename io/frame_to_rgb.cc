#include "io/frame_to_rgb.h"

extern "C" {
#include <libswscale/swscale.h>
}

#include <algorithm>
#include <memory>

namespace mso {
namespace {

// 16-bit colour and alpha, on white, to 8 bits in one rounding.
uint8_t on_white_16(uint64_t colour, uint64_t alpha) {
  constexpr uint64_t kDivisor = uint64_t{65535} * 257;
  return static_cast<uint8_t>((colour * alpha + 65535 * (65535 - alpha) + kDivisor / 2) / kDivisor);
}

void palette_rows(const AVFrame& f, Image* out) {
  const uint32_t* palette = reinterpret_cast<const uint32_t*>(f.data[1]);  // native-endian ARGB
  uint8_t table[256][3];
  for (int i = 0; i < 256; ++i)
    for (int c = 0; c < 3; ++c) table[i][c] = on_white(palette[i] >> (16 - 8 * c) & 255, palette[i] >> 24);
  uint8_t* to = out->rgb.data();
  for (int y = 0; y < f.height; ++y) {
    const uint8_t* from = f.data[0] + ptrdiff_t{y} * f.linesize[0];
    for (int x = 0; x < f.width; ++x, to += 3) std::copy_n(table[from[x]], 3, to);
  }
}

void gray_rows(const AVFrame& f, ColourKey key, Image* out) {
  uint8_t* to = out->rgb.data();
  for (int y = 0; y < f.height; ++y) {
    const uint8_t* from = f.data[0] + ptrdiff_t{y} * f.linesize[0];
    for (int x = 0; x < f.width; ++x, to += 3) {
      const uint8_t v = from[x] == key.gray ? 255 : from[x];
      to[0] = to[1] = to[2] = v;
    }
  }
}

// Packed 8-bit samples, `step` bytes a pixel; offsets of red, green, blue and alpha (alpha < 0: none).
void packed_rows(const AVFrame& f, int step, int r, int g, int b, int a, Image* out) {
  uint8_t* to = out->rgb.data();
  for (int y = 0; y < f.height; ++y) {
    const uint8_t* from = f.data[0] + ptrdiff_t{y} * f.linesize[0];
    for (int x = 0; x < f.width; ++x, from += step, to += 3) {
      if (a < 0 || from[a] == 255) {
        to[0] = from[r];
        to[1] = from[g];
        to[2] = from[b];
      } else {
        to[0] = on_white(from[r], from[a]);
        to[1] = on_white(from[g], from[a]);
        to[2] = on_white(from[b], from[a]);
      }
    }
  }
}

// Any gray or RGB format of integers up to 16 bits, by its description.
void described_rows(const AVFrame& f, const AVPixFmtDescriptor& d, ColourKey key, Image* out) {
  const bool has_alpha = d.flags & AV_PIX_FMT_FLAG_ALPHA;
  const int colours = d.nb_components - (has_alpha ? 1 : 0);
  const bool inverted = f.format == AV_PIX_FMT_MONOWHITE;
  const size_t width = f.width;
  std::vector<uint16_t> line(width * 4, 65535);
  std::vector<uint16_t> samples(width);
  uint8_t* to = out->rgb.data();
  for (int y = 0; y < f.height; ++y) {
    for (int c = 0; c < d.nb_components; ++c) {
      av_read_image_line2(samples.data(), const_cast<const uint8_t**>(f.data), f.linesize, &d, 0, y, c,
                          f.width, 0, 2);
      const uint32_t largest = (1u << d.comp[c].depth) - 1;
      uint16_t* into = line.data() + width * (c == colours ? 3 : c);
      for (size_t x = 0; x < width; ++x) {
        const uint32_t v = (samples[x] * 65535u + largest / 2) / largest;
        into[x] = static_cast<uint16_t>(inverted ? 65535 - v : v);
      }
    }
    const uint16_t* red = line.data();
    const uint16_t* green = colours == 1 ? red : red + width;
    const uint16_t* blue = colours == 1 ? red : red + 2 * width;
    const uint16_t* alpha = line.data() + 3 * width;
    for (size_t x = 0; x < width; ++x, to += 3) {
      const unsigned a = key.gray >= 0 && red[x] == key.gray * 257 ? 0 : alpha[x];
      to[0] = on_white_16(red[x], a);
      to[1] = on_white_16(green[x], a);
      to[2] = on_white_16(blue[x], a);
    }
  }
}

// BT.601 studio-range conversion in the fixed point of libwebp (src/dsp/yuv.h), so that lossy WebP equals
// Pillow.
uint8_t clip_6_bits(int v) {
  return static_cast<uint8_t>(std::clamp(v >> 6, 0, 255));
}
void yuv_to_rgb(int y, int u, int v, uint8_t* rgb) {
  auto high = [](int value, int coefficient) { return value * coefficient >> 8; };
  const int luma = high(y, 19077);
  rgb[0] = clip_6_bits(luma + high(v, 26149) - 14234);
  rgb[1] = clip_6_bits(luma - high(u, 6419) - high(v, 13320) + 8708);
  rgb[2] = clip_6_bits(luma + high(u, 33050) - 17685);
}

// One chroma sample at full resolution: 9-3-3-1 weights with libwebp's intermediate roundings ("fancy
// upsampling"). `near`/`far`: chroma rows by distance from the luma row; a/b: chroma columns likewise.
int upsample(const uint8_t* near, const uint8_t* far, int a, int b) {
  if (b < 0) return (3 * near[a] + far[a] + 2) >> 2;  // at the left or right edge
  const int sum = near[a] + near[b] + far[a] + far[b] + 8;
  return (((sum + 2 * (near[b] + far[a])) >> 3) + near[a]) >> 1;
}

void webp_rows(const AVFrame& f, Image* out) {
  const int chroma_w = (f.width + 1) / 2, chroma_h = (f.height + 1) / 2;
  const bool has_alpha = f.format == AV_PIX_FMT_YUVA420P;
  uint8_t* to = out->rgb.data();
  for (int y = 0; y < f.height; ++y) {
    const int near = y / 2, far = std::clamp(y % 2 ? near + 1 : near - 1, 0, chroma_h - 1);
    const uint8_t* luma = f.data[0] + ptrdiff_t{y} * f.linesize[0];
    const uint8_t* alpha = has_alpha ? f.data[3] + ptrdiff_t{y} * f.linesize[3] : nullptr;
    const uint8_t* u[2] = {f.data[1] + ptrdiff_t{near} * f.linesize[1],
                           f.data[1] + ptrdiff_t{far} * f.linesize[1]};
    const uint8_t* v[2] = {f.data[2] + ptrdiff_t{near} * f.linesize[2],
                           f.data[2] + ptrdiff_t{far} * f.linesize[2]};
    for (int x = 0; x < f.width; ++x, to += 3) {
      const int a = x / 2;
      int b = x % 2 ? a + 1 : a - 1;
      if (b >= chroma_w) b = -1;
      yuv_to_rgb(luma[x], upsample(u[0], u[1], a, b), upsample(v[0], v[1], a, b), to);
      if (alpha && alpha[x] != 255)
        for (int c = 0; c < 3; ++c) to[c] = on_white(to[c], alpha[x]);
    }
  }
}

bool swscale_rows(const AVFrame& f, Image* out) {
  std::unique_ptr<SwsContext, void (*)(SwsContext*)> scaler(
      sws_getContext(f.width, f.height, static_cast<AVPixelFormat>(f.format), f.width, f.height,
                     AV_PIX_FMT_RGB24,
                     SWS_BILINEAR | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_FULL_CHR_H_INP, nullptr,
                     nullptr, nullptr),
      sws_freeContext);
  if (!scaler) return false;
  // swscale may write some bytes past a row's end: give it rows of its own.
  const int stride = (f.width * 3 + 63) / 64 * 64;
  std::vector<uint8_t> rows(size_t(stride) * f.height + 64);
  uint8_t* planes[4] = {rows.data()};
  const int strides[4] = {stride};
  if (sws_scale(scaler.get(), f.data, f.linesize, 0, f.height, planes, strides) != f.height) return false;
  for (int y = 0; y < f.height; ++y)
    std::copy_n(rows.data() + size_t(stride) * y, size_t(f.width) * 3,
                out->rgb.data() + size_t(f.width) * 3 * y);
  return true;
}

}  // namespace

bool frame_to_rgb(const AVFrame& f, ColourKey key, Image* out) {
  const AVPixFmtDescriptor* d = av_pix_fmt_desc_get(static_cast<AVPixelFormat>(f.format));
  if (!d || f.width <= 0 || f.height <= 0) return false;
  out->width = f.width;
  out->height = f.height;
  out->rgb.resize(size_t(f.width) * f.height * 3);
  switch (f.format) {
    case AV_PIX_FMT_PAL8:
      palette_rows(f, out);
      return true;
    case AV_PIX_FMT_GRAY8:
      gray_rows(f, key, out);
      return true;
    case AV_PIX_FMT_RGB24:
      packed_rows(f, 3, 0, 1, 2, -1, out);
      return true;
    case AV_PIX_FMT_BGR24:
      packed_rows(f, 3, 2, 1, 0, -1, out);
      return true;
    case AV_PIX_FMT_RGBA:
      packed_rows(f, 4, 0, 1, 2, 3, out);
      return true;
    case AV_PIX_FMT_BGRA:
      packed_rows(f, 4, 2, 1, 0, 3, out);
      return true;
    case AV_PIX_FMT_ARGB:
      packed_rows(f, 4, 1, 2, 3, 0, out);
      return true;
    case AV_PIX_FMT_YUV420P:
    case AV_PIX_FMT_YUVA420P:
      webp_rows(f, out);
      return true;
    default:
      break;
  }
  constexpr uint64_t kOther =
      AV_PIX_FMT_FLAG_FLOAT | AV_PIX_FMT_FLAG_BAYER | AV_PIX_FMT_FLAG_HWACCEL | AV_PIX_FMT_FLAG_PAL;
  const bool integers =
      std::all_of(d->comp, d->comp + d->nb_components, [](const auto& c) { return c.depth <= 16; });
  const int colours = d->nb_components - (d->flags & AV_PIX_FMT_FLAG_ALPHA ? 1 : 0);
  if (!(d->flags & kOther) && integers &&
      (colours == 1 || (colours == 3 && d->flags & AV_PIX_FMT_FLAG_RGB))) {
    described_rows(f, *d, key, out);
    return true;
  }
  return !(d->flags & AV_PIX_FMT_FLAG_HWACCEL) && swscale_rows(f, out);
}

}  // namespace mso
