#include "spank/options.h"

#include <cstring>

#include "base/error.h"
#include "node/request_text.h"

namespace mso {

namespace {

enum : int { kProfileOption = 100, kConfigOption = 101 };  // others: index of the field

// Called by Slurm for each option. Checks nothing: all is looked at together in init_post_opt. In slurmstepd
// only the fact that --mso was asked counts, the request comes as one text.
int take_option(int value, const char* argument, int remote) {
  TypedOptions& typed = typed_options();
  typed.asked = true;
  if (remote) return 0;
  try {
    // Longer than anything allowed: kept just long enough to be refused as too long.
    std::string text(argument ? argument : "", argument ? strnlen(argument, 2 * kMaxRequestText + 4096) : 0);
    if (value == kProfileOption) {
      if (!text.empty() && text != "(null)")
        typed.profile = text;  // "(null)": how Slurm 22.05 hands on no argument
    } else if (value == kConfigOption) {
      typed.config = text;
    } else if (value >= 0 && value < static_cast<int>(kRequestFields)) {
      const RequestFieldNames& names = request_fields()[static_cast<size_t>(value)];
      typed.fields[names.field] = RequestSource::Value{text, std::string("--") + names.option};
    }
    return 0;
  } catch (...) {
    return -1;
  }
}

}  // namespace

TypedOptions& typed_options() {
  static TypedOptions* typed = new TypedOptions;  // never destroyed: Slurm unloads plugins while it exits
  return *typed;
}

void register_options(spank_t spank) {
  const auto add = [spank](const char* name, const char* argument, const char* usage, int has_argument,
                           int value) {
    // Slurm's structure has no const; it copies what it is given.
    spank_option option = {const_cast<char*>(name),
                           const_cast<char*>(argument),
                           const_cast<char*>(usage),
                           has_argument,
                           value,
                           take_option};
    if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
      throw Error("Slurm does not take the option", name);
  };
  add("mso", "[PROFILE]",
      "prepare every node of the job for MegaScale-Omni (spank_mso(8)); PROFILE: settings of the site", 2,
      kProfileOption);
  add("mso-config", "FILE", "take what nodes need from a megascale_config.yaml", 1, kConfigOption);
  for (const RequestFieldNames& names : request_fields())
    add(names.option, names.argument, names.help, 1, static_cast<int>(names.field));
}

}  // namespace mso
