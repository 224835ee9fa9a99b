// Joins the decoders of video and sound with what a model of the LLaVA family takes, into what the assembler calls for
// each file.
#pragma once

#include <memory>
#include <optional>

#include "io/image_processor.h"
#include "io/mel.h"
#include "io/sample_media.h"
#include "io/sequence_alignment.h"
#include "io/video_device.h"

namespace mso {

// At most `frames` frames of a clip, evenly spaced (VideoSampling::Rule::kUniform; a shorter clip whole), each through the
// image processor: "pixel_values_videos" float32 [frames, 3, height, width]. Each fills `tokens_per_frame` positions.
// With `alignment` (of checked values), the processed frames are brought to alignment->length of them, along time. On `device` where there is one and it is worth it.
MediaDecoder make_video_decoder(const ImageProcessorConfig& config, int64_t frames, int64_t tokens_per_frame, int64_t token,
                                std::optional<AlignmentRule> alignment = {}, std::shared_ptr<VideoDevice> device = nullptr);

// The first `mel_frames` frames (10 ms each) of a sound, padded with silence: "input_features" float32 [1, mel_bins,
// mel_frames], as WhisperFeatureExtractor gives them. Fills `tokens` positions. With `alignment` (length: mel_frames), the
// features of the sound itself, without the silence behind it, are brought to that length along time.
MediaDecoder make_audio_decoder(int64_t mel_bins, int64_t mel_frames, int64_t tokens, int64_t token,
                                std::optional<AlignmentRule> alignment = {});

}  // namespace mso
