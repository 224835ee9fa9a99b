#include "io/built_in_chat.h"

namespace mso {
namespace {

// conv_vicuna_v1 of LLaVA's llava/conversation.py: SYSTEM, then "USER: … ASSISTANT: …</s>" without a space behind </s>.
// bos is the tokenizer's.
constexpr std::string_view kLlavaV1 =
    R"({%- set turns = messages -%}
{%- if messages[0]['role'] == 'system' -%}
{{- messages[0]['content'] | trim + ' ' -}}
{%- set turns = messages[1:] -%}
{%- else -%}
{{- "A chat between a curious human and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the human's questions. " -}}
{%- endif -%}
{%- for message in turns -%}
{%- if message['role'] == 'user' -%}
{{- 'USER: ' + message['content'] | trim + ' ' -}}
{%- elif message['role'] == 'assistant' -%}
{{- 'ASSISTANT:' -}}{%- generation -%}{{- ' ' + message['content'] | trim + eos_token -}}{%- endgeneration -%}
{%- else -%}
{{- raise_exception('llava_v1 knows no ' + message['role'] + ' behind the first turn') -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- 'ASSISTANT:' -}}{%- endif -%})";

// preprocess_plain() of LLaVA's llava/train/train.py: what the user says is left out but for its media.
constexpr std::string_view kPlain =
    R"({%- for message in messages -%}
{%- if message['role'] == 'assistant' -%}
{%- generation -%}
{%- if message['content'] is string -%}{{- message['content'] | trim -}}
{%- else -%}{%- for part in message['content'] if part['type'] == 'text' -%}{{- part['text'] | trim -}}{%- endfor -%}{%- endif -%}
{{- '\n' -}}
{%- endgeneration -%}
{%- elif message['content'] is not string -%}
{%- for part in message['content'] -%}
{%- if part['type'] == 'image' -%}{{- '<image>' -}}
{%- elif part['type'] == 'video' -%}{{- '<video>' -}}
{%- elif part['type'] == 'audio' -%}{{- '<audio>' -}}{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- endfor -%})";

constexpr std::string_view kChatMl =
    R"({%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\n' -}}
{%- if message['role'] == 'assistant' -%}{%- generation -%}{{- message['content'] + '<|im_end|>' -}}{%- endgeneration -%}
{%- else -%}{{- message['content'] + '<|im_end|>' -}}{%- endif -%}
{{- '\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%})";

void replace_all(std::string& text, std::string_view from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
}

}  // namespace

std::optional<std::string> built_in_chat_template(std::string_view name, const MediaPlaceholders& placeholders) {
  if (name == "llava_v1") return std::string(kLlavaV1);
  if (name == "chatml") return std::string(kChatMl);
  if (name != "plain") return {};
  std::string source(kPlain);
  replace_all(source, "<image>", placeholders.image);
  replace_all(source, "<video>", placeholders.video);
  replace_all(source, "<audio>", placeholders.audio);
  return source;
}

}  // namespace mso
