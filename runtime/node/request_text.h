// Text of requests ("name:value,name:value") as users type them: strict, bounded, all mistakes at once. Used where the user
// stands and again as root.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mso {

inline constexpr size_t kMaxRequestText = 1024;

struct RequestItem {
  std::string name, value;
};

// Splits at commas and the first colon of each; names must be among `known` and appear once. Mistakes are appended as
// sentences, with the nearest known name, quoting at most a few letters of what was given. None where there was one. `what`
// ("CPU") and `example` ("image:4,video:8") are for the sentences.
std::optional<std::vector<RequestItem>> parse_request_items(std::string_view text, const std::string& what,
                                                            const std::vector<std::string>& known,
                                                            const std::string& example,
                                                            std::vector<std::string>& mistakes);

// Decimal digits only, between min and max.
std::optional<int64_t> parse_small_number(std::string_view text, int64_t min, int64_t max);

// Printable ASCII of at most 40 characters of `text`, for messages: others become '?', the rest "…".
std::string shown(std::string_view text);

}  // namespace mso
