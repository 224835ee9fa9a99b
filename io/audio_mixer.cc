#include "io/audio_mixer.h"

#include <cstdint>

extern "C" {
#include <libavutil/samplefmt.h>
}

namespace mso {
namespace {

// Offset and scale of a sample: (v − zero) · scale.
template <typename T>
struct Scale {
  static constexpr double zero = 0, scale = 1;
};
template <>
struct Scale<uint8_t> {
  static constexpr double zero = 128, scale = 1.0 / 128;
};
template <>
struct Scale<int16_t> {
  static constexpr double zero = 0, scale = 1.0 / 32768;
};
template <>
struct Scale<int32_t> {
  static constexpr double zero = 0, scale = 1.0 / 2147483648.0;
};
template <>
struct Scale<int64_t> {
  static constexpr double zero = 0, scale = 1.0 / 9223372036854775808.0;
};

// Sums in double: exact for integers, and the mean of one channel is the sample itself.
template <typename T>
void mix(const AVFrame& frame, bool planar, std::vector<float>* mono) {
  const int samples = frame.nb_samples, channels = frame.ch_layout.nb_channels;
  float* out = mono->data();
  const double scale = Scale<T>::scale / channels, zero = Scale<T>::zero * channels;
  if (channels == 1) {
    const T* in = reinterpret_cast<const T*>(frame.extended_data[0]);
    for (int i = 0; i < samples; ++i)
      out[i] = static_cast<float>((static_cast<double>(in[i]) - zero) * scale);
  } else if (planar && channels == 2) {
    const T* left = reinterpret_cast<const T*>(frame.extended_data[0]);
    const T* right = reinterpret_cast<const T*>(frame.extended_data[1]);
    for (int i = 0; i < samples; ++i)
      out[i] =
          static_cast<float>((static_cast<double>(left[i]) + static_cast<double>(right[i]) - zero) * scale);
  } else {
    for (int i = 0; i < samples; ++i) {
      double sum = -zero;
      for (int c = 0; c < channels; ++c)
        sum += static_cast<double>(
            planar ? reinterpret_cast<const T*>(frame.extended_data[c])[i]
                   : reinterpret_cast<const T*>(frame.extended_data[0])[size_t(i) * channels + c]);
      out[i] = static_cast<float>(sum * scale);
    }
  }
}

}  // namespace

bool mix_to_mono(const AVFrame& frame, std::vector<float>* mono) {
  if (frame.ch_layout.nb_channels < 1) return false;
  mono->resize(frame.nb_samples);
  const auto format = static_cast<AVSampleFormat>(frame.format);
  const bool planar = av_sample_fmt_is_planar(format) == 1;
  switch (av_get_packed_sample_fmt(format)) {
    case AV_SAMPLE_FMT_U8:
      mix<uint8_t>(frame, planar, mono);
      return true;
    case AV_SAMPLE_FMT_S16:
      mix<int16_t>(frame, planar, mono);
      return true;
    case AV_SAMPLE_FMT_S32:
      mix<int32_t>(frame, planar, mono);
      return true;
    case AV_SAMPLE_FMT_S64:
      mix<int64_t>(frame, planar, mono);
      return true;
    case AV_SAMPLE_FMT_FLT:
      mix<float>(frame, planar, mono);
      return true;
    case AV_SAMPLE_FMT_DBL:
      mix<double>(frame, planar, mono);
      return true;
    default:
      return false;
  }
}

}  // namespace mso
