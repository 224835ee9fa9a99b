// libFuzzer: any bytes give an Error or a sound within the limits, and features of it that are numbers.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "io/audio.h"
#include "io/mel.h"

extern "C" {
#include <libavutil/mem.h>
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const mso::LogMel mel([] {
    mso::MelConfig config;
    config.chunk_length = 1;
    config.feature_size = 8;
    return config;
  }());
  av_max_alloc(64 << 20);
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  mso::AudioOptions options;
  options.max_seconds = 60;
  options.tolerate_damage = size % 2 == 0;
  options.limits.max_packets = 2000;
  options.limits.max_output_bytes = 16 << 20;
  options.limits.max_streams = 8;
  options.control.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  try {
    mso::probe_audio(bytes, "input", options);
    const mso::AudioClip clip = mso::decode_audio(bytes, "input", options);
    if (clip.sample_rate != 16000 || clip.samples.size() > 62 * 16000) std::abort();
    std::vector<float> features(8 * mel.config().frames());
    mel.compute(clip.samples, features.data());
    for (const float v : features)
      if (!std::isfinite(v)) std::abort();
  } catch (const mso::DecodeStopped&) {
  } catch (const mso::Error& error) {
    if (error.exit_code() != mso::ExitCode::kBadData) std::abort();
  } catch (const std::bad_alloc&) {
  }
  return 0;
}
