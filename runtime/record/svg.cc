#include "record/svg.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "record/format.h"

namespace mso {

std::string pixels(double value) {
  if (!std::isfinite(value)) value = 0;
  char buffer[64];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, 1).ptr;
  std::string text(buffer, end);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

std::string svg_line(const std::string& css, double x0, double y0, double x1, double y1) {
  return "<line class=\"" + css + "\" x1=\"" + pixels(x0) + "\" y1=\"" + pixels(y0) + "\" x2=\"" +
         pixels(x1) + "\" y2=\"" + pixels(y1) + "\"/>";
}

std::string svg_rect(const std::string& css, double x, double y, double width, double height,
                     const std::string& tooltip, const std::string& more) {
  std::string out = "<rect class=\"" + css + "\" x=\"" + pixels(x) + "\" y=\"" + pixels(y) + "\" width=\"" +
                    pixels(std::max(width, 0.0)) + "\" height=\"" + pixels(height) + "\"" + more;
  return tooltip.empty() ? out + "/>" : out + "><title>" + html_escape(tooltip) + "</title></rect>";
}

std::string svg_text(const std::string& css, double x, double y, const std::string& anchor,
                     const std::string& text) {
  return "<text" + (css.empty() ? std::string() : " class=\"" + css + "\"") + " x=\"" + pixels(x) +
         "\" y=\"" + pixels(y) + "\" text-anchor=\"" + anchor + "\">" + html_escape(text) + "</text>";
}

double PlotFrame::x(double value) const {
  if (time) return time->x(value);
  if (!(x_high > x_low)) return (left + right) / 2;
  return left + (right - left) * (value - x_low) / (x_high - x_low);
}

double PlotFrame::y(double value) const {
  double low = y_low, high = y_high;
  if (logarithmic) value = std::log10(std::max(value, y_low)), low = std::log10(low), high = std::log10(high);
  double share = high > low ? (value - low) / (high - low) : 0.5;
  return bottom - (bottom - top) * std::clamp(share, 0.0, 1.0);
}

std::string PlotFrame::open(const std::string& label, double width, double height) const {
  return "<svg class=\"chart\" viewBox=\"0 0 " + pixels(width) + " " + pixels(height) +
         "\" role=\"img\" aria-label=\"" + html_escape(label) + "\">";
}

std::string PlotFrame::y_grid(int count, double scale, const std::string& unit) const {
  std::string out;
  std::vector<double> ticks;
  int decimals = 0;
  if (logarithmic) {
    double low = std::log10(y_low), high = std::log10(y_high);
    int every = std::max(1, static_cast<int>(std::ceil((high - low) / count)));
    for (int k = static_cast<int>(std::ceil(low - 1e-9)); k <= high + 1e-9; k += every)
      ticks.push_back(std::pow(10, k));
    if (high - low < 2)
      for (double factor : {2.0, 5.0})
        for (int k = static_cast<int>(std::floor(low)); k <= high; ++k)
          if (double v = factor * std::pow(10, k); v >= y_low && v <= y_high) ticks.push_back(v);
  } else {
    ticks = round_ticks(y_low, y_high, count);
    if (ticks.size() > 1)
      decimals =
          std::clamp(static_cast<int>(-std::floor(std::log10((ticks[1] - ticks[0]) * scale) + 1e-6)), 0, 12);
  }
  for (double tick : ticks) {
    double value = tick * scale;
    std::string label;
    if (value == 0)
      label = "0";
    else if (logarithmic || std::fabs(value) >= 1e9 || decimals > 4)
      label = format_short_number(value);
    else if (decimals == 0)
      label = format_count(std::llround(value));
    else
      label = format_fixed(value, decimals);
    out += svg_line("grid", left, y(tick), right, y(tick));
    out += svg_text("", left - 8, y(tick) + 4, "end", label + unit);
  }
  return out;
}

std::string PlotFrame::step_axis(int count) const {
  std::string out = svg_line("axis", left, bottom, right, bottom);
  double label = 8.0 * static_cast<double>(format_count(static_cast<int64_t>(x_high)).size()) + 26;
  count = std::clamp(static_cast<int>((right - left) / label), 2, count);
  for (double tick : round_ticks(x_low, x_high, count)) {
    if (tick != std::floor(tick)) continue;
    out += svg_line("axis", x(tick), bottom, x(tick), bottom + 4);
    out += svg_text("", std::min(x(tick), right - label / 2 + 24), bottom + 17, "middle",
                    format_count(static_cast<int64_t>(tick)));
  }
  return out + svg_text("", right, bottom + 32, "end", "step");
}

std::string PlotFrame::time_axis() const {
  std::string out = svg_line("axis", left, bottom, right, bottom);
  for (const auto& tick : time->ticks(80)) {
    out += svg_line("axis", tick.x, bottom, tick.x, bottom + 4);
    out += svg_text("", std::min(tick.x, right - 22), bottom + 17, "middle", tick.label);
  }
  return out;
}

std::string PlotFrame::path(const std::string& css, const std::vector<CurvePoint>& points) const {
  std::string d;
  bool down = false;
  for (size_t i = 0; i < points.size(); ++i) {
    const CurvePoint& p = points[i];
    down = i > 0 && points[i - 1].segment == p.segment;
    d += (down ? "L" : "M") + pixels(x(p.x)) + " " + pixels(y(p.y));
    // A segment of one point shows as a dot.
    if (!down && (i + 1 == points.size() || points[i + 1].segment != p.segment)) d += "h.1";
  }
  return d.empty() ? "" : "<path class=\"" + css + "\" d=\"" + d + "\"/>";
}

std::string hover_curve(const PlotFrame& frame, const std::string& name,
                        const std::vector<CurvePoint>& points, std::string (*format)(double),
                        bool with_time) {
  std::string x, y, steps, values, times;
  for (const CurvePoint& p : points) {
    const char* comma = x.empty() ? "" : ",";
    x += comma + pixels(frame.x(p.x));
    y += comma + pixels(frame.y(p.y));
    steps += comma + std::to_string(p.step);
    values += comma + ("\"" + format(p.y) + "\"");
    if (with_time) times += comma + ("\"" + format_duration(p.x) + "\"");
  }
  return "{\"name\":\"" + name + "\",\"top\":" + pixels(frame.top) + ",\"bottom\":" + pixels(frame.bottom) +
         ",\"x\":[" + x + "],\"y\":[" + y + "],\"s\":[" + steps + "],\"v\":[" + values + "]" +
         (with_time ? ",\"t\":[" + times + "]" : "") + "}";
}

std::string hover_data(const std::vector<std::string>& curves) {
  std::string all;
  for (const std::string& curve : curves) all += (all.empty() ? "" : ",") + curve;
  return "<script type=\"application/json\">[" + all + "]</script>";
}

}  // namespace mso
