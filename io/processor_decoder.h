// Any family's processor (io/processor.h) as what the assembler calls for each file of a sample.
#pragma once

#include <memory>

#include "io/modality.h"
#include "io/sample_media.h"
#include "io/tokenizer.h"
#include "io/video_device.h"

namespace mso {

struct ProcessorDecoderOptions {
  bool exact_jpeg = false;  // JPEGs are always decoded at full size
  int64_t frames = 0;       // of a video; 0: as the family samples (MediaProcessor::video_sampling)
  std::shared_ptr<VideoDevice> device;  // large clips are decoded there; null: all on the CPU
};

// Decoders of the media that the processor takes; the others have no decode(). Error (kBadUsage) where the tokenizer lacks
// a token that receives features.
PerModality<MediaDecoder> processor_decoders(std::shared_ptr<const MediaProcessor> processor, const Tokenizer& tokenizer,
                                             const ProcessorDecoderOptions& options = {});

}  // namespace mso
