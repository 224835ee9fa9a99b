// One line of a check: what was looked at, what was found, what to do.
#pragma once

#include <string>

namespace mso {

enum class CheckState { kOk, kWarn, kFail };

struct CheckLine {
  std::string name;   // "plugstack line"
  CheckState state = CheckState::kOk;
  std::string found;  // measured value
  std::string hint;   // what to do; empty where there is nothing to do
  std::string limit = {};  // what it is held against; empty: nothing to measure
  bool operator==(const CheckLine&) const = default;
};

}  // namespace mso
