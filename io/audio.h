// Sound: any format that FFmpeg reads → one channel at one rate, from the bytes of a file.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "io/media_clip.h"
#include "io/media_input.h"

namespace mso {

struct AudioInfo {
  std::string container, codec;  // FFmpeg's names: "ogg", "vorbis"
  int sample_rate = 0;           // Hz, of the file
  int channels = 0;
  double duration_s =
      0;  // by packets' times, the header's where those say nothing; 0: not known without decoding
};

struct AudioOptions {
  int sample_rate = 16000;  // of the result, Hz; 0: the file's
  // Longer sounds are refused, whether long or only claimed to be by a header of 1 Hz.
  double max_seconds = 4 * 3600;
  bool tolerate_damage = false;  // true: packets that cannot be decoded are left out
  MediaLimits limits;
  DecodeControl control;
};

// From header and packets, nothing decoded. Error (kBadData) naming `name` for a file without sound or a
// damaged one.
AudioInfo probe_audio(std::span<const std::byte> bytes, const std::string& name,
                      const AudioOptions& options = {});

// Rules: channels are joined by their mean (what librosa's to_mono and torchaudio users do; FFmpeg's own -ac
// 1 weighs them by place); then swresample with its defaults changes the rate, as `ffmpeg -ar` does. Encoder
// delay and padding that the container tells of are cut off. A file whose rate or channels change goes on as
// if there were no change. Samples are not clipped: lossy codecs go a little beyond [−1, 1]. No samples in a
// whole file are an empty clip. Errors as above; damage is one unless tolerated, but for packets before the
// first that decodes (MP3 cut out of a stream) and DecodeStopped. Thread-safe.
AudioClip decode_audio(std::span<const std::byte> bytes, const std::string& name,
                       const AudioOptions& options = {});

// Consecutive pieces of `seconds` each, the last one shorter; one empty piece for an empty clip.
std::vector<std::span<const float>> split_windows(const AudioClip& clip, double seconds = 30);

}  // namespace mso
