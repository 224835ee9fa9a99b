// The charts of the report as inline SVG, coloured by the page's style sheet (report_style.h).
#pragma once

#include <string>
#include <vector>

#include "record/run_history.h"

namespace mso {

// Each returns the content of a card: the SVG and the data for hovering; empty where there is nothing to
// show.
std::string loss_chart(const RunHistory& history);
// A half-width curve over steps (gradient norm, learning rate); `logarithmic` where values span decades.
std::string small_chart(const Decimator& curve, const std::string& name, bool smoothed, bool logarithmic);
// The three below share their time axis.
std::string speed_chart(const RunHistory& history);
std::string wait_chart(const RunHistory& history);
std::string timeline_chart(const RunHistory& history);

}  // namespace mso
