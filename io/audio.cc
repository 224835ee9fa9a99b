#include "io/audio.h"

extern "C" {
#include <libavutil/channel_layout.h>
#include <libavutil/opt.h>
#include <libswresample/swresample.h>
}

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>

#include "io/audio_mixer.h"

namespace mso {
namespace {

[[noreturn]] void damaged(const std::string& what, const std::string& name) {
  bad_media("sound is damaged: " + what, name,
            "copy it again, convert it with ffmpeg, delete it, or tolerate damage");
}

[[noreturn]] void too_long(double seconds, const std::string& name) {
  bad_media(
      "sound is longer than " + std::to_string(static_cast<int64_t>(seconds)) + " s, or its rate is wrong",
      name, "cut it, or raise the limit");
}

// Floating-point files may hold infinities, which no feature survives.
bool all_numbers(const std::vector<float>& samples) {
  float sum = 0;
  for (const float v : samples) sum += v * 0.0f;
  return sum == 0;
}

// One stretch of frames of one rate through swresample.
class Resampler {
 public:
  // `begin`: where in the result this stretch begins.
  Resampler(int in_rate, int out_rate, size_t begin, const std::string& name)
      : in_rate_(in_rate), out_rate_(out_rate), begin_(begin) {
    if (in_rate == out_rate) return;
    // swresample gives nothing at all for a sound shorter than its filter, which has 32 taps of the lower
    // rate.
    least_ = 2 * (32 * (static_cast<int64_t>(in_rate) / out_rate + 1) + 2);
    swr_.reset(swr_alloc());
    if (!swr_) throw std::bad_alloc();
    AVChannelLayout mono = AV_CHANNEL_LAYOUT_MONO;
    av_opt_set_chlayout(swr_.get(), "in_chlayout", &mono, 0);
    av_opt_set_chlayout(swr_.get(), "out_chlayout", &mono, 0);
    av_opt_set_int(swr_.get(), "in_sample_rate", in_rate, 0);
    av_opt_set_int(swr_.get(), "out_sample_rate", out_rate, 0);
    av_opt_set_sample_fmt(swr_.get(), "in_sample_fmt", AV_SAMPLE_FMT_FLT, 0);
    av_opt_set_sample_fmt(swr_.get(), "out_sample_fmt", AV_SAMPLE_FMT_FLT, 0);
    if (const int result = swr_init(swr_.get()); result < 0)
      bad_media("sound of " + std::to_string(in_rate) + " Hz cannot be resampled (" +
                    ffmpeg_error_text(result) + ")",
                name);
  }

  int in_rate() const { return in_rate_; }

  void add(std::span<const float> samples, std::vector<float>* out) {
    if (!swr_) {
      out->insert(out->end(), samples.begin(), samples.end());
      return;
    }
    given_ += static_cast<int64_t>(samples.size());
    const auto* in = reinterpret_cast<const uint8_t*>(samples.data());
    convert(&in, static_cast<int>(samples.size()), out);
  }
  void finish(std::vector<float>* out) {
    if (!swr_) return;
    const int64_t given = given_;
    if (given > 0 && given < least_) add(std::vector<float>(least_ - given), out);
    convert(nullptr, 0, out);
    if (given < least_)
      out->resize(std::min<size_t>(out->size(), begin_ + (given * out_rate_ + in_rate_ / 2) / in_rate_));
  }

 private:
  void convert(const uint8_t** in, int count, std::vector<float>* out) {
    const int most = swr_get_out_samples(swr_.get(), count);
    if (most <= 0) return;
    const size_t before = out->size();
    out->resize(before + most);
    auto* to = reinterpret_cast<uint8_t*>(out->data() + before);
    const int made = swr_convert(swr_.get(), &to, most, in, count);
    if (made < 0) throw std::bad_alloc();
    out->resize(before + made);
  }

  struct Deleter {
    void operator()(SwrContext* p) const { swr_free(&p); }
  };
  int in_rate_, out_rate_;
  size_t begin_;
  int64_t given_ = 0, least_ = 0;
  std::unique_ptr<SwrContext, Deleter> swr_;
};

class AudioDecoder {
 public:
  AudioDecoder(std::span<const std::byte> bytes, const std::string& name, const AudioOptions& options)
      : name_(name),
        options_(options),
        input_(bytes, name, options.limits, options.control),
        stream_(input_.choose_stream(AVMEDIA_TYPE_AUDIO)),
        context_(open_decoder(stream_, name, 1, options.limits.max_pixels)),
        frame_(av_frame_alloc()) {
    if (!frame_) throw std::bad_alloc();
  }

  AudioClip run() {
    AvPacketPtr packet(av_packet_alloc());
    if (!packet) throw std::bad_alloc();
    std::string container_damage;
    for (int64_t i = 0; input_.read_packet(packet.get(), &container_damage); ++i) {
      int result = avcodec_send_packet(context_.get(), packet.get());
      if (result == AVERROR(EAGAIN)) {
        receive();
        result = avcodec_send_packet(context_.get(), packet.get());
      }
      if (result < 0) note("packet " + std::to_string(i), result);
      receive();
      if (options_.control.place) options_.control.place->packets.fetch_add(1, std::memory_order_relaxed);
    }
    avcodec_send_packet(context_.get(), nullptr);
    receive();
    if (resampler_) resampler_->finish(&clip_.samples);
    check_length();
    if (damage_.empty()) damage_ = container_damage;
    if (!damage_.empty() && !options_.tolerate_damage) damaged(damage_, name_);
    if (frames_ == 0 && faults_ > 0) damaged("no packet can be decoded, " + first_fault_, name_);
    if (clip_.sample_rate == 0)
      clip_.sample_rate =
          options_.sample_rate > 0 ? options_.sample_rate : std::max(1, stream_.codecpar->sample_rate);
    return std::move(clip_);
  }

 private:
  void note(const std::string& what, int error) {
    if (error == AVERROR(ENOMEM)) throw std::bad_alloc();
    ++faults_;
    const std::string text = what + " cannot be decoded (" + ffmpeg_error_text(error) + ")";
    if (first_fault_.empty()) first_fault_ = text;
    if (frames_ > 0 && damage_.empty()) damage_ = text;
  }

  void receive() {
    for (int faults = 0;;) {
      const int result = avcodec_receive_frame(context_.get(), frame_.get());
      if (result == AVERROR(EAGAIN) || result == AVERROR_EOF) return;
      if (result < 0) {
        note("a packet", result);
        if (++faults > 64) return;
        continue;
      }
      ++frames_;
      if (((frame_->flags & AV_FRAME_FLAG_CORRUPT) || frame_->decode_error_flags) && damage_.empty())
        damage_ = "a frame is not whole";
      take();
    }
  }

  void take() {
    const int rate = frame_->sample_rate;
    if (rate <= 0 || frame_->nb_samples <= 0) return;
    if (clip_.sample_rate == 0) clip_.sample_rate = options_.sample_rate > 0 ? options_.sample_rate : rate;
    if (!resampler_ || resampler_->in_rate() != rate) {
      if (resampler_) resampler_->finish(&clip_.samples);
      resampler_ = std::make_unique<Resampler>(rate, clip_.sample_rate, clip_.samples.size(), name_);
    }
    // Before memory is taken: a header of 1 Hz makes thousands of samples of each.
    const double seconds = static_cast<double>(frame_->nb_samples) / rate;
    seconds_ += seconds;
    if (seconds_ > options_.max_seconds) too_long(options_.max_seconds, name_);
    if (seconds_ * clip_.sample_rate * sizeof(float) > static_cast<double>(options_.limits.max_output_bytes))
      too_long(static_cast<double>(options_.limits.max_output_bytes) / sizeof(float) / clip_.sample_rate,
               name_);
    if (!mix_to_mono(*frame_, &mono_))
      bad_media("sound of a sample format that is not known", name_, "convert it with ffmpeg");
    if (!all_numbers(mono_)) {
      if (damage_.empty()) damage_ = "samples that are not numbers";
      return;
    }
    resampler_->add(mono_, &clip_.samples);
    if (options_.control.place)
      options_.control.place->frames.store(static_cast<int64_t>(clip_.samples.size()),
                                           std::memory_order_relaxed);
  }

  void check_length() const {
    if (clip_.sample_rate > 0 && static_cast<double>(clip_.samples.size()) >
                                     options_.max_seconds * clip_.sample_rate + clip_.sample_rate)
      too_long(options_.max_seconds, name_);
  }

  const std::string& name_;
  const AudioOptions& options_;
  MediaInput input_;
  AVStream& stream_;
  AvCodecContextPtr context_;
  AvFramePtr frame_;
  std::unique_ptr<Resampler> resampler_;
  std::vector<float> mono_;
  AudioClip clip_;
  double seconds_ = 0;
  int64_t frames_ = 0, faults_ = 0;
  std::string damage_, first_fault_;
};

}  // namespace

AudioInfo probe_audio(std::span<const std::byte> bytes, const std::string& name,
                      const AudioOptions& options) {
  MediaInput input(bytes, name, options.limits, options.control);
  AVStream& stream = input.choose_stream(AVMEDIA_TYPE_AUDIO);
  AudioInfo info;
  info.container = input.format_name();
  info.codec = avcodec_get_name(stream.codecpar->codec_id);
  info.sample_rate = stream.codecpar->sample_rate;
  info.channels = stream.codecpar->ch_layout.nb_channels;
  AvPacketPtr packet(av_packet_alloc());
  if (!packet) throw std::bad_alloc();
  std::string damage;
  int64_t first = AV_NOPTS_VALUE, end = AV_NOPTS_VALUE;
  while (input.read_packet(packet.get(), &damage)) {
    int64_t stop;
    if (packet->pts == AV_NOPTS_VALUE || __builtin_add_overflow(packet->pts, packet->duration, &stop))
      continue;
    if (first == AV_NOPTS_VALUE) first = packet->pts;
    end = std::max(end, stop);
  }
  if (!damage.empty() && !options.tolerate_damage) damaged(damage, name);
  int64_t length;
  if (first != AV_NOPTS_VALUE && !__builtin_sub_overflow(end, first, &length) && length > 0)
    info.duration_s = static_cast<double>(length) * av_q2d(stream.time_base);
  else if (stream.duration > 0)
    info.duration_s = static_cast<double>(stream.duration) * av_q2d(stream.time_base);
  if (info.duration_s > options.max_seconds) too_long(options.max_seconds, name);
  return info;
}

AudioClip decode_audio(std::span<const std::byte> bytes, const std::string& name,
                       const AudioOptions& options) {
  return AudioDecoder(bytes, name, options).run();
}

std::vector<std::span<const float>> split_windows(const AudioClip& clip, double seconds) {
  const auto size = static_cast<size_t>(std::max(1.0, std::floor(seconds * clip.sample_rate)));
  const std::span<const float> all(clip.samples);
  std::vector<std::span<const float>> windows;
  for (size_t at = 0; at < all.size(); at += size)
    windows.push_back(all.subspan(at, std::min(size, all.size() - at)));
  if (windows.empty()) windows.push_back(all);
  return windows;
}

}  // namespace mso
