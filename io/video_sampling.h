// Which frames of a clip a model sees: the sampling rules of the Qwen2-VL tools and plain even sampling, as a
// pure function of the number of frames and their rate.
#pragma once

#include <cstdint>
#include <vector>

namespace mso {

struct VideoSampling {
  enum class Rule {
    // Qwen2VLVideoProcessor.sample_frames of transformers: n frames at floor(i · total / n), so that the last
    // frame of
    // the clip is not among them.
    kQwen2Vl,
    // qwen-vl-utils: the same n (smart_nframes), but at round(i · (total − 1) / (n − 1)), halves to even:
    // first and
    // last frame of the clip are among them.
    kQwenVlUtils,
    // default_sample_indices_fn of transformers: num_frames, or max(1, ⌊seconds · fps⌋), at ⌊i · total / n⌋;
    // no minimum,
    // no multiple of anything.
    kUniform,
    // InternVLVideoProcessor.sample_frames of transformers: as kUniform, at ⌊(i + ½) · total / n⌋.
    kMiddle,
    kAll,  // every frame
  };
  Rule rule = Rule::kQwen2Vl;
  double fps = 2;          // frames per second of the clip; unused where num_frames is given
  int64_t num_frames = 0;  // above 0: this many (for the Qwen rules rounded to a multiple of temporal_patch)
  int64_t min_frames = 4;  // of the Qwen rules with fps; kQwenVlUtils rounds it up to a multiple of temporal_patch
  int64_t max_frames = 768;  // likewise, rounded down
  int64_t temporal_patch = 2;

  bool operator==(const VideoSampling&) const = default;
};

// Increasing indices in [0, total_frames); never empty. `frames_per_second`: average of the clip.
// Where the references raise an error or index past the end, the clip is taken whole: fewer frames than
// temporal_patch (a clip of one frame; the processor repeats the last one), fewer than num_frames. Divisions
// of indices are exact, where transformers' float32 may be off by one frame. Error (kBadUsage) for
// total_frames < 1, a rate that is not above 0, or limits that cross.
std::vector<int64_t> sample_frames(const VideoSampling& sampling, int64_t total_frames,
                                   double frames_per_second);

// For clips whose frame rate varies: the frame shown at each of the sample's even places in time instead of
// even places in number. `timestamps_s`: of every frame of the clip, increasing; `duration_s`: end of the
// last one. As many frames as sample_frames() gives; a frame that is shown for long may be there several
// times.
std::vector<int64_t> sample_times(const VideoSampling& sampling, const std::vector<double>& timestamps_s,
                                  double duration_s);

}  // namespace mso
