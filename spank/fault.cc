#include "spank/fault.h"

#include <new>

#include "base/error.h"

namespace mso {

Fault parse_fault(std::string_view text) {
  Fault fault;
  if (text.size() > 64) return fault;
  const size_t colon = text.find(':');
  fault.hook = std::string(text.substr(0, colon));
  const std::string_view kind = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  if (kind == "foreign") fault.kind = Fault::Kind::kForeign;
  if (kind == "memory") fault.kind = Fault::Kind::kMemory;
  return fault;
}

void raise_fault(const Fault& fault, std::string_view hook) {
  if (fault.hook.empty() || fault.hook != hook) return;
  switch (fault.kind) {
    case Fault::Kind::kThrow:
      throw Error("fault injected", fault.hook, "unset MSO_SPANK_FAIL");
    case Fault::Kind::kForeign:
      throw 42;  // not a std::exception
    case Fault::Kind::kMemory:
      throw std::bad_alloc();
  }
}

}  // namespace mso
