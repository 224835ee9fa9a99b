// A video or sound file in memory, opened with FFmpeg's demuxers: its streams and their packets. Nothing but
// the given bytes is ever read: files that name others (playlists, external tracks) are refused.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/ffmpeg.h"

namespace mso {

// How far a decode has come; written by the decoding thread, read by any.
struct DecodePlace {
  std::atomic<int64_t> packets{0}, packets_total{0};  // given to the decoder, of those that need be
  std::atomic<int64_t> frames{0}, frames_total{0};    // converted to RGB; audio: samples so far, 0
};

// What stops a decode from outside. Checked before every packet.
struct DecodeControl {
  const std::atomic<bool>* cancelled = nullptr;
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  DecodePlace* place = nullptr;
};

// The decode was stopped by its DecodeControl: says nothing about the file. ExitCode::kFailure.
class DecodeStopped : public Error {
 public:
  DecodeStopped(const std::string& what, const std::string& name, bool by_deadline)
      : Error(what, name), by_deadline_(by_deadline) {}
  bool by_deadline() const { return by_deadline_; }

 private:
  bool by_deadline_;
};

void check_stopped(const DecodeControl& control, const std::string& name);

// Bounds for what a header may claim; beyond them the file is refused before memory is taken.
struct MediaLimits {
  int64_t max_pixels = int64_t{1} << 26;        // of one frame
  int64_t max_packets = int64_t{1} << 22;       // of the stream: 38 hours at 30 frames a second
  int64_t max_output_bytes = int64_t{2} << 30;  // of all decoded frames or samples together
  int max_streams = 256;
};

// The bytes of a file that need not lie in memory: reads up to `size` of them at `offset` and tells how many it
// got; 0 at the end, or where they cannot be read.
struct MediaBytes {
  uint64_t size = 0;
  std::function<size_t(uint64_t offset, void* to, size_t size)> read;
};

class MediaInput {
 public:
  // Reads the header. `bytes` must outlive the object. Error (kBadData) naming `name` for no bytes, no known
  // container, or a damaged header.
  MediaInput(std::span<const std::byte> bytes, const std::string& name, const MediaLimits& limits,
             const DecodeControl& control);
  // The same of a file of which only what the demuxer asks for is read.
  MediaInput(MediaBytes bytes, const std::string& name, const MediaLimits& limits, const DecodeControl& control);
  MediaInput(const MediaInput&) = delete;
  MediaInput& operator=(const MediaInput&) = delete;

  // The stream that players choose; pictures attached to songs are none. All other streams are switched off.
  // Error (kBadData) telling what the file has instead.
  AVStream& choose_stream(AVMediaType type);
  bool has_stream(AVMediaType type) const;
  std::string format_name() const { return context_->iformat->name; }
  AVFormatContext& context() { return *context_; }

  // The next packet of the chosen stream; false at the end. *damage is left alone, or says why the file ends
  // early or is not whole.
  bool read_packet(AVPacket* packet, std::string* damage);

 private:
  static int read(void* self, uint8_t* to, int size);
  static int64_t seek(void* self, int64_t offset, int whence);
  void find_stream_info();

  MediaBytes bytes_;
  int64_t at_ = 0;
  std::string name_;
  MediaLimits limits_;
  DecodeControl control_;
  AvIoContextPtr io_;  // outlives context_
  AvFormatContextPtr context_;
  int stream_ = -1;
  int64_t packets_ = 0, packet_bytes_ = 0;
  bool ended_ = false, matroska_ = false;
};

// A decoder for the stream, single-threaded unless `threads` says otherwise. Error (kBadData) where this
// FFmpeg has none.
// With `device` it decodes there where it can (io/video_device.h).
class VideoDevice;
AvCodecContextPtr open_decoder(const AVStream& stream, const std::string& name, int threads,
                               int64_t max_pixels, const VideoDevice* device = nullptr);

// VP8 and VP9 have packets that are only referred to: they make no frame of their own.
bool is_hidden_packet(AVCodecID codec, const AVPacket& packet);

[[noreturn]] void bad_media(const std::string& what, const std::string& name, const std::string& hint = "");

}  // namespace mso
