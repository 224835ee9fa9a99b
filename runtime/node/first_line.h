// What the kernel says in a file of /sys or /proc that holds one value.
#pragma once

#include <filesystem>
#include <string>

namespace mso {

// The first line without its end; "" where there is no such file.
std::string first_line(const std::filesystem::path& file);

}  // namespace mso
