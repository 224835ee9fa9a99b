// Sizes in bytes as people write and read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mso {

// "16G", "1.5 GiB", "512k", "4096": K, M, G, T are powers of 1024, with or without "B" or "iB", in either
// case. None: not a size, negative, or beyond 2^63.
std::optional<int64_t> parse_bytes(std::string_view text);
// "1.5 GiB", "640 B": three significant digits.
std::string format_bytes(double bytes);
// 1234567 → "1,234,567".
std::string format_count(int64_t count);

}  // namespace mso
