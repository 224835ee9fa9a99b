// A page about data, in the style of the run report: key figures, bar charts and tables. One self-contained HTML file
// (no network, light and dark, prints).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mso {

// In the head of every page: tells a page from a file of another origin.
inline constexpr const char* kDataPageGenerator = "mso data";

// Counts of named things or of ranges of a value.
struct BarChart {
  struct Bar {
    std::string label;   // under the bar, or beside it
    uint64_t count = 0;
    std::string detail;  // in the tooltip and behind a lying bar, such as "0.4 %"; may be empty
  };
  std::string title, note;  // plain text
  std::string unit;         // of the labels, at the axis: "px"
  std::vector<Bar> bars;
  // true: one bar a line, for names (categories); false: columns side by side, for ranges (a histogram).
  bool lying = false;
  bool narrow = false;  // may stand beside another narrow one
};

struct DataTable {
  struct Column {
    std::string title;
    bool number = false;
  };
  std::string title, note;
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
};

struct DataPage {
  struct Tile {
    std::string name, value, more, css;  // css: "", "good", "warn", "bad"
  };
  std::string title, subtitle;
  std::vector<Tile> tiles;
  std::vector<std::string> alerts;
  std::vector<BarChart> charts;
  std::vector<DataTable> tables;
  std::string made_by;  // the command, for the foot: "mso data stat"
};

// All texts are escaped. `now`: Unix seconds, printed.
std::string data_page_html(const DataPage& page, double now);

}  // namespace mso
