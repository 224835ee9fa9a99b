// Clips a second through sampling, decoding and conversion, and seconds of sound a second through decoding,
// resampling and features, from memory: media_bench video|nvdec|probe|audio|mel THREADS SECONDS FILE…
// (nvdec: video on a GPU; beside `video` on clips of several sizes it tells where io/video_device.h should draw its line.)
// contrib/bench/media_bench.py makes the files and measures peers beside it.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "io/audio.h"
#include "io/mel.h"
#include "io/video.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Rate {
  double per_second;      // by the clock on the wall
  double per_cpu_second;  // by the CPU time of all threads: what counts on a busy machine
};

// Goes through all files again and again until the time is over at the end of a round, so that every file
// counts alike.
Rate rounds(int threads, double seconds, size_t files, const std::function<void(size_t)>& work) {
  const std::clock_t cpu_start = std::clock();
  const auto start = Clock::now();
  double rounds = 0;
  do {
    std::atomic<size_t> next{0};
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; ++t)
      pool.emplace_back([&] {
        for (size_t i; (i = next++) < files;) work(i);
      });
    for (auto& thread : pool) thread.join();
    ++rounds;
  } while (std::chrono::duration<double>(Clock::now() - start).count() < seconds);
  return {rounds / std::chrono::duration<double>(Clock::now() - start).count(),
          rounds / (static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC)};
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 5) {
    std::fprintf(stderr, "usage: media_bench video|nvdec|probe|audio|mel THREADS SECONDS FILE...\n");
    return 2;
  }
  const std::string what = argv[1];
  const int threads = std::atoi(argv[2]);
  const double seconds = std::atof(argv[3]);
  std::vector<std::string> names(argv + 4, argv + argc), files;
  for (const auto& name : names) files.push_back(mso::read_file(name));
  const auto bytes = [&](size_t i) { return std::as_bytes(std::span(files[i])); };
  std::atomic<int64_t> frames{0};
  if (what == "video" || what == "nvdec" || what == "probe") {
    mso::VideoOptions options;  // Qwen2-VL's sampling
    if (what == "nvdec") options.device = mso::open_video_device(mso::VideoBackend::kNvdec);
    const Rate rate = rounds(threads, seconds, files.size(), [&](size_t i) {
      if (what == "probe")
        frames += mso::probe_video(bytes(i), names[i], options).total_frames;
      else
        frames += mso::decode_video(bytes(i), names[i], options).frames();
    });
    std::printf("%.3f clips/s %.3f clips/CPU s\n", rate.per_second * static_cast<double>(files.size()),
                rate.per_cpu_second * static_cast<double>(files.size()));
    return 0;
  }
  double sound_seconds = 0;
  for (size_t i = 0; i < files.size(); ++i)
    sound_seconds += static_cast<double>(mso::decode_audio(bytes(i), names[i]).samples.size()) / 16000;
  const mso::LogMel mel((mso::MelConfig()));
  const Rate rate = rounds(threads, seconds, files.size(), [&](size_t i) {
    const mso::AudioClip clip = mso::decode_audio(bytes(i), names[i]);
    if (what != "mel") return;
    thread_local std::vector<float> features;
    features.resize(size_t{80} * mel.config().frames());
    mel.compute(clip.samples, features.data());
  });
  std::printf("%.2f sounds/s %.2f sounds/CPU s %.1f audio seconds/s\n",
              rate.per_second * static_cast<double>(files.size()),
              rate.per_cpu_second * static_cast<double>(files.size()), rate.per_second * sound_seconds);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "media_bench: %s\n", error.what());
  return 1;
}
