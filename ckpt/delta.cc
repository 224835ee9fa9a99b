#include "ckpt/delta.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace mso {

std::string encode_update(const StepUpdate& update) {
  return nlohmann::json{
      {"step", update.step},
      {"learning_rate", update.learning_rate},
      {"label_tokens", update.label_tokens},
      {"gradient_square", std::isfinite(update.gradient_square) ? update.gradient_square : 0.0},
      {"applied", update.applied}}
      .dump();
}

StepUpdate decode_update(const std::string& text) {
  StepUpdate update;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    update.step = json.at("step").get<uint64_t>();
    update.learning_rate = json.at("learning_rate").get<double>();
    update.label_tokens = json.at("label_tokens").get<double>();
    update.gradient_square = json.at("gradient_square").get<double>();
    update.applied = json.at("applied").get<bool>();
  } catch (const nlohmann::json::exception& e) {
    throw Error("bad record 'update' in a snapshot", e.what(), "it was written by another program");
  }
  if (update.step == 0 || !(update.label_tokens >= 0) || !(update.gradient_square >= 0))
    throw Error("bad record 'update' in a snapshot", text, "it was written by another program");
  return update;
}

std::string gradient_buffer_name(uint64_t step) {
  return "gradient." + std::to_string(step);
}

int next_delta(const DeltaChain& chain, uint64_t step) {
  if (!chain.base || chain.last < *chain.base || step != chain.last + 1 || step < chain.not_before) return 0;
  const uint64_t age = step - *chain.base;
  return age <= static_cast<uint64_t>(kMaxDeltas) ? static_cast<int>(age) : 0;
}

DeltaChain extended(DeltaChain chain, uint64_t step, int delta) {
  if (delta == 0)
    chain.base = step;
  else
    chain.failures = 0;
  chain.last = step;
  return chain;
}

DeltaChain interrupted(DeltaChain chain, uint64_t step, int delta) {
  if (delta == 0) return chain;
  chain.failures = std::min(chain.failures + 1, 10);
  chain.not_before = step + (uint64_t{1} << chain.failures);
  return chain;
}

std::optional<StateView> view_for_delta(const StateView& view) {
  StateView part;
  part.step = view.step;
  for (const StateBuffer& buffer : view.buffers)
    if (buffer.name == gradient_buffer_name(view.step)) part.buffers.push_back(buffer);
  for (const char* name : {"update", "cursor", "ledger_tail", "random"})
    if (auto it = view.records.find(name); it != view.records.end()) part.records.insert(*it);
  if (part.buffers.size() != 1 || !part.records.contains("update")) return std::nullopt;
  return part;
}

}  // namespace mso
