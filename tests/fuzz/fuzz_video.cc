// libFuzzer: any bytes give an Error or frames that agree with each other; the last bytes choose the
// sampling. Also the sampler alone, with numbers made of the input.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "io/media_facts.h"
#include "io/video.h"

extern "C" {
#include <libavutil/mem.h>
}

namespace {

void sample(const uint8_t* data, size_t size) {
  uint8_t raw[48] = {};
  std::memcpy(raw, data, std::min(size, sizeof raw));
  int64_t numbers[5];
  double rate;
  std::memcpy(numbers, raw, sizeof numbers);
  std::memcpy(&rate, raw + sizeof numbers, sizeof rate);
  mso::VideoSampling sampling;
  sampling.rule = static_cast<mso::VideoSampling::Rule>(raw[0] % 3);
  sampling.fps = static_cast<double>(numbers[1] % 1000) / 7;
  sampling.num_frames = numbers[2] % 2 ? numbers[2] % 5000 : 0;
  sampling.max_frames = numbers[3] % 5000;
  sampling.temporal_patch = numbers[4] % 8;
  const int64_t total = numbers[0] % (1 << 22);
  try {
    const auto indices = mso::sample_frames(sampling, total, rate);
    if (indices.empty() || indices.front() < 0 || indices.back() >= total) std::abort();
    if (!std::is_sorted(indices.begin(), indices.end())) std::abort();
  } catch (const mso::Error& error) {
    if (error.exit_code() != mso::ExitCode::kBadUsage) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sample(data, size);
  av_max_alloc(64 << 20);
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  mso::VideoOptions options;
  if (size > 0) {
    options.sampling.rule = static_cast<mso::VideoSampling::Rule>(data[size - 1] % 4);
    options.tolerate_damage = data[size - 1] & 8;
    options.even_in_time = data[size - 1] & 16;
    options.sampling.num_frames = data[size - 1] >> 5;
  }
  options.limits.max_pixels = 1 << 16;
  options.limits.max_packets = 300;
  options.limits.max_output_bytes = 32 << 20;
  options.limits.max_streams = 8;
  options.control.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  // What the index takes from it never fails.
  const mso::MediaBytes file{size, [&](uint64_t offset, void* to, size_t count) {
                               const size_t n = offset < size ? std::min<size_t>(count, size - offset) : 0;
                               if (n > 0) std::memcpy(to, data + offset, n);
                               return n;
                             }};
  for (const uint8_t kind : {mso::kHasVideo, mso::kHasAudio}) {
    const mso::MediaFactsDraft facts = mso::read_media_facts(file, kind, size % 2 ? 0 : uint64_t{1} << 20);
    if (facts.kind != kind || ((facts.flags & mso::kMediaUnreadable) && !facts.codec.empty())) std::abort();
  }
  try {
    const mso::VideoClip clip = mso::decode_video(bytes, "input", options);
    if (clip.frames() < 1 || clip.total_frames < 1 || !(clip.frames_per_second > 0)) std::abort();
    if (clip.rgb.size() != size_t{3} * clip.width * clip.height * clip.frames()) std::abort();
    if (clip.frame_indices.size() != clip.timestamps_s.size()) std::abort();
    for (const int64_t i : clip.frame_indices)
      if (i < 0 || i >= clip.total_frames) std::abort();
  } catch (const mso::DecodeStopped&) {
  } catch (const mso::Error& error) {
    if (error.exit_code() != mso::ExitCode::kBadData) std::abort();
  } catch (const std::bad_alloc&) {
  }
  return 0;
}
