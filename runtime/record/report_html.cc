#include "record/report_html.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/units.h"
#include "record/format.h"
#include "record/report_charts.h"
#include "record/report_style.h"

namespace mso {
namespace {

using State = RunHistory::State;

std::string plural(int64_t n, const std::string& one, const std::string& many) {
  return format_count(n) + " " + (n == 1 ? one : many);
}

struct StateText {
  const char *word, *css, *sign;
};

StateText state_text(State state) {
  switch (state) {
    case State::kFinished:
      return {"finished", "good", "✓"};
    case State::kRunning:
      return {"running", "busy", "▶"};
    case State::kStopped:
      return {"stopped, can go on", "busy", "❚❚"};
    case State::kFailed:
      return {"failed", "bad", "✕"};
    case State::kInterrupted:
      return {"interrupted", "bad", "✕"};
    case State::kEmpty:
      break;
  }
  return {"nothing recorded", "warn", "○"};
}

std::string steps_text(const RunHistory& h) {
  return format_count(h.steps_finished) +
         (h.steps_planned > 0 ? " of " + format_count(h.steps_planned) : "") +
         (h.steps_planned == 1 || (h.steps_planned <= 0 && h.steps_finished == 1) ? " step" : " steps");
}

// "−74 %" for a loss that fell.
std::string change_text(double from, double to) {
  if (!std::isfinite(from) || !std::isfinite(to) || from == 0) return "";
  double share = (to - from) / std::fabs(from);
  if (std::fabs(share) < 0.0005) return "";
  return (share <= 0 ? "−" : "+") + format_percent(std::fabs(share));
}

std::string tiny_percent(double share) {
  return share > 0 && share < 0.0005 ? "&lt; 0.1 %" : format_percent(share);
}

std::string tile(const std::string& name, const std::string& big, const std::string& more,
                 const char* css = "") {
  return "<dl class=\"tile\"><dt>" + name + "</dt><dd class=\"big " + css + "\">" + big +
         "</dd><dd class=\"more\">" + (more.empty() ? "&nbsp;" : more) + "</dd></dl>";
}

double total_lost(const RunHistory& h) {
  double sum = 0;
  for (size_t i = 1; i < h.attempts.size(); ++i) sum += h.lost_seconds(i);
  return sum;
}

std::string tiles(const RunHistory& h) {
  std::string out = "<section class=\"tiles\" aria-label=\"Key figures\">";
  std::string planned = h.steps_planned > 0 ? "<small> of " + format_count(h.steps_planned) + "</small>" : "";
  out += tile("Steps", format_count(h.steps_finished) + planned,
              h.step_seconds > 0
                  ? format_short_duration(h.median_step_s) + " each · " + format_count(h.samples) + " samples"
                  : "");
  if (std::isfinite(h.final_loss)) {
    std::string change = change_text(h.first_loss, h.final_loss);
    std::string more = "from " + format_loss(h.first_loss) + (change.empty() ? "" : ", " + change);
    if (std::isfinite(h.final_eval)) more += " · eval " + format_loss(h.final_eval);
    out += tile("Loss", format_loss(h.final_loss), more);
  } else {
    out += tile("Loss", "–", h.not_finite_count ? "no finite value" : "no step yet",
                h.not_finite_count ? "bad" : "");
  }
  out += std::isfinite(h.median_tokens_per_s)
             ? tile("Tokens per second", format_quantity(h.median_tokens_per_s),
                    "median · " + format_quantity(static_cast<double>(h.tokens)) + " tokens in all")
             : tile("Tokens per second", "–", "");
  if (h.step_seconds > 0) {
    double wait = h.wait_seconds / h.step_seconds, stall = h.stall_seconds / h.step_seconds;
    out += tile("Waiting for data", format_percent(wait),
                "of step time · snapshots stall " + format_percent(stall), wait > 0.1 ? "warn" : "");
  } else {
    out += tile("Waiting for data", "–", "");
  }
  std::string levels;
  int64_t written = 0, trouble = 0;
  for (const auto& [level, s] : h.levels) {
    levels += (levels.empty() ? "" : " · ") +
              ("L" + std::to_string(level) + " " + format_count(s.good + s.degraded));
    written += s.good + s.degraded;
    trouble += s.degraded + s.failed;
  }
  if (trouble) levels += " · <span class=\"warn\">" + format_count(trouble) + " degraded or failed</span>";
  out += tile("Snapshots", format_count(written), levels);
  size_t restarts = h.attempts.empty() ? 0 : h.attempts.size() - 1;
  std::string recovery = restarts         ? format_duration(total_lost(h)) + " lost in all"
                         : h.recoveries() ? "of a run begun before this record"
                                          : "no restart";
  if (h.repeated_steps)
    recovery += h.repeated_differ
                    ? " · <span class=\"bad\">" +
                          plural(h.repeated_differ, "repeated step differs", "repeated steps differ") +
                          "</span>"
                    : " · " + plural(h.repeated_steps, "step", "steps") + " repeated";
  out += tile("Recoveries", format_count(h.recoveries()), recovery);
  std::string kinds;
  std::vector<std::pair<int64_t, std::string>> sorted;
  for (const auto& [kind, n] : h.incidents_of_kind) sorted.emplace_back(-n, kind);
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size() && i < 3; ++i)
    kinds += (i ? " · " : "") + format_count(-sorted[i].first) + " " + html_escape(sorted[i].second);
  out += tile("Incidents", format_count(h.incident_count), kinds.empty() ? "none" : kinds);
  double bad = static_cast<double>(h.bad_sample_count);
  out += tile("Bad samples", format_count(h.bad_sample_count),
              h.samples > 0 && h.bad_sample_count
                  ? tiny_percent(bad / (bad + static_cast<double>(h.samples))) + " of all, each in the ledger"
                  : "");
  return out + "</section>";
}

std::string alerts(const RunHistory& h) {
  std::string out;
  auto alert = [&](const std::string& text, const char* css) {
    out += "<p class=\"alert " + std::string(css) + "\" role=\"note\">" + text + "</p>";
  };
  if (h.attempts.empty())
    alert("metrics.jsonl holds no record yet.", "");
  else if (h.steps_finished == 0)
    alert("No step has been finished yet.", "");
  if (h.not_finite_count) {
    std::string at;
    for (size_t i = 0; i < h.not_finite.size() && i < 5; ++i)
      at += (i ? ", " : "") + format_count(h.not_finite[i].step);
    alert("The loss was not a finite number in " + plural(h.not_finite_count, "step", "steps") + " (step " +
              at + (h.not_finite_count > 5 ? ", …" : "") + ").",
          "bad");
  }
  if (h.repeated_differ)
    alert(plural(h.repeated_differ, "repeated step does", "repeated steps do") + " not equal " +
              (h.repeated_differ == 1 ? "its" : "their") + " first run. " + html_escape(h.first_difference) +
              ". With the same plan (ranks, threads, buckets) they must be equal to the last bit; with "
              "another plan, equal up to the order of summation.",
          "bad");
  if (h.damaged.count)
    alert(plural(h.damaged.count, "line", "lines") + " of metrics.jsonl could not be read and " +
              (h.damaged.count == 1 ? "is" : "are") + " left out: " + h.damaged.text() + ".",
          "");
  for (const auto& [level, s] : h.levels)
    if (s.good + s.degraded == 0 && s.failed)
      alert("Level " + std::to_string(level) + " was never written: all " + plural(s.failed, "try", "tries") +
                " failed" +
                (s.errors.empty() ? "." : " (" + html_escape(s.errors.begin()->first.substr(0, 200)) + ")."),
            "bad");
  return out;
}

std::string legend(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string out = "<ul class=\"legend\">";
  for (const auto& [sign, text] : entries)
    out += "<li><svg width=\"20\" height=\"12\" aria-hidden=\"true\">" + sign + "</svg>" + text + "</li>";
  return out + "</ul>";
}

std::string card(const std::string& title, const std::string& note, const std::string& key,
                 const std::string& chart) {
  if (chart.empty()) return "";
  return "<section class=\"card\"><div class=\"head\"><div><h2>" + title + "</h2>" +
         (note.empty() ? "" : "<p class=\"note\">" + note + "</p>") + "</div>" + key +
         "</div><div class=\"scroll\">" + chart + "</div></section>";
}

constexpr const char* kStroke = "<path class=\"line\" d=\"M1 6h18\"/>";
constexpr const char* kRawStroke = "<path class=\"raw\" d=\"M1 6l4-4l4 8l4-8l6 6\"/>";

std::string loss_card(const RunHistory& h) {
  std::vector<std::pair<std::string, std::string>> key = {{kRawStroke, "each step"}, {kStroke, "smoothed"}};
  if (!h.eval_loss.empty())
    key.push_back({"<circle class=\"evalmark\" cx=\"10\" cy=\"6\" r=\"4\"/>", "evaluation"});
  if (h.attempts.size() > 1)
    key.push_back({"<path class=\"killsign\" d=\"M6 2l8 8m0-8l-8 8\"/>", "attempt ended"});
  if (h.recoveries()) key.push_back({"<path class=\"resume\" d=\"M10 0v12\"/>", "went on from here"});
  if (h.repeated_steps)
    key.push_back({"<circle class=\"again\" cx=\"10\" cy=\"6\" r=\"3.5\"/>", "repeated step"});
  std::string note;
  if (h.repeated_steps) {
    int64_t compared = h.repeated_steps - h.repeated_unknown;
    if (h.repeated_differ)
      note = "<span class=\"bad\">" + format_count(h.repeated_differ) + " of " +
             plural(compared, "repeated step", "repeated steps") + " differ from the first run.</span>";
    else
      note = "<span class=\"good\">✓</span> " +
             (compared == 1 ? "The repeated step equals its first run"
                            : "All " + format_count(compared) + " repeated steps equal their first run") +
             " to the last bit (loss, gradient norm, samples).";
  } else if (h.steps_finished > 0) {
    note = "Mean over each global batch’s label tokens.";
  }
  return card("Loss", note, legend(key), loss_chart(h));
}

// Where the wall time went, as one bar.
std::string time_card(const RunHistory& h) {
  double wall = h.last_time - h.first_time;
  if (!(wall > 0) || !(h.step_seconds > 0)) return "";
  double trained = std::max(0.0, h.step_seconds - h.wait_seconds - h.stall_seconds);
  double known = h.step_seconds + h.repeated_seconds + h.down_seconds;
  struct Part {
    const char *name, *color;
    double seconds;
  };
  std::vector<Part> parts = {{"training", "train", trained},
                             {"waiting for data", "wait", h.wait_seconds},
                             {"held by snapshots", "stall", h.stall_seconds},
                             {"repeating lost steps", "again", h.repeated_seconds},
                             {"down and recovering", "down", h.down_seconds},
                             {"start, evaluation, rest", "other", std::max(0.0, wall - known)}};
  double total = 0;
  for (const Part& p : parts) total += p.seconds;
  std::string bar, key;
  for (const Part& p : parts) {
    if (p.seconds <= 0) continue;
    std::string text = std::string(p.name) + " " + format_duration(p.seconds) + " (" +
                       format_percent(p.seconds / total) + ")";
    if (p.seconds / total > 0.0005)
      bar += "<i style=\"flex:" + format_loss(std::max(p.seconds / total, 0.002)) + " 0 0;background:var(--" +
             p.color + ")\" title=\"" + text + "\"></i>";
    key += "<li><span class=\"key\" style=\"background:var(--" + std::string(p.color) + ")\"></span>" + text +
           "</li>";
  }
  return "<section class=\"card\"><div class=\"head\"><h2>Where " + format_duration(wall) +
         " went</h2></div><div class=\"share\" role=\"img\" aria-label=\"Share of wall time\">" + bar +
         "</div><ul class=\"legend\">" + key + "</ul></section>";
}

std::string timeline_card(const RunHistory& h) {
  std::vector<std::pair<std::string, std::string>> key = {
      {"<rect class=\"attempt\" x=\"2\" y=\"1\" width=\"16\" height=\"10\" rx=\"2\"/>", "attempt"}};
  if (h.attempts.size() > 1) {
    key.push_back({"<rect class=\"catchup\" x=\"2\" y=\"1\" width=\"16\" height=\"10\" rx=\"2\"/>",
                   "recovering, repeating"});
    key.push_back({"<path class=\"killsign\" d=\"M6 2l8 8m0-8l-8 8\"/>", "killed"});
  }
  bool degraded = false, failed = false;
  for (const auto& [level, s] : h.levels) degraded |= s.degraded > 0, failed |= s.failed > 0;
  if (degraded)
    key.push_back(
        {"<rect class=\"degraded\" x=\"8\" y=\"0\" width=\"4\" height=\"12\"/>", "degraded snapshot"});
  if (failed)
    key.push_back({"<rect class=\"failed\" x=\"8\" y=\"0\" width=\"4\" height=\"12\"/>", "failed snapshot"});
  if (h.incident_count) key.push_back({"<path class=\"inc\" d=\"M10 0l6 6l-6 6l-6-6z\"/>", "incident"});
  return card("Snapshots and recoveries", "Time since the first start; hatched: nothing ran.", legend(key),
              timeline_chart(h));
}

std::string recoveries_table(const RunHistory& h) {
  if (h.attempts.size() < 2) return "";
  std::string rows;
  size_t first = h.attempts.size() > 201 ? h.attempts.size() - 200 : 1;
  for (size_t i = first; i < h.attempts.size(); ++i) {
    const AttemptHistory &before = h.attempts[i - 1], &a = h.attempts[i];
    // A killed attempt says nothing; the next one's first words often do.
    std::string why = !before.last_words.empty() ? before.last_words
                      : !a.first_words.empty()   ? a.first_words
                      : before.end               ? "code " + std::to_string(before.end->exit_code)
                                                 : "killed, without a word";
    rows += "<tr><td class=\"nw\">" + std::to_string(before.number) + " → " + std::to_string(a.number) +
            "</td><td class=\"n\">" + format_duration(before.last - h.first_time) + "</td><td class=\"w\">" +
            html_escape(why.substr(0, 240)) + "</td><td class=\"n\">" +
            (before.last_step >= 0 ? format_count(before.last_step) : "–") + "</td>";
    if (a.resume)
      rows += "<td class=\"n\">" + format_count(std::max<int64_t>(a.resume->step, 0)) +
              "</td><td class=\"nw\">L" + std::to_string(a.resume->level) + " " +
              html_escape(a.resume->source.substr(0, 40)) + "</td><td class=\"n\">" +
              format_short_duration(a.resume->recovery_s) + "</td>";
    else
      rows += "<td class=\"n\">" + std::string(a.first_step > 0 ? format_count(a.first_step - 1) : "–") +
              "</td><td>not said</td><td class=\"n\">–</td>";
    std::string again = format_count(a.repeated);
    if (a.repeated_differ)
      again += " <span class=\"bad\">" + format_count(a.repeated_differ) + " differ</span>";
    else if (a.repeated)
      again += " <span class=\"good\" title=\"equal to the first run\">✓</span>";
    std::string lost = format_duration(h.lost_seconds(i));
    if (a.caught_up == 0)
      lost = "<span class=\"warn\" title=\"this attempt never got beyond where the run had been\">" + lost +
             ", not reached</span>";
    rows += "<td class=\"n\">" + again + "</td><td class=\"n\">" +
            format_duration(std::max(0.0, a.begin - before.last)) + "</td><td class=\"n\">" + lost +
            "</td></tr>";
  }
  std::string more = first > 1 ? "<p class=\"note\">The last 200 of " +
                                     format_count(static_cast<int64_t>(h.attempts.size()) - 1) + ".</p>"
                               : "";
  return "<section class=\"card\"><div class=\"head\"><div><h2>Restarts</h2><p class=\"note\">Lost: from the "
         "last sign of life to the first step beyond where the run stood.</p></div></div>" +
         more +
         "<div class=\"scroll\"><table><thead><tr><th>Attempts</th><th class=\"n\">Ended "
         "after</th><th>Why</th>"
         "<th class=\"n\">At step</th><th class=\"n\">Went on from</th><th>State from</th>"
         "<th class=\"n\">Reading it</th><th class=\"n\">Repeated</th><th class=\"n\">Down</th><th "
         "class=\"n\">Lost</th></tr></thead><tbody>" +
         rows + "</tbody></table></div></section>";
}

std::string snapshots_table(const RunHistory& h) {
  if (h.levels.empty()) return "";
  std::string rows;
  for (const auto& [level, s] : h.levels) {
    std::string errors;
    int shown = 0;
    for (const auto& [text, n] : s.errors)
      if (++shown <= 3)
        errors += (errors.empty() ? "" : "<br>") + (n > 1 ? format_count(n) + " × " : std::string()) +
                  html_escape(text.substr(0, 240));
    rows += "<tr><td class=\"nw\"><span class=\"key\" style=\"background:var(--" +
            std::string(level == 0   ? "teal"
                        : level == 1 ? "blue"
                        : level == 2 ? "violet"
                                     : "grey") +
            ")\"></span>Level " + std::to_string(level) + "</td><td class=\"n\">" + format_count(s.good) +
            "</td><td class=\"n\">" +
            (s.degraded ? "<span class=\"warn\">" + format_count(s.degraded) + "</span>" : "0") +
            "</td><td class=\"n\">" +
            (s.failed ? "<span class=\"bad\">" + format_count(s.failed) + "</span>" : "0") +
            "</td><td class=\"n\">" + (s.last_step >= 0 ? format_count(s.last_step) : "–") +
            "</td><td class=\"n\">" +
            (s.last_step >= 0 ? format_bytes(static_cast<double>(s.last_bytes)) : "–") +
            "</td><td class=\"n\">" +
            (std::isfinite(s.median_write_s) ? format_short_duration(s.median_write_s) : "–") +
            "</td><td class=\"n\">" + (s.last_step >= 0 ? format_short_duration(s.longest_write_s) : "–") +
            "</td><td class=\"w\">" + errors + "</td></tr>";
  }
  return "<section class=\"card\"><div class=\"head\"><h2>Snapshot levels</h2></div><div "
         "class=\"scroll\"><table><thead><tr><th>Level</th><th class=\"n\">Written</th><th "
         "class=\"n\">Degraded</th><th class=\"n\">Failed</th>"
         "<th class=\"n\">Newest at step</th><th class=\"n\">Size</th><th class=\"n\">Writing, "
         "median</th><th class=\"n\">longest</th><th>Trouble</th></tr></thead><tbody>" +
         rows + "</tbody></table></div></section>";
}

std::string incidents_table(const RunHistory& h) {
  if (h.incidents.empty()) return "";
  constexpr size_t kShown = 200;
  std::string rows;
  for (size_t i = 0; i < h.incidents.size() && i < kShown; ++i) {
    const IncidentRecord& r = h.incidents[i];
    rows += "<tr><td class=\"n\">" + format_duration(r.time - h.first_time) + "</td><td class=\"nw\">" +
            (r.time > 0 ? format_utc(r.time) : "–") + "</td><td class=\"n\">" + std::to_string(r.attempt) +
            "</td><td class=\"nw\">" + html_escape(r.kind.substr(0, 60)) + "</td><td class=\"w\">" +
            html_escape(r.message.substr(0, 600)) + "</td></tr>";
  }
  std::string more = h.incident_count > static_cast<int64_t>(kShown)
                         ? "<p class=\"note\">The first " + format_count(kShown) + " of " +
                               format_count(h.incident_count) + "; all are in metrics.jsonl.</p>"
                         : "";
  std::string table =
      "<div class=\"scroll\"><table><thead><tr><th class=\"n\">After</th><th>UTC</th><th "
      "class=\"n\">Attempt</th><th>Kind</th><th>What happened</th></tr></thead><tbody>" +
      rows + "</tbody></table></div>";
  if (h.incidents.size() > 12)
    return "<section class=\"card\"><details><summary>Incidents <span class=\"note\">(" +
           format_count(h.incident_count) + ")</span></summary>" + more + table + "</details></section>";
  return "<section class=\"card\"><div class=\"head\"><h2>Incidents</h2></div>" + table + "</section>";
}

std::string data_table(const RunHistory& h) {
  if (h.data.empty()) return "";
  std::string rows;
  auto cell = [](const std::string& text) { return "<td class=\"n\">" + text + "</td>"; };
  for (const auto& [name, r] : h.data) {
    const double each_ms = r.samples > 0 ? 1e3 * r.decode_s / static_cast<double>(r.samples) : 0;
    rows += "<tr><td>" + html_escape(name.substr(0, 20)) + "</td>" + cell(format_count(r.samples)) + cell(format_quantity(each_ms)) +
            cell(format_count(r.waits)) + cell(format_count(r.deferred)) + cell(format_count(r.depth)) +
            cell(format_bytes(static_cast<double>(r.memory_peak))) + cell(format_bytes(static_cast<double>(r.memory_share))) +
            cell(format_percent(r.fragmentation)) + "</tr>";
  }
  return "<section class=\"card\"><div class=\"head\"><div><h2>Data by modality</h2><p class=\"note\">As rank 0 saw it; a sample "
         "counts as the most costly kind in it.</p></div></div><div class=\"scroll\"><table><thead><tr><th>Modality</th><th "
         "class=\"n\">Samples</th><th class=\"n\">Decoding each, ms</th><th class=\"n\">Steps that waited</th><th "
         "class=\"n\">Deferred</th><th class=\"n\">Read ahead</th><th class=\"n\">Memory at most</th><th class=\"n\">Its "
         "share</th><th class=\"n\">Fragmentation</th></tr></thead><tbody>" + rows + "</tbody></table></div></section>";
}

std::string storage_table(const RunHistory& h) {
  if (h.storage.empty()) return "";
  std::string rows;
  auto cell = [](int64_t n) { return "<td class=\"n\">" + format_count(n) + "</td>"; };
  for (const auto& [name, r] : h.storage)
    rows += "<tr><td class=\"w\">" + html_escape(name.substr(0, 200)) + "</td><td class=\"nw\">" + html_escape(r.state.substr(0, 20)) +
            "</td>" + cell(r.reads) + "<td class=\"n\">" + format_bytes(static_cast<double>(r.bytes)) + "</td>" +
            cell(std::llround(h.worst_p99_ms.at(name))) + cell(r.cached) + cell(r.elsewhere) + cell(r.given_up) + "</tr>";
  return "<section class=\"card\"><div class=\"head\"><div><h2>Storage</h2><p class=\"note\">As rank 0 saw it.</p></div></div><div "
         "class=\"scroll\"><table><thead><tr><th>Source</th><th>At the end</th><th class=\"n\">Reads</th><th class=\"n\">Read</th><th "
         "class=\"n\">Worst p99, ms</th><th class=\"n\">From cache</th><th class=\"n\">Read elsewhere</th><th class=\"n\">Given "
         "up</th></tr></thead><tbody>" + rows + "</tbody></table></div></section>";
}

std::string bad_samples_table(const RunHistory& h) {
  if (h.bad_samples.empty()) return "";
  std::string rows;
  std::vector<std::pair<int64_t, std::string>> order;
  for (const auto& [reason, bad] : h.bad_samples) order.emplace_back(-bad.count, reason);
  std::sort(order.begin(), order.end());
  for (const auto& [count, reason] : order) {
    std::string examples;
    for (const std::string& e : h.bad_samples.at(reason).examples)
      examples += (examples.empty() ? "" : "<br>") + html_escape(e);
    rows += "<tr><td class=\"nw\">" + html_escape(reason.substr(0, 60)) + "</td><td class=\"n\">" +
            format_count(-count) + "</td><td class=\"w\">" + examples + "</td></tr>";
  }
  return "<section class=\"card\"><div class=\"head\"><div><h2>Samples not trained on</h2><p "
         "class=\"note\">From ledger.jsonl, by reason.</p></div></div><div "
         "class=\"scroll\"><table><thead><tr><th>Reason</th><th class=\"n\">Samples</th><th>For "
         "example</th></tr></thead><tbody>" +
         rows + "</tbody></table></div></section>";
}

std::string config_card(const RunHistory& h) {
  if (h.config.empty() && h.config_error.empty()) return "";
  std::string out = "<section class=\"card\"><details" + std::string(h.config.size() <= 40 ? " open" : "") +
                    "><summary>Configuration <span class=\"note\">(" +
                    plural(static_cast<int64_t>(h.config.size()), "value", "values") +
                    " in force)</span></summary>";
  if (!h.config_error.empty())
    out += "<p class=\"note\">config.yaml cannot be read: " + html_escape(h.config_error) + "</p>";
  out += "<dl class=\"config\">";
  std::string section;
  for (const auto& [key, value] : h.config) {
    size_t dot = key.find('.');
    std::string head = dot == std::string::npos ? "" : key.substr(0, dot);
    if (head != section && !head.empty()) out += "<div class=\"section\">" + html_escape(head) + "</div>";
    section = head;
    out += "<div><dt>" + html_escape(dot == std::string::npos ? key : key.substr(dot + 1)) +
           "</dt><dd class=\"mono\">" + (value.empty() ? "–" : html_escape(value.substr(0, 400))) +
           "</dd></div>";
  }
  return out + "</dl></details></section>";
}

std::string header(const RunHistory& h, double now) {
  StateText state = state_text(h.state(now));
  std::string name = h.folder.filename().string();
  if (name.empty() || name == ".")
    name = std::filesystem::absolute(h.folder).lexically_normal().parent_path().filename().string();
  std::string facts;
  auto fact = [&](const std::string& text) { facts += (facts.empty() ? "" : " · ") + text; };
  if (!h.run_id.empty() && h.run_id != name) fact("run " + html_escape(h.run_id));
  if (h.ranks > 0) fact(plural(h.ranks, "rank", "ranks"));
  if (h.parameters > 0) fact(format_quantity(static_cast<double>(h.parameters) / 1e6) + " M parameters");
  if (h.first_time > 0) fact("started " + format_utc(h.first_time) + " UTC");
  if (h.attempts.size() > 1) fact(plural(static_cast<int64_t>(h.attempts.size()), "attempt", "attempts"));
  std::string sentence = report_sentence(h, now);
  sentence[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(sentence[0])));
  return "<header><div><h1>" + html_escape(name) + "</h1><p class=\"sub\">" + html_escape(sentence) +
         ".</p><p class=\"sub\">" + facts + "</p></div><span class=\"badge " + state.css + "\" data-sign=\"" +
         state.sign + "\">" + state.word + "</span></header>";
}

}  // namespace

std::string report_sentence(const RunHistory& h, double now) {
  State state = h.state(now);
  std::string out = state_text(state).word;
  if (state == State::kEmpty) return out;
  out += ": " + steps_text(h) + " in " + format_duration(h.last_time - h.first_time);
  if (std::isfinite(h.final_loss)) {
    out += ", loss " + format_loss(h.first_loss) + " to " + format_loss(h.final_loss);
    if (std::string change = change_text(h.first_loss, h.final_loss); !change.empty())
      out += " (" + change + ")";
  }
  if (int64_t n = h.recoveries()) out += ", " + plural(n, "recovery", "recoveries");
  if (h.repeated_differ)
    out += ", " + plural(h.repeated_differ, "repeated step differs", "repeated steps differ");
  if (state == State::kInterrupted) out += "; no sign of life since " + format_utc(h.last_time) + " UTC";
  if (state == State::kFailed && !h.attempts.back().last_words.empty())
    out += "; " + h.attempts.back().last_words.substr(0, 300);
  return out;
}

std::string report_html(const RunHistory& h, double now) {
  std::string title = h.folder.filename().string();
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><meta name=\"generator\" content=\"" + std::string(kReportGenerator) + "\">"
      "<meta name=\"color-scheme\" content=\"light dark\"><meta http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\"><title>" +
      html_escape(title.empty() ? "Run" : title) + " – MegaScale-Omni report</title><style>" + kReportStyle +
      "</style></head><body><main>";
  out += header(h, now) + alerts(h) + tiles(h) + loss_card(h);
  out += card("Throughput", "Tokens per second of each step, and smoothed.", "", speed_chart(h));
  out +=
      card("Waiting for data", "Share of each step in which training stood still for want of decoded data.",
           "", wait_chart(h));
  out += timeline_card(h) + time_card(h);
  std::string norm = card("Gradient norm", "", "", small_chart(h.grad_norm, "gradient norm", true, true));
  std::string rate =
      card("Learning rate", "", "", small_chart(h.learning_rate, "learning rate", false, false));
  if (!norm.empty() || !rate.empty()) out += "<div class=\"pair\">" + norm + rate + "</div>";
  out +=
      recoveries_table(h) + snapshots_table(h) + incidents_table(h) + data_table(h) + storage_table(h) + bad_samples_table(h) + config_card(h);
  out += "<footer>Made by <span class=\"mono\">mso report</span> at " + format_utc(now) + " UTC from " +
         plural(h.lines, "line", "lines") + " of metrics.jsonl";
  if (h.unknown_lines) out += " (" + format_count(h.unknown_lines) + " of a type this version does not know)";
  if (h.torn) out += "; its last line is not complete";
  out +=
      ". Steps count from 1; long curves show the lowest and highest of each stretch.</footer></main><div "
      "id=\"tip\" role=\"status\"></div><script>";
  out += kReportScript;
  return out + "</script></body></html>\n";
}

}  // namespace mso
