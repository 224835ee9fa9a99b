#include "io/media_input.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "io/mov_header.h"
#include "io/video_device.h"

namespace mso {
namespace {

constexpr int kIoBuffer = 1 << 16;

int refuse_to_open(AVFormatContext*, AVIOContext**, const char*, int, AVDictionary**) {
  return AVERROR(EPERM);
}

int interrupted(void* opaque) {
  const auto& control = *static_cast<const DecodeControl*>(opaque);
  return (control.cancelled && control.cancelled->load(std::memory_order_relaxed)) ||
         std::chrono::steady_clock::now() > control.deadline;
}

bool is_cover(const AVStream& stream) {
  return stream.disposition & AV_DISPOSITION_ATTACHED_PIC;
}

// Enough is known from the header alone to decode the stream, so that its first packets need not be decoded
// just to look.
bool described(const AVStream& stream) {
  const AVCodecParameters& p = *stream.codecpar;
  if (p.codec_id == AV_CODEC_ID_NONE) return false;
  if (p.codec_type == AVMEDIA_TYPE_VIDEO) return p.width > 0 && p.height > 0;
  if (p.codec_type == AVMEDIA_TYPE_AUDIO) return p.sample_rate > 0 && p.ch_layout.nb_channels > 0;
  return true;
}

}  // namespace

void bad_media(const std::string& what, const std::string& name, const std::string& hint) {
  throw Error(what, name, hint.empty() ? "copy it again, convert it with ffmpeg, or delete it" : hint,
              ExitCode::kBadData);
}

void check_stopped(const DecodeControl& control, const std::string& name) {
  std::string place;
  if (control.place) {
    const int64_t total = control.place->packets_total;
    if (total > 0)
      place = " at packet " + std::to_string(control.place->packets) + " of " + std::to_string(total);
  }
  if (control.cancelled && control.cancelled->load(std::memory_order_relaxed))
    throw DecodeStopped("decoding was cancelled" + place, name, false);
  if (control.deadline != std::chrono::steady_clock::time_point::max() &&
      std::chrono::steady_clock::now() > control.deadline)
    throw DecodeStopped("decoding did not end within its deadline" + place, name, true);
}

MediaInput::MediaInput(std::span<const std::byte> bytes, const std::string& name, const MediaLimits& limits,
                       const DecodeControl& control)
    : MediaInput(MediaBytes{bytes.size(),
                            [bytes](uint64_t offset, void* to, size_t size) {
                              if (offset >= bytes.size()) return size_t{0};
                              const size_t n = std::min<size_t>(size, bytes.size() - offset);
                              std::memcpy(to, bytes.data() + offset, n);
                              return n;
                            }},
                 name, limits, control) {}

MediaInput::MediaInput(MediaBytes bytes, const std::string& name, const MediaLimits& limits,
                       const DecodeControl& control)
    : bytes_(std::move(bytes)), name_(name), limits_(limits), control_(control) {
  route_ffmpeg_messages();
  check_stopped(control_, name_);
  if (bytes_.size == 0) bad_media("file is empty", name);
  if (const std::string why = look_at_mov(bytes_).impossible; !why.empty())
    bad_media("header claims what the file cannot hold (" + why + ")", name);
  auto* buffer = static_cast<uint8_t*>(av_malloc(kIoBuffer));
  if (!buffer) throw std::bad_alloc();
  io_.reset(avio_alloc_context(buffer, kIoBuffer, 0, this, read, nullptr, seek));
  if (!io_) {
    av_free(buffer);
    throw std::bad_alloc();
  }
  AVFormatContext* context = avformat_alloc_context();
  if (!context) throw std::bad_alloc();
  context->pb = io_.get();
  context->io_open = refuse_to_open;
  context->protocol_whitelist = av_strdup("none");
  context->max_streams = limits.max_streams;
  context->interrupt_callback = {interrupted, &control_};
  context->flags |= AVFMT_FLAG_CUSTOM_IO;
  // Frees the context on failure.
  const int result = avformat_open_input(&context, "", nullptr, nullptr);
  if (result < 0) {
    check_stopped(control_, name_);
    bad_media("not a video or sound file that FFmpeg knows, or its header is damaged (" +
                  ffmpeg_error_text(result) + ")",
              name);
  }
  context_.reset(context);
  matroska_ = format_name().find("matroska") != std::string::npos;
}

int MediaInput::read(void* self, uint8_t* to, int size) {
  auto& input = *static_cast<MediaInput*>(self);
  if (interrupted(&input.control_)) return AVERROR_EXIT;
  const int64_t left = static_cast<int64_t>(input.bytes_.size) - input.at_;
  if (left <= 0) return AVERROR_EOF;
  const size_t n = input.bytes_.read(static_cast<uint64_t>(input.at_), to, static_cast<size_t>(std::min<int64_t>(left, size)));
  if (n == 0) return AVERROR_EOF;
  input.at_ += static_cast<int64_t>(n);
  return static_cast<int>(n);
}

int64_t MediaInput::seek(void* self, int64_t offset, int whence) {
  auto& input = *static_cast<MediaInput*>(self);
  const int64_t size = static_cast<int64_t>(input.bytes_.size);
  switch (whence & ~AVSEEK_FORCE) {
    case AVSEEK_SIZE:
      return size;
    case SEEK_SET:
      break;
    case SEEK_CUR:
      if (__builtin_add_overflow(offset, input.at_, &offset)) return AVERROR(EINVAL);
      break;
    case SEEK_END:
      if (__builtin_add_overflow(offset, size, &offset)) return AVERROR(EINVAL);
      break;
    default:
      return AVERROR(EINVAL);
  }
  if (offset < 0) return AVERROR(EINVAL);
  input.at_ = offset;  // behind the end reads nothing
  return offset;
}

void MediaInput::find_stream_info() {
  const int result = avformat_find_stream_info(context_.get(), nullptr);
  check_stopped(control_, name_);
  if (result < 0) bad_media("its streams cannot be read (" + ffmpeg_error_text(result) + ")", name_);
}

bool MediaInput::has_stream(AVMediaType type) const {
  for (unsigned i = 0; i < context_->nb_streams; ++i)
    if (context_->streams[i]->codecpar->codec_type == type && !is_cover(*context_->streams[i])) return true;
  return false;
}

AVStream& MediaInput::choose_stream(AVMediaType type) {
  // Containers that describe their streams in the header and give every frame its time are not searched.
  const std::string_view format = context_->iformat->name;
  const auto is = [&](const char* word) { return format.find(word) != std::string_view::npos; };
  bool complete = is("mp4") || is("matroska") || format == "wav" || format == "flac" || format == "ogg";
  if (type == AVMEDIA_TYPE_VIDEO && format == "ogg") complete = false;
  for (unsigned i = 0; i < context_->nb_streams; ++i)
    complete =
        complete && (context_->streams[i]->codecpar->codec_type != type || described(*context_->streams[i]));
  if (!complete || context_->nb_streams == 0) find_stream_info();

  int best = -1;
  const int found = av_find_best_stream(context_.get(), type, -1, -1, nullptr, 0);
  if (found >= 0 && !is_cover(*context_->streams[found])) best = found;
  for (unsigned i = 0; best < 0 && i < context_->nb_streams; ++i)
    if (context_->streams[i]->codecpar->codec_type == type && !is_cover(*context_->streams[i]) &&
        avcodec_find_decoder(context_->streams[i]->codecpar->codec_id))
      best = static_cast<int>(i);
  if (best < 0) {
    std::string has;
    for (unsigned i = 0; i < std::min(context_->nb_streams, 8u); ++i) {
      const AVStream& stream = *context_->streams[i];
      const char* kind =
          is_cover(stream) ? "cover picture" : av_get_media_type_string(stream.codecpar->codec_type);
      has += (has.empty() ? "" : ", ") + std::string(kind ? kind : "unknown") + " " +
             avcodec_get_name(stream.codecpar->codec_id);
    }
    const bool video = type == AVMEDIA_TYPE_VIDEO;
    bad_media(std::string("no ") + (video ? "video" : "audio") + " stream that can be decoded", name_,
              has.empty() ? "the file has no stream at all" : "the file has: " + has);
  }
  for (unsigned i = 0; i < context_->nb_streams; ++i)
    context_->streams[i]->discard = static_cast<int>(i) == best ? AVDISCARD_NONE : AVDISCARD_ALL;
  stream_ = best;
  return *context_->streams[best];
}

bool MediaInput::read_packet(AVPacket* packet, std::string* damage) {
  while (!ended_) {
    check_stopped(control_, name_);
    av_packet_unref(packet);
    std::string lost;
    int result;
    {
      // Matroska's demuxer looks for the next cluster behind damage and says so in the log alone.
      const DemuxerErrors errors(&lost);
      result = av_read_frame(context_.get(), packet);
    }
    if (!lost.empty() && matroska_ && damage->empty())
      *damage = "after packet " + std::to_string(packets_) + ": " + lost;
    if (result == AVERROR(EAGAIN)) continue;
    if (result < 0) {
      ended_ = true;
      check_stopped(control_, name_);
      if (result != AVERROR_EOF)
        *damage = "the file ends early or is damaged (" + ffmpeg_error_text(result) + " after packet " +
                  std::to_string(packets_) + ")";
      return false;
    }
    if (packet->stream_index != stream_) continue;
    packet_bytes_ += packet->size;
    if (++packets_ > limits_.max_packets ||
        packet_bytes_ > 2 * static_cast<int64_t>(bytes_.size) + (1 << 24))
      bad_media("its packets are more than the file can hold", name_);
    if (packet->flags & AV_PKT_FLAG_CORRUPT)
      *damage = "packet " + std::to_string(packets_ - 1) + " is not whole";
    return true;
  }
  return false;
}

// RFC 6386, 9.1; VP9 bitstream specification, 6.2.
bool is_hidden_packet(AVCodecID codec, const AVPacket& packet) {
  if (packet.size < 1) return false;
  const uint8_t first = packet.data[0];
  if (codec == AV_CODEC_ID_VP8) return !(first & 0x10);
  if (codec != AV_CODEC_ID_VP9 || (packet.data[packet.size - 1] & 0xe0) == 0xc0)
    return false;  // superframes show one
  const bool profile_3 = (first & 0x30) == 0x30;
  const int at = profile_3 ? 5 : 4;      // bits before show_existing_frame
  if (first & 0x80 >> at) return false;  // shows one decoded before
  return !(first & 0x80 >> (at + 2));
}

AvCodecContextPtr open_decoder(const AVStream& stream, const std::string& name, int threads,
                               int64_t max_pixels, const VideoDevice* device) {
  const AVCodecParameters& parameters = *stream.codecpar;
  const AVCodec* codec = avcodec_find_decoder(parameters.codec_id);
  if (!codec)
    bad_media(std::string("this FFmpeg has no decoder for ") + avcodec_get_name(parameters.codec_id), name,
              "convert it with ffmpeg");
  if (int64_t{parameters.width} * parameters.height > max_pixels)
    bad_media("frames are too large (" + std::to_string(parameters.width) + "×" +
                  std::to_string(parameters.height) + " pixels)",
              name, "at most " + std::to_string(max_pixels) + " pixels; scale it down or delete it");
  AvCodecContextPtr context(avcodec_alloc_context3(codec));
  if (!context) throw std::bad_alloc();
  int result = avcodec_parameters_to_context(context.get(), &parameters);
  if (result >= 0) {
    context->pkt_timebase = stream.time_base;
    context->thread_count = threads;
    context->max_pixels = (max_pixels + 63) / 64 * 64 * 2;  // FFmpeg counts aligned rows
    context->err_recognition = AV_EF_CRCCHECK;
    // Formats with checksums everywhere. Others would be refused for a fault in what no pixel depends on.
    for (const AVCodecID checked : {AV_CODEC_ID_FLAC, AV_CODEC_ID_FFV1, AV_CODEC_ID_PNG, AV_CODEC_ID_APNG})
      if (parameters.codec_id == checked) context->err_recognition |= AV_EF_EXPLODE;
    if (device) device->attach(context.get());
    result = avcodec_open2(context.get(), codec, nullptr);
  }
  if (result < 0)
    bad_media(std::string(avcodec_get_name(parameters.codec_id)) + " decoder refuses the stream (" +
                  ffmpeg_error_text(result) + ")",
              name);
  return context;
}

}  // namespace mso
