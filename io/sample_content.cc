#include "io/sample_content.h"

#include <algorithm>

#include "base/error.h"
#include "io/audio.h"
#include "io/caption.h"
#include "io/video.h"

namespace mso {
namespace {

constexpr uint64_t kMaxMediumBytes = uint64_t{4} << 30;

void set_reason(ReadContent* read, const std::string& reason, const std::string& detail) {
  if (!read->reason.empty()) return;
  read->reason = reason;
  read->detail = detail;
}

std::vector<std::byte> read_medium(const Dataset& dataset, uint64_t id, const ShardMember& member) {
  if (member.size > kMaxMediumBytes)
    throw Error("too large", std::to_string(member.size) + " bytes", "", ExitCode::kBadData);
  return dataset.read(id, member);
}

// Pictures are decoded in full (at the scale the embedder wants), of a video the first frame, of a sound the packets alone:
// `mso data verify` decodes all of it.
void describe_medium(Modality medium, std::span<const std::byte> bytes, const Embedder& embedder, ReadContent* read) {
  if (medium == Modality::kImage) {
    const ImageInfo info = probe_image(bytes, "picture");
    Image picture;
    decode_image(bytes, "picture", embedder.decode_options(info.width, info.height), &picture);
    read->content.picture = std::move(picture);
  } else if (medium == Modality::kAudio) {
    try {
      (void)probe_audio(bytes, "sound");
    } catch (const Error&) {  // odd packets: what decodes is whole
      AudioOptions options;
      options.sample_rate = 0;
      (void)decode_audio(bytes, "sound", options);
    }
  } else if (medium == Modality::kVideo) {
    VideoOptions options;
    options.sampling.rule = VideoSampling::Rule::kUniform;
    options.sampling.num_frames = 1;
    VideoClip clip = decode_video(bytes, "video", options);
    if (read->content.picture.rgb.empty() && clip.frames() > 0)
      read->content.picture = {clip.width, clip.height, std::move(clip.rgb)};
  }
}

}  // namespace

Modality costliest_medium(const ShardSample& sample) {
  Modality most = Modality::kText;
  for (const auto& member : sample.members)
    if (const auto media = media_of_extension(member.extension)) most = std::max(most, *media);
  return most;
}

ReadContent read_content(const Dataset& dataset, uint64_t id, const std::string& caption, const Embedder& embedder) {
  ReadContent read;
  try {
    const auto& sample = dataset.sample(id);
    read.modality = costliest_medium(sample);
    const std::string unusable = dataset.unusable_reason(id);
    if (!unusable.empty()) {
      // Which member is right, or whether it is all there, is unknown: nothing of it counts as intact.
      set_reason(&read, unusable, "the index rules it out");
      return read;
    }
    CaptionResult text = read_caption(dataset, id, sample, caption);
    read.content.text = std::move(text.text);
    if (!text.reason.empty()) set_reason(&read, text.reason, text.detail);
    const auto* picture = sample.picture();
    for (const auto& member : sample.members) {
      const auto medium = media_of_extension(member.extension);
      if (!medium || (*medium == Modality::kImage && &member != picture)) continue;
      try {
        describe_medium(*medium, read_medium(dataset, id, member), embedder, &read);
      } catch (const Error& error) {
        set_reason(&read, error.exit_code() == ExitCode::kBadData ? "decode_error" : "read_error", error.what());
      }
    }
  } catch (const std::exception& error) {
    set_reason(&read, "read_error", error.what());
  }
  return read;
}

}  // namespace mso
