#include "record/report_charts.h"

#include <algorithm>
#include <cmath>

#include "record/format.h"
#include "record/svg.h"

namespace mso {
namespace {

constexpr double kWidth = 1120;
constexpr size_t kMarksPerLane = 400;

// Range of a curve: all of it but spikes, which lie thrice as far out as 98 % of the points are apart.
std::pair<double, double> value_range(const std::vector<CurvePoint>& points) {
  if (points.empty()) return {0, 1};
  std::vector<double> values;
  for (const CurvePoint& p : points) values.push_back(p.y);
  std::sort(values.begin(), values.end());
  auto at = [&](double q) { return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))]; };
  double spread = at(0.99) - at(0.01), least = at(0.01) - 3 * spread, most = at(0.99) + 3 * spread;
  double low = values.front(), high = values.back();
  if (values.size() > 50 && spread > 0) {
    low = *std::lower_bound(values.begin(), values.end(), least);
    high = *(std::upper_bound(values.begin(), values.end(), most) - 1);
  }
  if (!(high > low)) {
    double room = high != 0 ? std::fabs(high) * 0.1 : 1;
    low -= room, high += room;
  }
  return {low, high};
}

// The smoothed curve of what lies within [low, high]: a spike is no trend.
std::vector<CurvePoint> trend(std::vector<CurvePoint> means, double low, double high) {
  std::erase_if(means, [&](const CurvePoint& p) { return p.y < low || p.y > high; });
  return smooth(means, std::max(1.2, 0.012 * static_cast<double>(means.size())));
}

// A curve of very few points shows them.
std::string dots(const PlotFrame& f, const std::vector<CurvePoint>& points) {
  std::string out;
  if (points.size() <= 3)
    for (const CurvePoint& p : points)
      out += "<circle class=\"point\" r=\"3.5\" cx=\"" + pixels(f.x(p.x)) + "\" cy=\"" + pixels(f.y(p.y)) +
             "\"/>";
  return out;
}

std::vector<std::pair<double, double>> spans_of(const RunHistory& h) {
  std::vector<std::pair<double, double>> spans;
  for (const AttemptHistory& a : h.attempts) spans.emplace_back(a.begin - h.first_time, a.last - h.first_time);
  return spans;
}

std::string hatch() {
  return "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
         "patternTransform=\"rotate(45)\"><line class=\"hatch\" x1=\"0\" y1=\"0\" x2=\"0\" "
         "y2=\"6\"/></pattern></defs>";
}

// Ground of a chart over time: every other attempt tinted, folded pauses hatched.
std::string attempt_ground(const RunHistory& h, const TimeAxis& time, double top, double bottom) {
  std::string out;
  for (size_t i = 1; i < h.attempts.size(); i += 2) {
    double x0 = time.x(h.attempts[i].begin - h.first_time), x1 = time.x(h.attempts[i].last - h.first_time);
    out += svg_rect("odd", x0, top, x1 - x0, bottom - top);
  }
  for (const auto& gap : time.breaks())
    out += svg_rect("break", gap.x0, top, gap.x1 - gap.x0, bottom - top,
                    "nothing ran for " + format_duration(gap.seconds));
  return out;
}

std::string cross(double x, double y, double size, const std::string& tooltip) {
  std::string s = pixels(size), t = pixels(2 * size);
  return "<g><title>" + html_escape(tooltip) + "</title><circle cx=\"" + pixels(x) + "\" cy=\"" + pixels(y) +
         "\" r=\"8\" fill=\"transparent\"/><path class=\"killsign\" d=\"M" + pixels(x - size) + " " +
         pixels(y - size) + "l" + t + " " + t + "m0-" + t + "l-" + t + " " + t + "\"/></g>";
}

std::string triangle_up(const std::string& css, double x, double y, const std::string& tooltip) {
  return "<path class=\"" + css + "\" d=\"M" + pixels(x) + " " + pixels(y) + "l4.5 8h-9z\"><title>" +
         html_escape(tooltip) + "</title></path>";
}

std::string number(int64_t n, const char* one, const char* many) {
  return format_count(n) + " " + (n == 1 ? one : many);
}

}  // namespace

std::string loss_chart(const RunHistory& h) {
  std::vector<CurvePoint> raw = h.loss.points(), again = h.repeated_loss.points();
  if (raw.empty() && h.not_finite.empty()) return "";
  std::vector<CurvePoint> all = raw;
  all.insert(all.end(), h.eval_loss.begin(), h.eval_loss.end());
  PlotFrame f;
  f.bottom = 300;
  std::tie(f.y_low, f.y_high) = value_range(all);
  std::vector<CurvePoint> smoothed = trend(h.loss.means(), f.y_low, f.y_high);
  double room = (f.y_high - f.y_low) * 0.06;
  f.y_low = f.y_low >= 0 && f.y_low < room ? 0 : f.y_low - room;
  f.y_high += room;
  f.x_low = 0;
  f.x_high = static_cast<double>(std::max<int64_t>(h.steps_finished, 1));
  if (!raw.empty() && raw.front().x > f.x_high / 2) f.x_low = raw.front().x;  // a file that begins late
  if (!(f.x_high > f.x_low)) f.x_low = f.x_high - 1;

  std::string out = f.open(
      "Loss over steps: from " + format_loss(h.first_loss) + " to " + format_loss(h.final_loss), kWidth, 336);
  std::string marks;
  const std::string many = h.attempts.size() > 8 ? " many" : "";
  for (size_t i = 1; i < h.attempts.size(); ++i) {
    const AttemptHistory &before = h.attempts[i - 1], &a = h.attempts[i];
    if (before.last_step < 0 && !a.resume) continue;
    double stopped = f.x(static_cast<double>(std::max<int64_t>(before.last_step, 0)));
    std::string text = "attempt " + std::to_string(before.number) + " ended after step " +
                       format_count(std::max<int64_t>(before.last_step, 0));
    if (a.resume) {
      double from = f.x(static_cast<double>(a.resume->step));
      text += "\nattempt " + std::to_string(a.number) + " went on from step " + format_count(a.resume->step) +
              " (level " + std::to_string(a.resume->level) + ", " +
              (a.resume->source.empty() ? "?" : a.resume->source) + ")";
      if (stopped - from > 0.5)
        out += svg_rect("lostband", from, f.top, stopped - from, f.bottom - f.top, text);
      marks += svg_line("resume" + many, from, f.top, from, f.bottom);
    }
    marks += svg_line("kill" + many, stopped, f.top, stopped, f.bottom);
    marks += cross(stopped, f.top - 4, 3.5, text);
  }
  out += f.y_grid() + f.step_axis() + marks;
  out += f.path("raw", raw) + f.path("line", smoothed) + dots(f, raw);
  // Few repeated points are rings that must sit on the curve, many a line over it.
  if (again.size() <= 300) {
    for (const CurvePoint& p : again)
      out +=
          "<circle class=\"again\" r=\"3\" cx=\"" + pixels(f.x(p.x)) + "\" cy=\"" + pixels(f.y(p.y)) + "\"/>";
  } else {
    out += f.path("again", again);
  }
  if (h.eval_loss.size() > 1) out += f.path("evalline", h.eval_loss);
  if (h.eval_loss.size() <= 120)
    for (const CurvePoint& p : h.eval_loss)
      out += "<circle class=\"evalmark\" r=\"4\" cx=\"" + pixels(f.x(p.x)) + "\" cy=\"" + pixels(f.y(p.y)) +
             "\"><title>" +
             html_escape("evaluation at step " + format_count(p.step) + ": loss " + format_loss(p.y)) +
             "</title></circle>";
  int spikes = 0;
  for (const CurvePoint& p : raw)
    if (p.y > f.y_high && ++spikes <= 100)
      out +=
          triangle_up("nan", f.x(p.x), f.top,
                      "step " + format_count(p.step) + ": loss " + format_loss(p.y) + " (beyond the scale)");
  for (const CurvePoint& p : h.not_finite)
    out += triangle_up("nan", f.x(p.x), f.bottom - 9,
                       "step " + format_count(p.step) + ": loss " + format_loss(p.y));
  out += "</svg>";
  std::vector<std::string> curves = {hover_curve(f, "loss", raw, format_loss, false),
                                     hover_curve(f, "smoothed", smoothed, format_loss, false)};
  return out + hover_data(curves);
}

std::string small_chart(const Decimator& curve, const std::string& name, bool smoothed, bool logarithmic) {
  std::vector<CurvePoint> raw = curve.points();
  if (raw.empty()) return "";
  PlotFrame f;
  f.left = 62;
  f.right = 530;
  f.bottom = 160;
  std::tie(f.y_low, f.y_high) = value_range(raw);
  double least = raw.front().y, most = raw.front().y;
  for (const CurvePoint& p : raw) least = std::min(least, p.y), most = std::max(most, p.y);
  // Decades are worth a logarithm; spikes then need not be cut.
  if (logarithmic && least > 0 && most / least > 20) {
    f.logarithmic = true;
    f.y_low = least / 1.2;
    f.y_high = most * 1.2;
  } else {
    double room = (f.y_high - f.y_low) * 0.06;
    f.y_low = f.y_low >= 0 && f.y_low < 0.3 * f.y_high ? 0 : f.y_low - room;
    f.y_high += room;
  }
  f.x_high = std::max(raw.back().x, 1.0);
  if (raw.front().x > f.x_high / 2) f.x_low = std::min(raw.front().x, f.x_high - 1);
  std::string out = f.open(name + " over steps", 545, 196);
  out += f.y_grid(4) + f.step_axis(6);
  if (smoothed) {
    out += f.path("raw", raw) + f.path("line thin", trend(curve.means(), f.y_low, f.y_high));
  } else {
    out += f.path("line thin", raw);
  }
  out += dots(f, raw);
  return out + "</svg>" + hover_data({hover_curve(f, name, raw, format_quantity, false)});
}

std::string speed_chart(const RunHistory& h) {
  std::vector<CurvePoint> raw = h.speed.points();
  if (raw.empty()) return "";
  PlotFrame f;
  TimeAxis time(spans_of(h), f.left, f.right);
  f.time = &time;
  f.bottom = 172;
  f.y_low = 0;
  f.y_high = value_range(raw).second * 1.08;
  if (!(f.y_high > 0)) f.y_high = 1;
  std::string out =
      f.open("Tokens per second over time, median " + format_quantity(h.median_tokens_per_s), kWidth, 196);
  out += attempt_ground(h, time, f.top, f.bottom) + f.y_grid(4) + f.time_axis();
  out += f.path("raw", raw) + f.path("line", trend(h.speed.means(), 0, f.y_high)) + dots(f, raw);
  return out + "</svg>" + hover_data({hover_curve(f, "tokens/s", raw, format_quantity, true)});
}

std::string wait_chart(const RunHistory& h) {
  std::vector<CurvePoint> raw = h.data_wait.points();
  if (raw.empty()) return "";
  PlotFrame f;
  TimeAxis time(spans_of(h), f.left, f.right);
  f.time = &time;
  f.bottom = 112;
  f.y_low = 0;
  // Spikes are what it is about; at least one per cent, so that nothing looks like nothing.
  double most = 0;
  for (const CurvePoint& p : raw) most = std::max(most, p.y);
  f.y_high = std::clamp(most * 1.1, 0.01, 1.0);
  std::string out = f.open("Share of each step spent waiting for data", kWidth, 136);
  out += attempt_ground(h, time, f.top, f.bottom) + f.y_grid(3, 100, " %") + f.time_axis();
  // The area under the highest of each run, attempt by attempt.
  for (size_t begin = 0; begin < raw.size();) {
    size_t end = begin;
    std::string d = "M" + pixels(f.x(raw[begin].x)) + " " + pixels(f.bottom);
    for (; end < raw.size() && raw[end].segment == raw[begin].segment; ++end)
      d += "L" + pixels(f.x(raw[end].x)) + " " + pixels(f.y(raw[end].y));
    d += "L" + pixels(f.x(raw[end - 1].x)) + " " + pixels(f.bottom) + "z";
    out += "<path class=\"area\" d=\"" + d + "\"/>";
    begin = end;
  }
  out += f.path("line wait thin", trend(h.data_wait.means(), 0, 1)) + dots(f, raw);
  return out + "</svg>" + hover_data({hover_curve(f, "data wait", raw, format_percent, true)});
}

namespace {

const char* snapshot_css(const SnapshotMark& mark) {
  if (mark.state == SnapshotMark::kFailed) return "failed";
  if (mark.state == SnapshotMark::kDegraded) return "degraded";
  return mark.level == 0 ? "l0" : mark.level == 1 ? "l1" : mark.level == 2 ? "l2" : "lx";
}

// Few snapshots: a bar each, as long as it was written. Many: columns, the fuller the more there were.
std::string snapshot_lane(const RunHistory& h, const TimeAxis& time, const PlotFrame& f, int level, double y,
                          double height) {
  std::vector<const SnapshotMark*> marks;
  for (const SnapshotMark& mark : h.snapshots)
    if (mark.level == level) marks.push_back(&mark);
  std::string out;
  auto at = [&](double t) { return time.x(t - h.first_time); };
  if (marks.size() <= kMarksPerLane) {
    for (const SnapshotMark* m : marks) {
      double x1 = at(m->time), x0 = std::min(at(m->time - m->write_s), x1 - 2);
      std::string text = "level " + std::to_string(level) + ", step " + format_count(m->step) + ": " +
                         (m->state == SnapshotMark::kOk         ? "written"
                          : m->state == SnapshotMark::kDegraded ? "degraded"
                                                                : "failed") +
                         " in " + format_duration(m->write_s) + ", " +
                         format_bytes(static_cast<double>(m->bytes));
      double grow = m->state == SnapshotMark::kOk ? 0 : 2;
      out += svg_rect(snapshot_css(*m), x0, y - grow, x1 - x0, height + 2 * grow, text);
    }
    return out;
  }
  constexpr double kColumn = 3;
  struct Column {
    int64_t ok = 0, degraded = 0, failed = 0, first = INT64_MAX, last = 0;
  };
  std::vector<Column> columns(static_cast<size_t>((f.right - f.left) / kColumn) + 1);
  int64_t most = 1;
  for (const SnapshotMark* m : marks) {
    size_t i =
        std::min(columns.size() - 1, static_cast<size_t>(std::max(0.0, (at(m->time) - f.left) / kColumn)));
    Column& c = columns[i];
    ++(m->state == SnapshotMark::kOk ? c.ok : m->state == SnapshotMark::kDegraded ? c.degraded : c.failed);
    c.first = std::min(c.first, m->step), c.last = std::max(c.last, m->step);
    most = std::max(most, c.ok + c.degraded + c.failed);
  }
  for (size_t i = 0; i < columns.size(); ++i) {
    const Column& c = columns[i];
    int64_t all = c.ok + c.degraded + c.failed;
    if (all == 0) continue;
    SnapshotMark worst;
    worst.level = static_cast<int8_t>(level);
    worst.state = c.failed ? SnapshotMark::kFailed : c.degraded ? SnapshotMark::kDegraded : SnapshotMark::kOk;
    std::string text = "level " + std::to_string(level) + ", steps " + format_count(c.first) + " to " +
                       format_count(c.last) + ": " + number(all, "snapshot", "snapshots");
    if (c.degraded) text += ", " + format_count(c.degraded) + " degraded";
    if (c.failed) text += ", " + format_count(c.failed) + " failed";
    double left = f.left + static_cast<double>(i) * kColumn;
    double full = 0.35 + 0.65 * static_cast<double>(all) / static_cast<double>(most);
    out += svg_rect(snapshot_css(worst), left, y + height * (1 - full),
                    std::min(kColumn - 0.4, f.right - left), height * full, text);
  }
  return out;
}

const char* incident_css(const std::string& kind) {
  if (kind == "rank_lost" || kind.find("fail") != std::string::npos || kind.find("lost") != std::string::npos)
    return "inc bad";
  if (kind.find("recovered") != std::string::npos) return "inc good";
  if (kind == "signal") return "inc calm";
  return "inc";
}

std::string incident_lane(const RunHistory& h, const TimeAxis& time, const PlotFrame& f, double y) {
  // Marks that would lie on each other become one.
  struct Group {
    double x;
    std::string css, text;
    int count;
  };
  std::vector<Group> groups;
  for (const IncidentRecord& r : h.incidents) {
    double x = time.x(r.time - h.first_time);
    std::string css = incident_css(r.kind);
    std::string text = r.kind + (r.message.empty() ? "" : ": " + r.message.substr(0, 160));
    if (!groups.empty() && x - groups.back().x < 7) {
      Group& g = groups.back();
      ++g.count;
      if (g.count <= 4) g.text += "\n" + text;
      if (css == "inc bad") g.css = css;
    } else {
      groups.push_back({x, css, text, 1});
    }
  }
  std::string out;
  for (const Group& g : groups) {
    std::string text = g.count > 4 ? g.text + "\nand " + format_count(g.count - 4) + " more" : g.text;
    out += "<path class=\"" + g.css + "\" d=\"M" + pixels(std::clamp(g.x, f.left + 3, f.right - 3)) + " " +
           pixels(y - 7) + "l6.5 7l-6.5 7l-6.5-7z\"><title>" + html_escape(text) + "</title></path>";
  }
  return out;
}

std::string attempt_lane(const RunHistory& h, const TimeAxis& time, double y, double height) {
  std::string out;
  for (size_t i = 0; i < h.attempts.size(); ++i) {
    const AttemptHistory& a = h.attempts[i];
    double x0 = time.x(a.begin - h.first_time), x1 = std::max(time.x(a.last - h.first_time), x0 + 1.5);
    double caught = a.resume || i > 0 ? time.x((a.caught_up > 0 ? a.caught_up : a.last) - h.first_time) : x0;
    std::string text = "attempt " + std::to_string(a.number) + ", " + format_duration(a.last - a.begin);
    if (a.last_step >= 0)
      text += "\nsteps " + format_count(a.first_step) + " to " + format_count(a.last_step);
    if (a.resume)
      text += "\nresumed at step " + format_count(a.resume->step) + " from level " +
              std::to_string(a.resume->level) + " in " + format_duration(a.resume->recovery_s);
    if (a.repeated) text += "\n" + number(a.repeated, "step", "steps") + " repeated";
    text += a.end                       ? "\nended with code " + std::to_string(a.end->exit_code)
            : i + 1 < h.attempts.size() ? "\nwas killed"
                                        : "";
    out += svg_rect("attempt", x0, y, x1 - x0, height, text, " rx=\"2\"");
    if (caught > x0 + 0.5)
      out += svg_rect("catchup", x0, y, caught - x0, height,
                      "attempt " + std::to_string(a.number) + " took " +
                          format_duration((a.caught_up > 0 ? a.caught_up : a.last) - a.begin) +
                          " to be where the run had been",
                      " rx=\"2\"");
    if (x1 - std::max(x0, caught) > 26)
      out += svg_text("attempt-label", (std::max(x0, caught) + x1) / 2, y + height / 2 + 4, "middle",
                      std::to_string(a.number));
    if (!a.end && i + 1 < h.attempts.size())
      out += cross(x1, y + height / 2, 4,
                   "attempt " + std::to_string(a.number) + " was killed after step " +
                       format_count(std::max<int64_t>(a.last_step, 0)));
  }
  return out;
}

}  // namespace

std::string timeline_chart(const RunHistory& h) {
  if (h.attempts.empty()) return "";
  PlotFrame f;
  TimeAxis time(spans_of(h), f.left, f.right);
  f.time = &time;
  constexpr double kLane = 30, kBar = 15;
  std::vector<int> levels = {0, 1, 2};
  for (const auto& [level, summary] : h.levels)
    if (level > 2) levels.push_back(level);
  bool incidents = h.incident_count > 0;
  double lanes = static_cast<double>(1 + levels.size() + (incidents ? 1 : 0));
  f.bottom = f.top + kLane * lanes;
  std::string out = f.open("Attempts, snapshots and incidents over time", kWidth, f.bottom + 24);
  out += hatch() + attempt_ground(h, time, f.top, f.bottom);
  double y = f.top + (kLane - kBar) / 2;
  auto lane = [&](const std::string& name, const std::string& content) {
    out += svg_text("", f.left - 12, y + kBar / 2 + 4, "end", name);
    out += content;
    y += kLane;
    out += svg_line("grid", f.left, y - (kLane - kBar) / 2, f.right, y - (kLane - kBar) / 2);
  };
  lane("Attempts", attempt_lane(h, time, y, kBar));
  for (int level : levels) lane("Level " + std::to_string(level), snapshot_lane(h, time, f, level, y, kBar));
  if (incidents) lane("Incidents", incident_lane(h, time, f, y + kBar / 2));
  return out + f.time_axis() + "</svg>";
}

}  // namespace mso
