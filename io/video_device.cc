#include "io/video_device.h"

extern "C" {
#include <libavutil/hwcontext.h>
}

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <string_view>

#include "base/error.h"
#include "base/log.h"

namespace mso {
namespace {

// NVIDIA Video Codec SDK, "NVDEC Video Decoder API Programming Guide", table of supported sizes, Turing and later.
struct CodecLimits {
  std::string_view codec;
  int least_width, least_height, most_side;
};
constexpr std::array<CodecLimits, 5> kLimits = {{{"h264", 48, 16, 4096},
                                                 {"hevc", 144, 144, 8192},
                                                 {"vp8", 48, 16, 4096},
                                                 {"vp9", 128, 128, 8192},
                                                 {"av1", 128, 128, 8192}}};

// The context that other users of the GPU in this process have, instead of one more (hwcontext_cuda.h, which needs
// CUDA's headers).
constexpr int kUsePrimaryContext = 1;

AVPixelFormat choose_format(AVCodecContext* context, const AVPixelFormat* offered) {
  for (const AVPixelFormat* format = offered; *format != AV_PIX_FMT_NONE; ++format)
    if (*format == AV_PIX_FMT_CUDA) return *format;
  return avcodec_default_get_format(context, offered);  // a profile that the device does not take
}

class CudaVideoDevice : public VideoDevice {
 public:
  explicit CudaVideoDevice(AVBufferRef* device) : device_(device) {}
  ~CudaVideoDevice() override { av_buffer_unref(&device_); }

  void attach(AVCodecContext* context) const override {
    context->hw_device_ctx = av_buffer_ref(device_);
    if (context->hw_device_ctx) context->get_format = choose_format;
  }

  bool fetch(AVFrame* frame) const override {
    if (!frame->hw_frames_ctx) return true;
    // Left and top borders are not cut off of frames on a device.
    if (frame->crop_left || frame->crop_top) return false;
    AvFramePtr here(av_frame_alloc());
    if (!here || av_hwframe_transfer_data(here.get(), frame, 0) < 0 || av_frame_copy_props(here.get(), frame) < 0) return false;
    switch (here->format) {
      case AV_PIX_FMT_NV12:
      case AV_PIX_FMT_P010LE:
      case AV_PIX_FMT_YUV444P:
        break;
      default:
        return false;  // the CPU's decoder gives another one
    }
    if (!make_planar(here.get())) return false;
    av_frame_unref(frame);
    av_frame_move_ref(frame, here.get());
    return true;
  }

 private:
  AVBufferRef* device_;
};

}  // namespace

VideoBackend video_backend(const std::string& word) {
  if (word == "auto") return VideoBackend::kAuto;
  if (word == "cpu") return VideoBackend::kCpu;
  if (word == "nvdec") return VideoBackend::kNvdec;
  throw Error("unknown video decoder", "data.video_decoder: " + word, "auto, cpu or nvdec", ExitCode::kBadUsage);
}

bool nvdec_takes(const DecodeWork& work) {
  for (const CodecLimits& limits : kLimits)
    if (work.codec == limits.codec)
      return work.width >= limits.least_width && work.height >= limits.least_height && work.width <= limits.most_side &&
             work.height <= limits.most_side;
  return false;
}

bool decodes_on_device(VideoBackend backend, const DecodeWork& work, bool device_present) {
  if (backend == VideoBackend::kCpu || !device_present || work.frames <= 0 || !nvdec_takes(work)) return false;
  if (backend == VideoBackend::kNvdec) return true;
  const int64_t pixels = int64_t{work.width} * work.height;
  return pixels >= kLeastFramePixels && work.frames >= (kLeastDevicePixels + pixels - 1) / pixels;
}

void VideoDevice::note_failure(const std::string& name, const std::string& what) {
  const int failures = ++failures_;
  if (failures == 1) log_warn("NVDEC failed for {} ({}); it is decoded on the CPU, as are others it fails for", name, what);
  if (failures == kMostFailures) log_warn("NVDEC has failed {} times and is not used any more", kMostFailures);
}

std::shared_ptr<VideoDevice> find_video_device(std::string* why) {
  static std::mutex mutex;
  static std::weak_ptr<VideoDevice> open;
  std::lock_guard lock(mutex);
  if (std::shared_ptr<VideoDevice> there = open.lock()) return there;
  route_ffmpeg_messages();
  AVBufferRef* device = nullptr;
  const int result = av_hwdevice_ctx_create(&device, AV_HWDEVICE_TYPE_CUDA, nullptr, nullptr, kUsePrimaryContext);
  if (result < 0) {
    // -1 is what FFmpeg's loader gives, and no error number.
    *why = "FFmpeg finds no CUDA device (" + (result == -1 ? "libcuda.so.1 of the driver is not there" : ffmpeg_error_text(result)) + ")";
    return {};
  }
  auto made = std::make_shared<CudaVideoDevice>(device);
  open = made;
  return made;
}

std::shared_ptr<VideoDevice> open_video_device(VideoBackend backend) {
  if (backend == VideoBackend::kCpu) return {};
  std::string why;
  std::shared_ptr<VideoDevice> device = find_video_device(&why);
  if (!device && backend == VideoBackend::kNvdec)
    throw Error("no GPU to decode video on: " + why, "data.video_decoder: nvdec",
                "auto takes the CPU where there is no GPU; a GPU needs its driver with libcuda.so.1 and libnvcuvid.so.1", ExitCode::kBadUsage);
  if (device) device->backend = backend;
  return device;
}

bool make_planar(AVFrame* frame) {
  const bool deep = frame->format == AV_PIX_FMT_P010LE;
  if (!deep && frame->format != AV_PIX_FMT_NV12) return true;
  AvFramePtr planar(av_frame_alloc());
  if (!planar) return false;
  planar->format = deep ? AV_PIX_FMT_YUV420P10LE : AV_PIX_FMT_YUV420P;
  planar->width = frame->width;
  planar->height = frame->height;
  if (av_frame_get_buffer(planar.get(), 0) < 0 || av_frame_copy_props(planar.get(), frame) < 0) return false;
  const int chroma_width = (frame->width + 1) / 2, chroma_height = (frame->height + 1) / 2;
  auto row = [](const AVFrame& f, int plane, int y) { return f.data[plane] + ptrdiff_t{f.linesize[plane]} * y; };
  for (int y = 0; y < frame->height; ++y) {
    if (!deep) {
      std::memcpy(row(*planar, 0, y), row(*frame, 0, y), static_cast<size_t>(frame->width));
      continue;
    }
    const auto* from = reinterpret_cast<const uint16_t*>(row(*frame, 0, y));
    auto* to = reinterpret_cast<uint16_t*>(row(*planar, 0, y));
    for (int x = 0; x < frame->width; ++x) to[x] = static_cast<uint16_t>(from[x] >> 6);  // ten bits stand at the top
  }
  for (int y = 0; y < chroma_height; ++y) {
    if (deep) {
      const auto* from = reinterpret_cast<const uint16_t*>(row(*frame, 1, y));
      auto *u = reinterpret_cast<uint16_t*>(row(*planar, 1, y)), *v = reinterpret_cast<uint16_t*>(row(*planar, 2, y));
      for (int x = 0; x < chroma_width; ++x) u[x] = static_cast<uint16_t>(from[2 * x] >> 6), v[x] = static_cast<uint16_t>(from[2 * x + 1] >> 6);
    } else {
      const uint8_t* from = row(*frame, 1, y);
      uint8_t *u = row(*planar, 1, y), *v = row(*planar, 2, y);
      for (int x = 0; x < chroma_width; ++x) u[x] = from[2 * x], v[x] = from[2 * x + 1];
    }
  }
  av_frame_unref(frame);
  av_frame_move_ref(frame, planar.get());
  return true;
}

}  // namespace mso
