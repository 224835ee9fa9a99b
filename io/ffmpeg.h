// What every user of FFmpeg shares: owners of its objects, its messages routed to our debug log, its error
// texts.
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
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
  void operator()(AVIOContext* p) const {
    av_freep(&p->buffer);  // it may have been replaced by a larger one
    avio_context_free(&p);
  }
  void operator()(AVFormatContext* p) const { avformat_close_input(&p); }
};
using AvCodecContextPtr = std::unique_ptr<AVCodecContext, AvDeleter>;
using AvFramePtr = std::unique_ptr<AVFrame, AvDeleter>;
using AvFormatContextPtr = std::unique_ptr<AVFormatContext, AvDeleter>;
using AvIoContextPtr = std::unique_ptr<AVIOContext, AvDeleter>;
using AvPacketPtr = std::unique_ptr<AVPacket, AvDeleter>;

// FFmpeg prints on standard error by default; after the first call its messages go to log_debug, in a whole
// process.
void route_ffmpeg_messages();

// While it lives, the first error that a demuxer logs in this thread goes to *first: FFmpeg's demuxers go on
// behind damage as if nothing was lost.
class DemuxerErrors {
 public:
  explicit DemuxerErrors(std::string* first);
  ~DemuxerErrors();
  DemuxerErrors(const DemuxerErrors&) = delete;
  DemuxerErrors& operator=(const DemuxerErrors&) = delete;
};

// "Invalid data found when processing input" for AVERROR_INVALIDDATA, and so on.
std::string ffmpeg_error_text(int code);

}  // namespace mso
