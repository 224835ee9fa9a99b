#include "record/data_page.h"

#include <algorithm>
#include <cmath>

#include "record/format.h"
#include "record/report_style.h"
#include "record/svg.h"
#include "record/time_axis.h"

namespace mso {
namespace {

uint64_t total_of(const BarChart& chart) {
  uint64_t total = 0;
  for (const BarChart::Bar& bar : chart.bars) total += bar.count;
  return total;
}

uint64_t most_of(const BarChart& chart) {
  uint64_t most = 0;
  for (const BarChart::Bar& bar : chart.bars) most = std::max(most, bar.count);
  return most;
}

std::string share_text(uint64_t count, uint64_t total) {
  if (total == 0) return "";
  const double share = static_cast<double>(count) / static_cast<double>(total);
  return share > 0 && share < 0.0005 ? "below 0.1 %" : format_percent(share);
}

std::string tooltip(const BarChart& chart, const BarChart::Bar& bar) {
  std::string text = bar.label + (chart.unit.empty() ? "" : " " + chart.unit) + ": " +
                     format_count(static_cast<int64_t>(bar.count)) + " (" + share_text(bar.count, total_of(chart)) + ")";
  return bar.detail.empty() ? text : text + "\n" + bar.detail;
}

// Columns of a histogram.
std::string columns(const BarChart& chart) {
  const double width = chart.narrow ? 560 : 1120;
  PlotFrame frame;
  frame.left = 64;
  frame.right = width - 12;
  frame.bottom = 200;
  frame.y_high = std::max<double>(1, static_cast<double>(most_of(chart)));
  std::string out = frame.open(chart.title, width, 236) + frame.y_grid(4);
  const double step = (frame.right - frame.left) / static_cast<double>(chart.bars.size());
  // Labels must not run into each other.
  size_t longest = 1;
  for (const BarChart::Bar& bar : chart.bars) longest = std::max(longest, static_cast<size_t>(display_width(bar.label)));
  const size_t every = std::max<size_t>(1, static_cast<size_t>(std::ceil((static_cast<double>(longest) * 6.6 + 10) / step)));
  for (size_t i = 0; i < chart.bars.size(); ++i) {
    const BarChart::Bar& bar = chart.bars[i];
    const double x = frame.left + step * static_cast<double>(i);
    // What is there at all shows.
    const double top = bar.count > 0 ? std::min(frame.y(static_cast<double>(bar.count)), frame.bottom - 1.5) : frame.bottom;
    if (bar.count > 0) out += svg_rect("attempt", x + 1.5, top, step - 3, frame.bottom - top, tooltip(chart, bar));
    if (i % every == 0) out += svg_text("", x + step / 2, frame.bottom + 17, "middle", bar.label);
  }
  out += svg_line("axis", frame.left, frame.bottom, frame.right, frame.bottom);
  if (!chart.unit.empty()) out += svg_text("", frame.right, frame.bottom + 33, "end", chart.unit);
  return out + "</svg>";
}

// One bar a line, the longest as long as the room allows.
std::string lying_bars(const BarChart& chart) {
  const double width = chart.narrow ? 560 : 1120, line = 22;
  size_t longest = 4;
  for (const BarChart::Bar& bar : chart.bars) longest = std::max(longest, static_cast<size_t>(display_width(bar.label)));
  const double left = std::min(16 + 6.8 * static_cast<double>(std::min<size_t>(longest, 44)), width / 2.5);
  const double room = width - left - 150;
  const double most = std::max<double>(1, static_cast<double>(most_of(chart)));
  PlotFrame frame;
  std::string out = frame.open(chart.title, width, line * static_cast<double>(chart.bars.size()) + 6);
  for (size_t i = 0; i < chart.bars.size(); ++i) {
    const BarChart::Bar& bar = chart.bars[i];
    const double y = line * static_cast<double>(i) + 4;
    std::string label = bar.label;
    if (display_width(label) > 44) {
      size_t end = 42;
      while (end > 0 && (static_cast<unsigned char>(label[end]) & 0xc0) == 0x80) --end;
      label = label.substr(0, end) + "…";
    }
    out += svg_text("", left - 8, y + 12, "end", label);
    const double length = room * static_cast<double>(bar.count) / most;
    if (bar.count > 0) out += svg_rect("attempt", left, y, std::max(length, 1.5), line - 6, tooltip(chart, bar));
    out += svg_text("", left + length + 8, y + 12, "start",
                    format_count(static_cast<int64_t>(bar.count)) + (bar.detail.empty() ? "" : " · " + bar.detail));
  }
  return out + "</svg>";
}

std::string card(const std::string& title, const std::string& note, const std::string& body) {
  return "<section class=\"card\"><div class=\"head\"><div><h2>" + html_escape(title) + "</h2>" +
         (note.empty() ? "" : "<p class=\"note\">" + html_escape(note) + "</p>") + "</div></div><div class=\"scroll\">" + body +
         "</div></section>";
}

std::string table_card(const DataTable& table) {
  if (table.rows.empty()) return "";
  std::string body = "<table><thead><tr>";
  for (const DataTable::Column& column : table.columns)
    body += std::string("<th") + (column.number ? " class=\"n\"" : "") + ">" + html_escape(column.title) + "</th>";
  body += "</tr></thead><tbody>";
  for (const std::vector<std::string>& row : table.rows) {
    body += "<tr>";
    for (size_t i = 0; i < row.size() && i < table.columns.size(); ++i)
      body += std::string("<td") + (table.columns[i].number ? " class=\"n\"" : i + 1 == row.size() ? " class=\"w\"" : "") + ">" +
              html_escape(row[i]) + "</td>";
    body += "</tr>";
  }
  return card(table.title, table.note, body + "</tbody></table>");
}

}  // namespace

std::string data_page_html(const DataPage& page, double now) {
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><meta name=\"generator\" content=\"" +
      std::string(kDataPageGenerator) +
      "\"><meta name=\"color-scheme\" content=\"light dark\"><meta http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\"><title>" +
      html_escape(page.title) + " – MegaScale-Omni</title><style>" + kReportStyle + "</style></head><body><main>";
  out += "<header><div><h1>" + html_escape(page.title) + "</h1><p class=\"sub\">" + html_escape(page.subtitle) +
         "</p></div></header>";
  for (const std::string& alert : page.alerts)
    out += "<p class=\"alert\" role=\"note\">" + html_escape(alert) + "</p>";
  if (!page.tiles.empty()) {
    out += "<section class=\"tiles\" aria-label=\"Key figures\">";
    for (const DataPage::Tile& tile : page.tiles)
      out += "<dl class=\"tile\"><dt>" + html_escape(tile.name) + "</dt><dd class=\"big " + html_escape(tile.css) + "\">" +
             html_escape(tile.value) + "</dd><dd class=\"more\">" + (tile.more.empty() ? "&nbsp;" : html_escape(tile.more)) +
             "</dd></dl>";
    out += "</section>";
  }
  for (size_t i = 0; i < page.charts.size(); ++i) {
    auto one = [](const BarChart& chart) {
      return chart.bars.empty() ? std::string()
                                : card(chart.title, chart.note, chart.lying ? lying_bars(chart) : columns(chart));
    };
    const bool pair = page.charts[i].narrow && i + 1 < page.charts.size() && page.charts[i + 1].narrow;
    if (pair) {
      out += "<div class=\"pair\">" + one(page.charts[i]) + one(page.charts[i + 1]) + "</div>";
      ++i;
    } else {
      out += one(page.charts[i]);
    }
  }
  for (const DataTable& table : page.tables) out += table_card(table);
  out += "<footer>Made by <span class=\"mono\">" + html_escape(page.made_by) + "</span> at " + format_utc(now) +
         " UTC.</footer></main><div id=\"tip\" role=\"status\"></div><script>";
  out += kReportScript;
  return out + "</script></body></html>\n";
}

}  // namespace mso
