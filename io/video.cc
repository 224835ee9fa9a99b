#include "io/video.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "io/video_rgb.h"
#include "io/video_table.h"

namespace mso {
namespace {

static_assert(kNoTime == AV_NOPTS_VALUE);

// Frames of a clip that had to be decoded to count it are kept up to this much, so that it is not decoded
// twice.
constexpr int64_t kKeptFrameBytes = int64_t{96} << 20;

// The stream's packets in memory, and what they tell.
struct LoadedVideo {
  std::unique_ptr<MediaInput> input;
  AVStream* stream = nullptr;
  std::vector<AvPacketPtr> packets;
  std::vector<PacketFacts> facts;
  FrameTable table;
  std::string damage;  // of the container
  Orientation orientation;

  double seconds(int64_t time) const { return static_cast<double>(time) * av_q2d(stream->time_base); }
  // Keyframes in these are marked by the muxer from the encoder's word, or found by FFmpeg's parser.
  bool keys_are_trusted() const {
    const std::string format = input->format_name();
    return format.find("mp4") != std::string::npos || format.find("matroska") != std::string::npos ||
           format == "mpegts";
  }
};

LoadedVideo load(std::span<const std::byte> bytes, const std::string& name, const VideoOptions& options) {
  LoadedVideo video;
  video.input = std::make_unique<MediaInput>(bytes, name, options.limits, options.control);
  video.stream = &video.input->choose_stream(AVMEDIA_TYPE_VIDEO);
  const AVCodecParameters& parameters = *video.stream->codecpar;
  if (const uint8_t* matrix = av_stream_get_side_data(video.stream, AV_PKT_DATA_DISPLAYMATRIX, nullptr))
    video.orientation = orientation_of(reinterpret_cast<const int32_t*>(matrix));
  while (true) {
    AvPacketPtr packet(av_packet_alloc());
    if (!packet) throw std::bad_alloc();
    std::string damage;
    const bool more = video.input->read_packet(packet.get(), &damage);
    if (video.damage.empty()) video.damage = damage;
    if (!more) break;
    if (packet->size == 0 && packet->side_data_elems == 0) continue;
    video.facts.push_back({packet->pts, packet->duration, (packet->flags & AV_PKT_FLAG_KEY) != 0,
                           (packet->flags & AV_PKT_FLAG_DISCARD) != 0,
                           is_hidden_packet(parameters.codec_id, *packet)});
    video.packets.push_back(std::move(packet));
  }
  if (video.packets.empty())
    bad_media("video stream without a frame" + (video.damage.empty() ? "" : ": " + video.damage), name);
  video.table = make_frame_table(video.facts);
  if (parameters.codec_id == AV_CODEC_ID_H264)
    video.stream->codecpar->video_delay = std::max(parameters.video_delay, std::min(video.table.reorder, 16));
  return video;
}

[[noreturn]] void damaged(const std::string& what, const std::string& name) {
  bad_media("video is damaged: " + what, name,
            "copy it again, repair it with ffmpeg, delete it, or tolerate damage");
}

bool is_broken(const AVFrame& frame) {
  return (frame.flags & AV_FRAME_FLAG_CORRUPT) || frame.decode_error_flags;
}

int64_t frame_time(const AVFrame& frame) {
  return frame.pts != AV_NOPTS_VALUE ? frame.pts : frame.best_effort_timestamp;
}

// Gives packets to a decoder and takes its frames.
class Decoder {
 public:
  // `packets`: how many of them will be decoded.
  Decoder(const LoadedVideo& video, const std::string& name, const VideoOptions& options, int64_t packets)
      : video_(video),
        name_(name),
        control_(options.control),
        device_(worth_the_device(video, options, packets) ? options.device.get() : nullptr),
        context_(open_decoder(*video.stream, name, device_ ? 1 : options.threads, options.limits.max_pixels, device_)),
        frame_(av_frame_alloc()),
        fetched_(av_frame_alloc()) {
    if (!frame_ || !fetched_) throw std::bad_alloc();
  }

  bool on_device() const { return device_ != nullptr; }
  // The frame with its pixels in memory; lives until the next call.
  const AVFrame& in_memory(const AVFrame& frame) {
    if (!device_) return frame;
    av_frame_unref(fetched_.get());
    if (av_frame_ref(fetched_.get(), &frame) < 0) throw std::bad_alloc();
    if (!device_->fetch(fetched_.get())) throw DeviceTrouble("a frame cannot be brought into memory", true);
    return *fetched_;
  }

  // What went wrong first; empty: nothing.
  const std::string& damage() const { return damage_; }

  // `take(frame)` returns false to stop. False: stopped.
  template <typename Take>
  bool feed(int64_t i, bool needed, const Take& take) {
    check_stopped(control_, name_);
    context_->skip_frame = needed ? AVDISCARD_DEFAULT : AVDISCARD_NONREF;
    int result;
    bool going = true;
    // A decoder that is full takes the packet after its frames were taken.
    while ((result = avcodec_send_packet(context_.get(), video_.packets[i].get())) == AVERROR(EAGAIN)) {
      const int64_t before = frames_;
      going = receive(take) && going;
      if (frames_ == before || !going) break;
    }
    if (result < 0 && result != AVERROR(EAGAIN)) note(i, result);
    if (control_.place) control_.place->packets.fetch_add(1, std::memory_order_relaxed);
    return receive(take) && going;
  }
  template <typename Take>
  bool drain(const Take& take) {
    avcodec_send_packet(context_.get(), nullptr);
    const bool going = receive(take);
    avcodec_flush_buffers(context_.get());
    return going;
  }
  void restart() { avcodec_flush_buffers(context_.get()); }

 private:
  template <typename Take>
  bool receive(const Take& take) {
    while (true) {
      const int result = avcodec_receive_frame(context_.get(), frame_.get());
      if (result == AVERROR(EAGAIN) || result == AVERROR_EOF) return true;
      if (result < 0) {
        note(-1, result);
        // Some decoders report the same fault for ever.
        if (++faults_ > static_cast<int64_t>(video_.packets.size()) + 16) return true;
        continue;
      }
      ++frames_;
      if (device_ && is_broken(*frame_)) throw DeviceTrouble("a frame is not whole", false);
      if (is_broken(*frame_) && damage_.empty())
        damage_ = "a frame at " + std::to_string(video_.seconds(frame_time(*frame_))) + " s is not whole";
      if (!take(*frame_)) return false;
    }
  }
  static bool worth_the_device(const LoadedVideo& video, const VideoOptions& options, int64_t packets) {
    const AVCodecParameters& p = *video.stream->codecpar;
    return options.device && decodes_on_device(options.device->backend, {avcodec_get_name(p.codec_id), p.width, p.height, packets}, true);
  }
  void note(int64_t packet, int error) {
    if (device_)
      throw DeviceTrouble(ffmpeg_error_text(error), error == AVERROR_EXTERNAL || error == AVERROR_UNKNOWN || error == AVERROR(ENOMEM) ||
                                                        error == AVERROR(EIO) || error == AVERROR(ENOSYS));
    if (error == AVERROR(ENOMEM)) throw std::bad_alloc();
    if (!damage_.empty()) return;
    damage_ = (packet >= 0 ? "packet " + std::to_string(packet) : std::string("a packet")) +
              " cannot be decoded (" + ffmpeg_error_text(error) + ")";
  }

  const LoadedVideo& video_;
  const std::string& name_;
  const DecodeControl& control_;
  const VideoDevice* device_;
  AvCodecContextPtr context_;
  AvFramePtr frame_, fetched_;
  std::string damage_;
  int64_t frames_ = 0, faults_ = 0;
};

// Where chosen frames go: converted, one after the other.
class Output {
 public:
  Output(const LoadedVideo& video, const std::string& name, const VideoOptions& options,
         const FrameSink* sink)
      : video_(video), name_(name), options_(options), sink_(sink) {}

  VideoClip clip;
  std::vector<int64_t> chosen;  // different, increasing; what `clip.frame_indices` may name several times

  void choose(int64_t total, double rate, const std::vector<double>& timestamps_s, double duration_s) {
    clip = VideoClip{};
    clip.total_frames = total;
    clip.frames_per_second = rate;
    clip.frame_indices = options_.even_in_time ? sample_times(options_.sampling, timestamps_s, duration_s)
                                               : sample_frames(options_.sampling, total, rate);
    for (const int64_t i : clip.frame_indices) clip.timestamps_s.push_back(timestamps_s[i]);
    chosen = clip.frame_indices;
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    done_.assign(chosen.size(), false);
    left_ = static_cast<int64_t>(chosen.size());
    if (options_.control.place) {
      options_.control.place->frames = 0;
      options_.control.place->frames_total = left_;
    }
  }
  bool complete() const { return left_ == 0; }
  // Position in `chosen`, or −1.
  int64_t position(int64_t index) const {
    const auto at = std::lower_bound(chosen.begin(), chosen.end(), index);
    return at != chosen.end() && *at == index ? at - chosen.begin() : -1;
  }
  void put(int64_t position, const AVFrame& frame) {
    if (done_[position]) return;
    if (!converter_) begin(frame);
    // With a sink frames are handed on in order: those that decoders give out of order do not exist, as
    // presentation order is the decoder's own.
    const int64_t index = chosen[position];
    auto [from, to] = std::equal_range(clip.frame_indices.begin(), clip.frame_indices.end(), index);
    const int64_t first = from - clip.frame_indices.begin(), last = to - clip.frame_indices.begin();
    uint8_t* rgb = sink_ ? one_.data() : clip.rgb.data() + frame_bytes_ * first;
    if (!converter_->convert(frame, rgb))
      bad_media(std::string("frames of pixel format ") + format_name(frame) + " cannot be converted", name_);
    for (int64_t i = first; i < last; ++i) {
      if (sink_)
        (*sink_)(i, one_, clip);
      else if (i > first)
        std::copy_n(rgb, frame_bytes_, clip.rgb.data() + frame_bytes_ * i);
    }
    done_[position] = true;
    --left_;
    if (options_.control.place) options_.control.place->frames.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  static const char* format_name(const AVFrame& frame) {
    const char* name = av_get_pix_fmt_name(static_cast<AVPixelFormat>(frame.format));
    return name ? name : "unknown";
  }
  void begin(const AVFrame& frame) {
    if (frame.width <= 0 || frame.height <= 0 ||
        int64_t{frame.width} * frame.height > options_.limits.max_pixels)
      bad_media(
          "frames are too large (" + std::to_string(frame.width) + "×" + std::to_string(frame.height) + ")",
          name_, "at most " + std::to_string(options_.limits.max_pixels) + " pixels");
    const Orientation o = video_.orientation;
    clip.width = o.swap_sides ? frame.height : frame.width;
    clip.height = o.swap_sides ? frame.width : frame.height;
    frame_bytes_ = size_t{3} * frame.width * frame.height;
    converter_.emplace(frame.width, frame.height, o);
    if (sink_) {
      one_.resize(frame_bytes_);
      return;
    }
    const int64_t frames = clip.frames();
    if (frames > options_.limits.max_output_bytes / static_cast<int64_t>(frame_bytes_))
      bad_media(std::to_string(frames) + " frames of " + std::to_string(clip.width) + "×" +
                    std::to_string(clip.height) + " pixels are more than the limit of memory",
                name_,
                "at most " + std::to_string(options_.limits.max_output_bytes >> 20) +
                    " MiB: take fewer frames, or hand them on one by one");
    clip.rgb.resize(frame_bytes_ * frames);
  }

  const LoadedVideo& video_;
  const std::string& name_;
  const VideoOptions& options_;
  const FrameSink* sink_;
  std::optional<FrameConverter> converter_;
  std::vector<bool> done_;
  std::vector<uint8_t> one_;
  size_t frame_bytes_ = 0;
  int64_t left_ = 0;
};

// Rate that the header names, for a clip whose frames have no times or no length.
double header_rate(const AVStream& stream) {
  for (const AVRational rate : {stream.avg_frame_rate, stream.r_frame_rate})
    if (rate.num > 0 && rate.den > 0) return av_q2d(rate);
  return 25;
}

struct Timeline {
  std::vector<double> timestamps_s;  // from the first frame's
  double duration_s = 0, rate = 0;
};

// `times`: increasing, else empty when `total` frames have none. `end`: of the last frame.
Timeline make_timeline(const LoadedVideo& video, const std::vector<int64_t>& times, int64_t end,
                       int64_t total) {
  Timeline line;
  line.timestamps_s.reserve(total);
  if (times.empty()) {
    line.rate = header_rate(*video.stream);
    for (int64_t i = 0; i < total; ++i) line.timestamps_s.push_back(static_cast<double>(i) / line.rate);
    line.duration_s = static_cast<double>(total) / line.rate;
    return line;
  }
  const double start = video.seconds(times.front());
  for (const int64_t time : times) line.timestamps_s.push_back(video.seconds(time) - start);
  line.duration_s = video.seconds(end) - start;
  const double last = line.timestamps_s.back();
  if (line.duration_s <= last)  // the last frame has no length of its own: the mean one
    line.duration_s = total > 1 ? last * static_cast<double>(total) / static_cast<double>(total - 1)
                                : 1 / header_rate(*video.stream);
  line.rate = static_cast<double>(total) / line.duration_s;
  return line;
}

// By the table; false where not every chosen frame came out. *damage: what was found broken.
bool decode_by_table(const LoadedVideo& video, const std::string& name, const VideoOptions& options,
                     const Timeline& line, Output* out, std::string* damage) {
  const FrameTable& table = video.table;
  out->choose(static_cast<int64_t>(table.pts.size()), line.rate, line.timestamps_s, line.duration_s);
  const auto segments = plan_segments(video.facts, table, out->chosen, video.keys_are_trusted());
  std::vector<bool> wanted(video.packets.size());
  for (const int64_t frame : out->chosen) wanted[table.packet[frame]] = true;
  int64_t total = 0;
  for (const DecodeSegment& s : segments) total += s.last - s.first + 1;
  if (options.control.place) {
    options.control.place->packets = 0;
    options.control.place->packets_total = total;
  }

  Decoder decoder(video, name, options, total);
  bool as_expected = true;
  const auto take = [&](const AVFrame& frame) {
    const auto at = std::lower_bound(table.pts.begin(), table.pts.end(), frame_time(frame));
    if (at == table.pts.end() || *at != frame_time(frame)) {
      as_expected = false;
      return false;
    }
    const int64_t position = out->position(at - table.pts.begin());
    if (position >= 0 && !is_broken(frame)) out->put(position, decoder.in_memory(frame));
    return !out->complete();
  };
  for (const DecodeSegment& segment : segments) {
    bool going = true;
    for (int64_t i = segment.first; going && i <= segment.last; ++i)
      if (!leads(video.facts[i], video.facts[segment.first])) going = decoder.feed(i, wanted[i], take);
    if (going) going = decoder.drain(take);
    if (!going || !as_expected || !decoder.damage().empty()) break;
  }
  *damage = decoder.damage();
  if (as_expected && out->complete() && decoder.on_device()) options.device->note_clip();
  return as_expected && out->complete();
}

// Frames of the whole stream in the order they come out: their times, and the frames as long as memory
// allows.
struct WholeDecode {
  std::vector<int64_t> times;  // of whole frames; empty where some have none, or they do not increase
  std::vector<AvFramePtr> frames;
  bool all_kept = true;
  int64_t total = 0, end = 0;
  std::string damage;
};

template <typename Take>
void decode_everything(const LoadedVideo& video, Decoder* decoder, const VideoOptions& options,
                       const Take& take) {
  const int64_t n = static_cast<int64_t>(video.packets.size()), first = first_decodable(video.facts);
  if (options.control.place) {
    options.control.place->packets = 0;
    options.control.place->packets_total = n - first;
  }
  bool going = true;
  for (int64_t i = first; going && i < n; ++i)
    if (i == first || !leads(video.facts[i], video.facts[first])) going = decoder->feed(i, true, take);
  if (going) decoder->drain(take);
}

WholeDecode decode_whole(const LoadedVideo& video, const std::string& name, const VideoOptions& options,
                         bool keep) {
  WholeDecode whole;
  Decoder decoder(video, name, options, static_cast<int64_t>(video.packets.size()));
  int64_t kept_bytes = 0, last_length = 0;
  bool timed = true;
  whole.all_kept = keep;
  decode_everything(video, &decoder, options, [&](const AVFrame& frame) {
    if (is_broken(frame)) return true;
    ++whole.total;
    const int64_t time = frame_time(frame);
    if (time == AV_NOPTS_VALUE || (!whole.times.empty() && time <= whole.times.back())) timed = false;
    whole.times.push_back(time);
    last_length = frame.pkt_duration;
    if (whole.all_kept) {
      const AVFrame& here = decoder.in_memory(frame);
      for (const AVBufferRef* buffer : here.buf)
        kept_bytes += buffer ? static_cast<int64_t>(buffer->size) : 0;
      AvFramePtr copy(kept_bytes <= kKeptFrameBytes ? av_frame_clone(&here) : nullptr);
      if (copy) {
        whole.frames.push_back(std::move(copy));
      } else {
        whole.all_kept = false;
        whole.frames.clear();
      }
    }
    return true;
  });
  whole.damage = decoder.damage();
  if (decoder.on_device()) options.device->note_clip();
  if (whole.total == 0)
    damaged("no frame can be decoded" + (whole.damage.empty() ? "" : ", " + whole.damage), name);
  int64_t length;
  if (timed && (__builtin_add_overflow(whole.times.back(), std::max<int64_t>(last_length, 0), &whole.end) ||
                __builtin_sub_overflow(whole.end, whole.times.front(), &length)))
    timed = false;
  if (!timed) whole.times.clear();
  return whole;
}

VideoClip decode_once(std::span<const std::byte> bytes, const std::string& name, const VideoOptions& options,
                      const FrameSink* sink) {
  const LoadedVideo video = load(bytes, name, options);
  if (!video.damage.empty() && !options.tolerate_damage) damaged(video.damage, name);
  if (video.table.unreliable.empty() && video.damage.empty()) {
    Output out(video, name, options, sink);
    const int64_t total = static_cast<int64_t>(video.table.pts.size());
    std::string damage;
    if (decode_by_table(video, name, options, make_timeline(video, video.table.pts, video.table.end, total),
                        &out, &damage) &&
        (damage.empty() || options.tolerate_damage))
      return std::move(out.clip);
    if (!damage.empty() && !options.tolerate_damage) damaged(damage, name);
    log_debug("{}: decoded whole, as its packets do not give every frame{}{}", name,
              damage.empty() ? "" : ": ", damage);
  }
  WholeDecode whole = decode_whole(video, name, options, true);
  if (!whole.damage.empty() && !options.tolerate_damage) damaged(whole.damage, name);
  const Timeline line = make_timeline(video, whole.times, whole.end, whole.total);
  Output out(video, name, options, sink);
  out.choose(whole.total, line.rate, line.timestamps_s, line.duration_s);
  if (whole.all_kept) {
    for (size_t i = 0; i < out.chosen.size(); ++i)
      out.put(static_cast<int64_t>(i), *whole.frames[out.chosen[i]]);
    return std::move(out.clip);
  }
  Decoder decoder(video, name, options, static_cast<int64_t>(video.packets.size()));
  int64_t index = 0;
  decode_everything(video, &decoder, options, [&](const AVFrame& frame) {
    if (is_broken(frame)) return true;
    const int64_t position = out.position(index++);
    if (position >= 0) out.put(position, decoder.in_memory(frame));
    return !out.complete();
  });
  if (!out.complete()) damaged("it decodes otherwise the second time", name);
  return std::move(out.clip);
}

VideoOptions on_cpu(VideoOptions options) {
  options.device.reset();
  return options;
}

VideoClip decode(std::span<const std::byte> bytes, const std::string& name, const VideoOptions& options,
                 const FrameSink* sink) {
  if (!options.device) return decode_once(bytes, name, options, sink);
  if (options.device->usable()) {
    try {
      return decode_once(bytes, name, options, sink);
    } catch (const DeviceTrouble& trouble) {
      if (trouble.by_device) options.device->note_failure(name, trouble.what());
    } catch (const DecodeStopped&) {
      throw;
    } catch (const Error&) {  // the CPU has the last word, so that a clip is good or bad alike on every machine
    }
  }
  return decode_once(bytes, name, on_cpu(options), sink);
}

}  // namespace

VideoInfo probe_video(std::span<const std::byte> bytes, const std::string& name,
                      const VideoOptions& given) {
  const VideoOptions options = on_cpu(given);
  const LoadedVideo video = load(bytes, name, options);
  if (!video.damage.empty() && !options.tolerate_damage) damaged(video.damage, name);
  VideoInfo info;
  const AVCodecParameters& parameters = *video.stream->codecpar;
  info.container = video.input->format_name();
  info.codec = avcodec_get_name(parameters.codec_id);
  info.width = parameters.width;
  info.height = parameters.height;
  info.has_audio = video.input->has_stream(AVMEDIA_TYPE_AUDIO);
  info.keyframes =
      std::count_if(video.facts.begin(), video.facts.end(), [](const PacketFacts& p) { return p.key; });
  Timeline line;
  if (video.table.unreliable.empty()) {
    info.total_frames = static_cast<int64_t>(video.table.pts.size());
    line = make_timeline(video, video.table.pts, video.table.end, info.total_frames);
    if (int64_t{info.width} * info.height > options.limits.max_pixels)
      open_decoder(*video.stream, name, 1, options.limits.max_pixels);  // refuses it
  } else {
    const WholeDecode whole = decode_whole(video, name, options, false);
    if (!whole.damage.empty() && !options.tolerate_damage) damaged(whole.damage, name);
    info.total_frames = whole.total;
    line = make_timeline(video, whole.times, whole.end, whole.total);
  }
  if (video.orientation.swap_sides) std::swap(info.width, info.height);
  info.duration_s = line.duration_s;
  info.frames_per_second = line.rate;
  info.constant_rate = true;
  const double tick = av_q2d(video.stream->time_base), spacing = 1 / line.rate;
  for (size_t i = 1; i < line.timestamps_s.size(); ++i)
    if (std::abs(line.timestamps_s[i] - line.timestamps_s[i - 1] - spacing) > 1.01 * tick + 0.01 * spacing)
      info.constant_rate = false;
  return info;
}

VideoClip decode_video(std::span<const std::byte> bytes, const std::string& name,
                       const VideoOptions& options) {
  return decode(bytes, name, options, nullptr);
}

VideoClip decode_video(std::span<const std::byte> bytes, const std::string& name, const VideoOptions& options,
                       const FrameSink& sink) {
  return decode(bytes, name, options, &sink);
}

}  // namespace mso
