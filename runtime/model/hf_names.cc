#include "model/hf_names.h"

#include <string_view>

namespace mso {

std::string logical_name(const std::string& name) {
  std::string_view rest = name;
  if (rest.starts_with("model.")) rest.remove_prefix(6);
  const std::string_view vision = "vision_tower.", language = "language_model.";
  if (rest.starts_with(vision)) {
    std::string_view tail = rest.substr(vision.size());
    return tail.starts_with("vision_model.") ? std::string(rest)
                                             : "vision_tower.vision_model." + std::string(tail);
  }
  if (rest.starts_with(language)) {
    std::string_view tail = rest.substr(language.size());
    return tail.starts_with("model.") || tail.starts_with("lm_head.")
               ? std::string(rest)
               : "language_model.model." + std::string(tail);
  }
  if (rest.starts_with("lm_head.")) return "language_model." + std::string(rest);
  for (const char* part : {"multi_modal_projector.", "audio_tower.", "audio_projector."})
    if (rest.starts_with(part)) return std::string(rest);
  return name;
}

bool is_ignorable_name(const std::string& name) {
  return name.ends_with("position_ids") || name.ends_with("rotary_emb.inv_freq");
}

}  // namespace mso
