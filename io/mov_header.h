// Looks at the boxes of an MP4 or QuickTime file before FFmpeg does: refuses headers that claim more samples than the
// file has bytes, for which it would make an index of gigabytes.
#pragma once

#include <string>

namespace mso {

struct MediaBytes;

struct MovLook {
  bool is_mov = false;
  bool fragmented = false;  // its sample tables go on in `moof` boxes: the header alone does not tell all frames
  std::string impossible;   // why the file cannot be as its sample tables claim; empty where nothing is wrong
};
MovLook look_at_mov(const MediaBytes& bytes);

}  // namespace mso
