// "Did you mean": the nearest of some known names.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mso {

// Fewest insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (optimal string
// alignment distance).
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `name`, or empty where none is near (more than a third of the letters differ). The
// first of equally near ones.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace mso
