// The processors of Whisper and Qwen2-Audio: a sound becomes log-mel features (io/mel.h), and for Qwen2-Audio
// the tokens that stand for it in the text.
//
// Equal to transformers 5.24 (and 4.57): features within 1e-4, masks and token counts exactly.
#pragma once

#include <memory>
#include <string>

#include "io/mel.h"
#include "io/processor.h"

namespace mso {

struct ProcessorFiles;

struct WhisperConfig {
  std::string family = "whisper";  // or "qwen2_audio"
  MelConfig mel;
  bool return_attention_mask = false;
  // Qwen2-Audio's; empty for Whisper, whose sounds have no place in the text.
  std::string audio_token;

  bool operator==(const WhisperConfig&) const = default;
};

class WhisperProcessor : public MediaProcessor {
 public:
  WhisperProcessor(const WhisperConfig& config, ProcessorOptions options);

  std::string family() const override { return config_.family; }
  MediaPlaceholders placeholders() const override;
  bool takes(Modality m) const override { return m == Modality::kAudio; }
  uint64_t audio_bytes() const override;
  // "input_features" float32 [1, mels, frames], of at most chunk_length seconds: what is longer is cut, as
  // transformers does (io/audio.h has split_windows for longer sounds). The mask, int32 [1, frames], is 1
  // where a frame begins inside the sound: "feature_attention_mask" for Qwen2-Audio, "attention_mask" for a
  // Whisper folder that asks for it. Tokens (Qwen2-Audio): ⌊(⌊(frames − 1) / 2⌋ + 1 − 2) / 2⌋ + 1 of the
  // mask's frames, what two steps of stride 2 in the encoder leave. Error (kBadData) for a clip of another
  // rate than the extractor's.
  ProcessedMedia audio(const AudioClip& clip) const override;
  // Of a sound of this many samples at the extractor's rate, from its length alone (for cost and packing).
  int64_t audio_tokens(int64_t samples) const;
  std::map<std::string, std::string> files() const override;

 private:
  int64_t sound_frames(int64_t samples) const;  // of the mask

  WhisperConfig config_;
  LogMel mel_;
};

// Error (kBadUsage) with file and key for impossible values, among them dithering, which would be noise in
// the data.
WhisperConfig read_whisper_config(const ProcessorFiles& files);
std::unique_ptr<MediaProcessor> load_whisper_processor(const ProcessorFiles& files,
                                                       const ProcessorOptions& options);

}  // namespace mso
