// Patterns of names: '*' is any run of characters, '?' any one; everything else stands for itself.
#pragma once

#include <string_view>

namespace mso {

bool glob_match(std::string_view pattern, std::string_view name);

// The rule of model.freeze and train.groups: a pattern meets a parameter when it is the name of its stage, or
// matches the parameter's whole (logical) name.
inline bool selects_parameter(std::string_view pattern, std::string_view stage, std::string_view parameter) {
  return pattern == stage || glob_match(pattern, parameter);
}

}  // namespace mso
