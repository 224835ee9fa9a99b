#include "exec/rank_zero.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace mso {

namespace {

using nlohmann::json;

// Text that all_gather_text() can carry: empty where the work went well.
std::string outcome_of(const std::function<void()>& work) {
  json outcome;
  try {
    work();
    return "";
  } catch (const Error& e) {
    outcome = {e.what_failed(), e.on(), e.hint(), static_cast<int>(e.exit_code())};
  } catch (const std::exception& e) {
    outcome = {"unexpected error", e.what(), "", static_cast<int>(ExitCode::kFailure)};
  }
  return outcome.dump(-1, ' ', false, json::error_handler_t::replace);
}

[[noreturn]] void throw_outcome(const Communicator& group, const std::string& text, const std::string& who) {
  const json outcome = json::parse(text);
  const std::string on = outcome[1], where = who.empty() ? on : who + (on.empty() ? "" : ": " + on);
  const auto code = static_cast<ExitCode>(outcome[3].get<int>());
  if (group.rank() == 0) throw Error(outcome[0], where, outcome[2], code);
  throw RankZeroFailed(outcome[0], where, outcome[2], code);
}

}  // namespace

void on_rank_zero(Communicator& group, double timeout_s, const std::function<void()>& work) {
  const std::string mine = group.rank() == 0 ? outcome_of(work) : "";
  const std::string text = all_gather_text(group, mine, timeout_s).front();
  if (!text.empty()) throw_outcome(group, text, "");
}

void together(Communicator& group, double timeout_s, const std::function<void()>& work) {
  const std::vector<std::string> all = all_gather_text(group, outcome_of(work), timeout_s);
  const auto bad = std::find_if(all.begin(), all.end(), [](const std::string& text) { return !text.empty(); });
  if (bad == all.end()) return;
  const bool alike = std::all_of(all.begin(), all.end(), [&](const std::string& text) { return text == *bad; });
  throw_outcome(group, *bad, alike ? "" : "rank " + std::to_string(bad - all.begin()));
}

}  // namespace mso
