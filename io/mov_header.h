// Refuses MP4 and QuickTime headers that claim more samples than the file has bytes, before FFmpeg makes an
// index of gigabytes for them.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace mso {

// Why the file cannot be as its sample tables claim; "" where nothing is wrong, or it is no such file.
std::string impossible_mov(std::span<const std::byte> bytes);

}  // namespace mso
