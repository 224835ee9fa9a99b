// The category of a sample: what replacements stay within, thresholds and caps are set for, and reports count by.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "io/dataset.h"

namespace mso {

// The first folder of a path: "animals" for "animals/birds/owl" and for "animals/cat"; empty without a folder.
std::string first_folder(std::string_view path);

// mdp.healing.category: "auto" or a JSON pointer. Immutable, thread-safe.
class CategoryRule {
 public:
  // Error (kBadUsage) for anything else.
  explicit CategoryRule(const std::string& rule = "auto");

  // auto: the first folder of the sample's key; where the key has none, of "category" in its .json (which `mso data
  // pack` writes). A pointer: the text there, as it stands. Empty where nothing is found or readable: such samples
  // make a category of their own.
  std::string of(const Dataset& dataset, uint64_t id) const;

  const std::string& text() const { return rule_; }

 private:
  std::string rule_;
};

}  // namespace mso
