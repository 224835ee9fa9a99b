// A decoded sound frame of any sample format and any number of channels → one channel of floats.
#pragma once

#include <vector>

#include "io/ffmpeg.h"

namespace mso {

// The mean over channels. Integers of b bits become v / 2^(b − 1) (8-bit ones are unsigned, 128 is silence).
// False for a format that is not known.
bool mix_to_mono(const AVFrame& frame, std::vector<float>* mono);

}  // namespace mso
