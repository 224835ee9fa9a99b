// Small pieces of SVG text, and a frame with axes that maps values to the picture.
#pragma once

#include <string>
#include <vector>

#include "record/decimate.h"
#include "record/time_axis.h"

namespace mso {

std::string pixels(double value);  // one decimal, no trailing zero

std::string svg_line(const std::string& css, double x0, double y0, double x1, double y1);
std::string svg_rect(const std::string& css, double x, double y, double width, double height,
                     const std::string& tooltip = "", const std::string& more = "");
std::string svg_text(const std::string& css, double x, double y, const std::string& anchor,
                     const std::string& text);

// A plot's inner area; y grows upwards in values. With `logarithmic`, low must be > 0.
struct PlotFrame {
  double left = 72, right = 1108, top = 12, bottom = 240;
  double x_low = 0, x_high = 1, y_low = 0, y_high = 1;
  bool logarithmic = false;
  const TimeAxis* time = nullptr;  // then x values are its times

  double x(double value) const;
  double y(double value) const;  // clamped to the frame
  std::string open(const std::string& label, double width, double height) const;
  // Lines and labels: values times `scale`, with as many decimals as the steps need, then `unit`.
  std::string y_grid(int ticks = 5, double scale = 1, const std::string& unit = "") const;
  std::string step_axis(int ticks = 10) const;
  std::string time_axis() const;
  // Path over points; lifted at a change of segment.
  std::string path(const std::string& css, const std::vector<CurvePoint>& points) const;
};

// Data of one curve for the script: positions in the picture, steps, texts of the values.
std::string hover_curve(const PlotFrame& frame, const std::string& name,
                        const std::vector<CurvePoint>& points, std::string (*format)(double), bool with_time);
std::string hover_data(const std::vector<std::string>& curves);

}  // namespace mso
