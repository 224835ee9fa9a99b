// Pictures a second through decoding and the image processor, from memory: decode_bench FOLDER [SECONDS
// [SIZE]]. contrib/bench/decode_bench.py makes the pictures and measures Pillow beside it.
// decode_bench --libjpeg=exact|reduced FOLDER [SECONDS]: libjpeg-turbo alone, the whole picture, nothing done with it, two
// threads; one number. The bound that contrib/bench/pipelines.py compares with.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "io/image.h"
#include "io/image_processor.h"
#include "io/jpeg.h"
#include "io/resize_kernels.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Rate {
  double per_second;      // by the clock on the wall
  double per_cpu_second;  // by the CPU time of all threads: what counts on a busy machine
};

// Calls work(i) with i = 0, 1, 2… from all threads until the time is over.
Rate measure(int threads, double seconds, const std::function<void(size_t)>& work) {
  const std::clock_t cpu_start = std::clock();
  std::atomic<size_t> next{0};
  const auto start = Clock::now();
  const auto end =
      start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t)
    pool.emplace_back([&] {
      while (Clock::now() < end) work(next++);
    });
  for (auto& thread : pool) thread.join();
  const double calls = static_cast<double>(next);
  return {calls / std::chrono::duration<double>(Clock::now() - start).count(),
          calls / (static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC)};
}

double libjpeg_alone(const std::vector<std::string>& files, const mso::ImageProcessor& processor, bool exact, double seconds) {
  const Rate rate = measure(2, seconds, [&](size_t i) {
    thread_local mso::Image image;
    const auto bytes = std::as_bytes(std::span(files[i % files.size()]));
    const mso::ImageHeader header = mso::read_image_header(bytes, "picture");
    const mso::DecodeOptions options = processor.decode_options(header.width, header.height);
    const int scale = exact ? 8 : mso::jpeg_scale(header.width, header.height, options.target_width, options.target_height);
    mso::decode_jpeg(bytes, header, "picture", scale,
                     {{0, mso::jpeg_scaled(header.width, scale)}, {0, mso::jpeg_scaled(header.height, scale)}}, &image, true);
  });
  return rate.per_second;
}

}  // namespace

int main(int argc, char** argv) try {
  std::string bound;
  if (argc > 1 && std::string_view(argv[1]).starts_with("--libjpeg=")) {
    bound = std::string_view(argv[1]).substr(10);
    --argc;
    ++argv;
  }
  if (argc < 2) {
    std::fprintf(stderr, "usage: decode_bench FOLDER [SECONDS [SIZE]]\n");
    return 2;
  }
  const double seconds = argc > 2 ? std::atof(argv[2]) : 3;
  const mso::ImageProcessor processor(mso::clip_image_processor(argc > 3 ? std::atoi(argv[3]) : 224));
  std::vector<std::string> names, files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1]))
    if (entry.is_regular_file()) names.push_back(entry.path().string());
  for (const auto& name : names) files.push_back(mso::read_file(name));
  if (files.empty()) throw mso::Error("no pictures", argv[1]);

  if (!bound.empty()) {
    std::printf("%.1f\n", libjpeg_alone(files, processor, bound == "exact", seconds));
    return 0;
  }

  auto bytes = [&](size_t i) { return std::as_bytes(std::span(files[i % files.size()])); };
  auto options = [&](size_t i, bool exact) {
    const mso::ImageInfo info = mso::probe_image(bytes(i), names[i % files.size()]);
    return processor.decode_options(info.width, info.height, exact);
  };
  auto decode = [&](size_t i, bool exact, mso::Image* image) {
    mso::decode_image(bytes(i), names[i % files.size()], options(i, exact), image);
  };
  std::vector<mso::Image> reduced(files.size());
  for (size_t i = 0; i < files.size(); ++i) decode(i, false, &reduced[i]);

  std::printf("%zu pictures, processor %d×%d, %s kernels\n", files.size(), processor.width(),
              processor.height(), mso::resize_kernels().name);
  for (const int threads : {1, 2}) {
    auto line = [&](const char* what, const std::function<void(size_t, mso::Image*, float*)>& work) {
      const Rate r = measure(threads, seconds, [&](size_t i) {
        thread_local mso::Image image;
        thread_local std::vector<float> pixels(processor.size());
        work(i, &image, pixels.data());
      });
      std::printf("%d thread%s  %-42s %8.0f images/s %8.0f per CPU second\n", threads,
                  threads > 1 ? "s" : " ", what, r.per_second, r.per_cpu_second);
      std::fflush(stdout);
    };
    line("probe", [&](size_t i, mso::Image*, float*) { options(i, false); });
    line("decode at reduced scale", [&](size_t i, mso::Image* image, float*) { decode(i, false, image); });
    line("process what that gives",
         [&](size_t i, mso::Image*, float* pixels) { processor.process(reduced[i % files.size()], pixels); });
    line("decode at reduced scale and process", [&](size_t i, mso::Image* image, float* pixels) {
      decode(i, false, image);
      processor.process(*image, pixels);
    });
    line("decode exactly and process", [&](size_t i, mso::Image* image, float* pixels) {
      decode(i, true, image);
      processor.process(*image, pixels);
    });
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "decode_bench: %s\n", error.what());
  return 1;
}
