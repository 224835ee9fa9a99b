#include "io/media_facts.h"

extern "C" {
#include <libavutil/display.h>
}

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <limits>
#include <vector>

#include "base/log.h"
#include "io/mov_header.h"
#include "io/video_table.h"

namespace mso {
namespace {

// Of a whole file; only one made to be slow takes anything like it.
constexpr std::chrono::seconds kDeadline{60};

template <typename To>
To within(double value) {
  if (!(value > 0)) return 0;
  return value >= static_cast<double>(std::numeric_limits<To>::max()) ? std::numeric_limits<To>::max()
                                                                       : static_cast<To>(std::llround(value));
}

// Seconds that the header tells of the stream, else of the file; 0: neither.
double header_seconds(MediaInput& input, const AVStream& stream) {
  if (stream.duration > 0) return static_cast<double>(stream.duration) * av_q2d(stream.time_base);
  const int64_t all = input.context().duration;
  return all > 0 ? static_cast<double>(all) / AV_TIME_BASE : 0;
}

bool is_guess(MediaInput& input) {
  return input.context().duration_estimation_method == AVFMT_DURATION_FROM_BITRATE;
}

double header_rate(const AVStream& stream) {
  for (const AVRational rate : {stream.avg_frame_rate, stream.r_frame_rate})
    if (rate.num > 0 && rate.den > 0) return av_q2d(rate);
  return 0;
}

// Degrees clockwise; 0 for angles that are no multiple of 90°.
uint16_t rotation_of(const AVStream& stream) {
  const uint8_t* matrix = av_stream_get_side_data(&stream, AV_PKT_DATA_DISPLAYMATRIX, nullptr);
  if (!matrix) return 0;
  const double turned = av_display_rotation_get(reinterpret_cast<const int32_t*>(matrix));  // anticlockwise
  if (std::isnan(turned) || std::abs(turned - 90 * std::round(turned / 90)) > 1) return 0;
  return static_cast<uint16_t>((static_cast<int>(-90 * std::round(turned / 90)) + 720) % 360);
}

// Frames of an MP4's sample table that are shown and lie inside the file.
uint32_t count_in_table(const AVStream& stream, uint64_t bytes, bool* cut) {
  AVStream& of = const_cast<AVStream&>(stream);
  uint32_t frames = 0;
  for (int i = 0, n = avformat_index_get_entries_count(&stream); i < n; ++i) {
    const AVIndexEntry* entry = avformat_index_get_entry(&of, i);
    if (!entry || entry->size <= 0 || entry->flags & AVINDEX_DISCARD_FRAME) continue;
    if (entry->pos < 0 || static_cast<uint64_t>(entry->pos) > bytes || static_cast<uint64_t>(entry->size) > bytes - static_cast<uint64_t>(entry->pos))
      *cut = true;
    else
      ++frames;
  }
  return frames;
}

void video_facts(const MediaBytes& bytes, MediaInput& input, uint64_t most_bytes, MediaFactsDraft* facts) {
  const AVStream& stream = input.choose_stream(AVMEDIA_TYPE_VIDEO);
  const AVCodecParameters& parameters = *stream.codecpar;
  facts->codec = avcodec_get_name(parameters.codec_id);
  facts->width = within<uint32_t>(parameters.width);
  facts->height = within<uint32_t>(parameters.height);
  facts->rotation = rotation_of(stream);
  if (input.has_stream(AVMEDIA_TYPE_AUDIO)) facts->flags |= kMediaWithSound;
  double seconds = header_seconds(input, stream);
  const MovLook look = look_at_mov(bytes);
  if (look.is_mov && !look.fragmented && avformat_index_get_entries_count(&stream) > 0) {
    bool cut = false;
    facts->frames = count_in_table(stream, bytes.size, &cut);
    if (cut) facts->flags |= kMediaCut;
  } else if (bytes.size <= most_bytes) {
    std::vector<PacketFacts> packets;
    AvPacketPtr packet(av_packet_alloc());
    if (!packet) throw std::bad_alloc();
    std::string damage;  // what is whole is counted
    while (input.read_packet(packet.get(), &damage))
      if (packet->size > 0)
        packets.push_back({packet->pts, packet->duration, (packet->flags & AV_PKT_FLAG_KEY) != 0,
                           (packet->flags & AV_PKT_FLAG_DISCARD) != 0, is_hidden_packet(parameters.codec_id, *packet)});
    // What comes before the first keyframe, or is shown before it, cannot be decoded (io/video.h counts so, too).
    const auto start = packets.begin() + first_decodable(packets);
    packets.erase(packets.begin(), start);
    if (!packets.empty()) {
      const PacketFacts key = packets.front();
      packets.erase(std::remove_if(packets.begin() + 1, packets.end(), [&](const PacketFacts& p) { return leads(p, key); }),
                    packets.end());
    }
    const FrameTable table = make_frame_table(packets);
    if (table.unreliable.empty() && !table.pts.empty()) {
      const auto n = static_cast<double>(table.pts.size());
      facts->frames = within<uint32_t>(n);
      const double tick = av_q2d(stream.time_base), begin = static_cast<double>(table.pts.front()) * tick,
                   last = static_cast<double>(table.pts.back()) * tick - begin;
      double length = static_cast<double>(table.end) * tick - begin;
      if (length <= last) {  // the last frame has no length of its own: the mean one
        const double rate = header_rate(stream);
        length = n > 1 ? last * n / (n - 1) : rate > 0 ? 1 / rate : 0;
      }
      if (length > 0) seconds = length;
    } else {  // only decoding would tell times; a packet is a frame
      facts->frames = static_cast<uint32_t>(
          std::ranges::count_if(packets, [](const PacketFacts& p) { return !p.discarded && !p.hidden; }));
      if (const double rate = header_rate(stream); rate > 0) seconds = facts->frames / rate;
    }
    if (facts->frames == 0) bad_media("video stream without a frame", "");
  } else {
    facts->flags |= kMediaNotCounted;
  }
  facts->duration_us = within<uint64_t>(seconds * 1e6);
  const bool counted = facts->frames > 0 && seconds > 0;
  facts->millihertz = within<uint32_t>(1e3 * (counted ? facts->frames / seconds : header_rate(stream)));
}

void sound_facts(const MediaBytes& bytes, MediaInput& input, uint64_t most_bytes, MediaFactsDraft* facts) {
  const AVStream& stream = input.choose_stream(AVMEDIA_TYPE_AUDIO);
  const AVCodecParameters& parameters = *stream.codecpar;
  facts->codec = avcodec_get_name(parameters.codec_id);
  facts->sample_rate = within<uint32_t>(parameters.sample_rate);
  facts->channels = static_cast<uint16_t>(std::clamp(parameters.ch_layout.nb_channels, 0, 65535));
  double seconds = header_seconds(input, stream);
  if (seconds <= 0 || is_guess(input)) {
    if (bytes.size <= most_bytes) {
      AvPacketPtr packet(av_packet_alloc());
      if (!packet) throw std::bad_alloc();
      std::string damage;
      int64_t first = AV_NOPTS_VALUE, end = AV_NOPTS_VALUE, length;
      while (input.read_packet(packet.get(), &damage)) {
        int64_t stop;
        if (packet->pts == AV_NOPTS_VALUE || __builtin_add_overflow(packet->pts, packet->duration, &stop)) continue;
        if (first == AV_NOPTS_VALUE) first = packet->pts;
        end = std::max(end, stop);
      }
      if (first != AV_NOPTS_VALUE && !__builtin_sub_overflow(end, first, &length))
        seconds = static_cast<double>(length) * av_q2d(stream.time_base);
    } else {
      facts->flags |= kMediaNotCounted;
    }
  }
  facts->duration_us = within<uint64_t>(seconds * 1e6);
}

}  // namespace

MediaFactsDraft read_media_facts(const MediaBytes& bytes, uint8_t kind, uint64_t most_bytes) {
  MediaFactsDraft facts;
  try {
    DecodeControl control;
    control.deadline = std::chrono::steady_clock::now() + kDeadline;
    MediaInput input(bytes, "", MediaLimits{}, control);
    if (kind == kHasVideo)
      video_facts(bytes, input, most_bytes, &facts);
    else
      sound_facts(bytes, input, most_bytes, &facts);
  } catch (const std::exception& error) {
    log_debug("no facts: {}", error.what());
    facts = {};
    facts.flags = kMediaUnreadable;
  }
  facts.kind = kind;
  return facts;
}

}  // namespace mso
