#include "io/dataset_verify.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "io/audio.h"
#include "io/caption.h"
#include "io/image.h"
#include "io/modality.h"
#include "io/video.h"
#include "node/cpu_list.h"

namespace mso {
namespace {

constexpr uint64_t kMaxMediaBytes = uint64_t{4} << 30;

// Decodes one file in full; throws Error.
void check_medium(Modality modality, std::span<const std::byte> bytes) {
  if (modality == Modality::kImage) {
    thread_local Image image;  // its memory is used again
    decode_image(bytes, "picture", {.exact = true}, &image);
  } else if (modality == Modality::kAudio) {
    AudioOptions options;
    options.sample_rate = 0;  // its own: nothing is resampled
    decode_audio(bytes, "sound", options);
  } else if (modality == Modality::kVideo) {
    VideoOptions options;
    options.sampling.rule = VideoSampling::Rule::kAll;
    decode_video(bytes, "video", options, [](int64_t, std::span<const uint8_t>, const VideoClip&) {});
  }
}

std::vector<SampleFault> check_sample(const Dataset& dataset, uint64_t id, const std::string& caption) {
  std::vector<SampleFault> faults;
  const auto& sample = dataset.sample(id);
  if (const std::string unusable = dataset.unusable_reason(id); !unusable.empty())
    return {{id, unusable, explain_unusable(unusable), ""}};
  if (sample.flags & kSampleBadPictureSize)
    faults.push_back({id, "decode_error", "its picture has an impossible size", std::string(sample.picture()->extension)});
  if (const CaptionResult read = read_caption(dataset, id, sample, caption); !read.reason.empty())
    faults.push_back({id, read.reason, read.detail, caption == "txt" ? "txt" : "json"});
  for (const auto& member : sample.members) {
    const std::string extension(member.extension);
    const auto modality = media_of_extension(extension);
    if (!modality) continue;
    if (member.size > kMaxMediaBytes) {
      faults.push_back({id, "too_large", "its ." + extension + " has " + std::to_string(member.size) + " bytes", extension});
      continue;
    }
    std::vector<std::byte> bytes;
    try {
      bytes = dataset.read(id, member);
    } catch (const Error& error) {
      faults.push_back({id, "read_error", error.what(), extension});
      continue;
    }
    try {
      check_medium(*modality, bytes);
    } catch (const Error& error) {
      faults.push_back({id, "decode_error", error.what(), extension});
    }
  }
  return faults;
}

}  // namespace

std::vector<SampleFault> verify_dataset(const Dataset& dataset, const VerifyOptions& options,
                                        const std::function<void(uint64_t, uint64_t)>& progress) {
  const int threads = options.threads > 0 ? options.threads : usable_cores();
  std::vector<SampleFault> all;
  std::mutex mutex;
  std::atomic<uint64_t> next = 0, done = 0;
  std::exception_ptr failure;
  {
    std::vector<std::jthread> workers;
    for (int t = 0; t < threads; ++t)
      workers.emplace_back([&] {
        try {
          for (uint64_t id; (id = next++) < dataset.size(); ++done) {
            std::vector<SampleFault> faults = check_sample(dataset, id, options.caption);
            if (faults.empty()) continue;
            std::lock_guard lock(mutex);
            std::ranges::move(faults, std::back_inserter(all));
          }
        } catch (...) {  // not for what a sample holds: the index itself, or memory
          std::lock_guard lock(mutex);
          failure = std::current_exception();
          next = dataset.size();
          done = dataset.size();
        }
      });
    while (progress && done < dataset.size()) {
      progress(done, dataset.size());
      for (int i = 0; i < 10 && done < dataset.size(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  if (failure) std::rethrow_exception(failure);
  if (progress) progress(dataset.size(), dataset.size());
  std::ranges::stable_sort(all, {}, &SampleFault::id);
  return all;
}

}  // namespace mso
