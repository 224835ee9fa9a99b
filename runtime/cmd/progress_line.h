// How far a command is, on standard error: a line that is overwritten on a terminal, a plain line now and then elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace mso {

// progress(done, total). On a terminal (MSO_PROGRESS=live|plain overrides what is found): "checking samples 1,200 of
// 9,000, 13 %, 0:42 left". Elsewhere the same as a line of the log, first after ten seconds, then every ten.
std::function<void(uint64_t, uint64_t)> progress_line(const std::string& verb);
// The same for work of several stages; each has a line of its own.
std::function<void(const char*, uint64_t, uint64_t)> staged_progress_line();

}  // namespace mso
