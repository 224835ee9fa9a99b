#include "exec/rank_zero.h"

#include <nlohmann/json.hpp>

namespace mso {

void on_rank_zero(Communicator& group, double timeout_s, const std::function<void()>& work) {
  nlohmann::json outcome = nlohmann::json::object();
  if (group.rank() == 0) {
    try {
      work();
    } catch (const Error& e) {
      outcome = {{"what", e.what_failed()}, {"on", e.on()}, {"hint", e.hint()}, {"code", static_cast<int>(e.exit_code())}};
    } catch (const std::exception& e) {
      outcome = {{"what", "unexpected error"}, {"on", e.what()}, {"hint", ""}, {"code", static_cast<int>(ExitCode::kFailure)}};
    }
  }
  const std::string text = outcome.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  outcome = nlohmann::json::parse(all_gather_text(group, group.rank() == 0 ? text : "", timeout_s).front());
  if (!outcome.contains("what")) return;
  const auto code = static_cast<ExitCode>(outcome["code"].get<int>());
  if (group.rank() == 0) throw Error(outcome["what"], outcome["on"], outcome["hint"], code);
  throw RankZeroFailed(outcome["what"], outcome["on"], outcome["hint"], code);
}

}  // namespace mso
