// The report: one self-contained HTML page (no network, light and dark, prints) from a run's history.
#pragma once

#include <string>

#include "record/run_history.h"

namespace mso {

// In the head of every page: tells a report from a file of another origin.
inline constexpr const char* kReportGenerator = "mso report";

// `now`: Unix seconds; tells a running run from an interrupted one and is printed. All text from files is
// escaped.
std::string report_html(const RunHistory& history, double now);

// The run in a sentence: "finished: 300 of 300 steps in 2:05, loss 9.010 to 2.310, 2 recoveries".
std::string report_sentence(const RunHistory& history, double now);

}  // namespace mso
