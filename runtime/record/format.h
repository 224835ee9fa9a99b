// Numbers as people read them, for the progress line and the report. Pure, locale-free.
#pragma once

#include <string>
#include <string_view>

#include "base/units.h"  // format_bytes, format_count

namespace mso {

// "0.2 s", "45 s", "1:12", "2:03:04", "3 d 04:05"; "?" for what is not finite; negative counts as 0.
std::string format_duration(double seconds);
// A rate or any positive quantity with three significant digits where small: "0.0123", "3.14", "42.0",
// "3,120".
std::string format_quantity(double value);
// Share 0..1 → "0.4 %", "12 %", "100 %"
std::string format_percent(double share);
// For durations well below a minute: "418 ms", "1.23 s"; longer ones as format_duration.
std::string format_short_duration(double seconds);
// "2.50": a fixed number of decimals
std::string format_fixed(double value, int decimals);
// The shortest text with up to three significant digits: "0.0003", "1e-07", "20"
std::string format_short_number(double value);
// Four significant digits, "nan" and "inf" as such: "2.314", "0.0001235", "1.2e-07"
std::string format_loss(double value);
// "2026-11-29 17:31:33" in UTC
std::string format_utc(double unix_seconds);

// & < > " ' escaped; bytes that are not UTF-8 and control characters become U+FFFD.
std::string html_escape(std::string_view text);

// Columns on a terminal of UTF-8 text, one per code point; escape sequences ESC [ … letter count nothing.
int display_width(std::string_view text);

}  // namespace mso
