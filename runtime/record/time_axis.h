// Wall time along a chart, with the hours in which nothing ran folded to a small break.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace mso {

class TimeAxis {
 public:
  struct Tick {
    double x;
    std::string label;
  };
  struct Break {
    double x0, x1, seconds;
  };
  // `spans`: begin and end (seconds) of what ran, in order. Gaps longer than 2 % of the running time are
  // folded. The axis takes [left, right] on the chart.
  TimeAxis(const std::vector<std::pair<double, double>>& spans, double left, double right);
  double x(double time) const;  // clamped to the axis
  const std::vector<Break>& breaks() const { return breaks_; }
  // Labelled with the time since the first span's begin, at least `apart` from each other.
  std::vector<Tick> ticks(double apart) const;

 private:
  struct Piece {
    double t0, t1, x0, x1;
    bool folded;
  };
  std::vector<Piece> pieces_;
  std::vector<Break> breaks_;
};

// Round values (1, 2 or 5 times a power of ten) that cover [low, high] in about `count` steps.
std::vector<double> round_ticks(double low, double high, int count);

}  // namespace mso
