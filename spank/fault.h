// Fault injection for tests: MSO_SPANK_FAIL=HOOK[:foreign|memory], honoured only where the admin's argument
// faults=allow is set.
#pragma once

#include <string>
#include <string_view>

namespace mso {

struct Fault {
  std::string hook;  // "task_init"; empty: none
  enum class Kind { kThrow, kForeign, kMemory } kind = Kind::kThrow;
};
// "init_post_opt", "task_init:foreign", "user_init:memory"; anything else is no fault.
Fault parse_fault(std::string_view text);
// Throws as ordered where the fault is for this hook.
void raise_fault(const Fault& fault, std::string_view hook);

}  // namespace mso
