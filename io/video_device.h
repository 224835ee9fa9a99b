// Decoding video on a GPU's decoder (NVDEC, through FFmpeg): which clips are worth it, and the device that all decoders of
// a process share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "io/ffmpeg.h"

namespace mso {

enum class VideoBackend : uint8_t { kAuto, kCpu, kNvdec };
// data.video_decoder: auto, cpu or nvdec. Error (kBadUsage) for anything else.
VideoBackend video_backend(const std::string& word);

// What is to be decoded of a clip.
struct DecodeWork {
  std::string codec;  // FFmpeg's name
  int width = 0, height = 0;
  int64_t frames = 0;  // that must be decoded, chosen or not
};

// True where NVDEC can decode the clip to the very pixels that the CPU gives: codecs whose decoding is defined bit by bit
// (H.264, HEVC, VP8, VP9, AV1; MPEG-1, -2 and -4 are not, their inverse DCT may round either way), within the sizes that
// NVIDIA's table of decoders allows on Turing and later.
bool nvdec_takes(const DecodeWork& work);
// Pure. kNvdec: whatever nvdec_takes(). kAuto: of these, clips with at least kLeastDevicePixels to decode in frames of at
// least kLeastFramePixels; for less, making a decoder on the device and copying the frames costs more than a CPU needs.
bool decodes_on_device(VideoBackend backend, const DecodeWork& work, bool device_present);
inline constexpr int64_t kLeastFramePixels = 640 * 360, kLeastDevicePixels = int64_t{64} << 20;

// A decoder that is not the CPU. Thread-safe; each clip has a decoder of its own on it.
class VideoDevice {
 public:
  virtual ~VideoDevice() = default;
  // Makes a decoder that is not open yet use the device where it can; where not, it decodes on the CPU.
  virtual void attach(AVCodecContext* context) const = 0;
  // Brings a decoded frame into memory, in the planar format that the CPU's decoder gives; frames that are there stay as
  // they are. False: the device has failed, or gives another picture than the CPU would.
  virtual bool fetch(AVFrame* frame) const = 0;

  VideoBackend backend = VideoBackend::kAuto;

  // Clips decoded on it; those it failed for, which were decoded on the CPU. The first failure is logged as a warning; after
  // kMostFailures the device is left alone.
  static constexpr int kMostFailures = 8;
  bool usable() const { return failures_ < kMostFailures; }
  void note_clip() { ++clips_; }
  void note_failure(const std::string& name, const std::string& what);
  int64_t clips() const { return clips_; }
  int failures() const { return failures_; }

 private:
  std::atomic<int64_t> clips_ = 0;
  std::atomic<int> failures_ = 0;
};

// By data.video_decoder: null for cpu, and for auto without a device; one device (the first that CUDA shows) for a whole
// process. Error (kBadUsage) for nvdec where there is none, saying why.
std::shared_ptr<VideoDevice> open_video_device(VideoBackend backend);
// The same without an Error; null and *why where there is none.
std::shared_ptr<VideoDevice> find_video_device(std::string* why);

// NV12 → YUV420P and P010 → YUV420P10, the same samples in planes; other formats stay. False where memory is short.
bool make_planar(AVFrame* frame);

// Thrown inside a decode on a device; the clip is then decoded on the CPU, which has the last word on damage.
struct DeviceTrouble : std::runtime_error {
  DeviceTrouble(const std::string& what, bool of_device) : std::runtime_error(what), by_device(of_device) {}
  bool by_device;  // false: more likely of the clip
};

}  // namespace mso
