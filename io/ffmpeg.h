// What every user of FFmpeg shares: owners of its objects, its messages routed to our debug log, its error
// texts.
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavutil/frame.h>
#include <libavutil/pixdesc.h>
}

#include <memory>
#include <string>

namespace mso {

struct AvDeleter {
  void operator()(AVCodecContext* p) const { avcodec_free_context(&p); }
  void operator()(AVFrame* p) const { av_frame_free(&p); }
  void operator()(AVPacket* p) const { av_packet_free(&p); }
};
using AvCodecContextPtr = std::unique_ptr<AVCodecContext, AvDeleter>;
using AvFramePtr = std::unique_ptr<AVFrame, AvDeleter>;
using AvPacketPtr = std::unique_ptr<AVPacket, AvDeleter>;

// FFmpeg prints on standard error by default; after the first call its messages go to log_debug, in a whole
// process.
void route_ffmpeg_messages();

// "Invalid data found when processing input" for AVERROR_INVALIDDATA, and so on.
std::string ffmpeg_error_text(int code);

}  // namespace mso
