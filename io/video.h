// Video: what a clip is (probe_video) and the frames that a model sees of it (decode_video), through FFmpeg,
// from the bytes of a file.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "io/media_clip.h"
#include "io/media_input.h"
#include "io/video_device.h"
#include "io/video_sampling.h"

namespace mso {

struct VideoInfo {
  int width = 0,
      height = 0;  // upright (the container's rotation applied), pixels that are not square left so
  std::string container, codec;  // FFmpeg's names: "mov,mp4,m4a,3gp,3g2,mj2", "h264"
  double duration_s = 0;         // from the first frame's time to the end of the last
  double frames_per_second = 0;  // average: total_frames / duration_s
  int64_t total_frames = 0;      // counted, never the header's claim
  int64_t keyframes = 0;
  bool constant_rate = false;  // frames are evenly spaced, to the time base's rounding
  bool has_audio = false;
};

struct VideoOptions {
  VideoSampling sampling;
  // Frames at the sample's places in time instead of in number (sample_times); other frames only where the
  // rate varies.
  bool even_in_time = false;
  // False: a clip with damage in what must be decoded is an Error. True: it is decoded as far as it goes, and
  // damaged frames count as not there.
  bool tolerate_damage = false;
  // FFmpeg's threads per clip. The pipeline decodes many clips at a time, and one thread has the least work
  // per clip.
  int threads = 1;
  // Decodes clips for which decodes_on_device(); null: the CPU decodes all. What goes wrong there is done again on the CPU.
  std::shared_ptr<VideoDevice> device;
  MediaLimits limits;
  DecodeControl control;
};

// Reads the packets, and decodes only where they do not tell the number of frames (raw streams, AVI with
// B-frames, a stream that begins between keyframes). `name` is for messages. Error (kBadData) for a file
// without video, a damaged one, or one beyond the limits; DecodeStopped.
VideoInfo probe_video(std::span<const std::byte> bytes, const std::string& name,
                      const VideoOptions& options = {});

// The frames that the sampling chooses.
// - Edit lists are followed (what they hide is not counted), times are those of presentation; the header's
// frame count
//   and rate are not believed. Of several video streams the one players choose; covers of songs are none.
// - Only chosen frames are converted to RGB (io/video_rgb.h has the rule). Decoding begins at the keyframe a
// frame needs
//   wherever keyframes can be trusted (MP4, Matroska, MPEG-TS), and leaves out frames that no other refers
//   to: the same pixels with less work. Where that does not give every frame, the whole clip is decoded and
//   counted.
// - A frame of another size than the clip's first is scaled to that.
// Errors as above. Damage in parts that need not be decoded goes unnoticed. Thread-safe, keeps no state; the
// same bytes and options give the same frames, also where it fails.
VideoClip decode_video(std::span<const std::byte> bytes, const std::string& name,
                       const VideoOptions& options = {});

// The same frame by frame, for clips that are too large to hold: `sink(frame, rgb, clip)` with the number of
// the frame in the result and its pixels; `clip` is as decode_video() returns it, rgb left empty.
// max_output_bytes is not looked at. Where the packets turn out not to tell the frames, it begins again: what
// counts is the last call for a number.
using FrameSink = std::function<void(int64_t frame, std::span<const uint8_t> rgb, const VideoClip& clip)>;
VideoClip decode_video(std::span<const std::byte> bytes, const std::string& name, const VideoOptions& options,
                       const FrameSink& sink);

}  // namespace mso
