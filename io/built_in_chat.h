// Chat templates that come with the program, for models whose folder has none.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "io/processor.h"

namespace mso {

// "llava_v1": LLaVA-1.5's conversations with Vicuna; "plain": its first stage, the media and then what the assistant says;
// "chatml": <|im_start|>ROLE … <|im_end|>. In Jinja, with {% generation %} around what is learned. Nothing for another name.
std::optional<std::string> built_in_chat_template(std::string_view name, const MediaPlaceholders& placeholders);

}  // namespace mso
