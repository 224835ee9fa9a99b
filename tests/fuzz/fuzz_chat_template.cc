// Fuzz target: any bytes as a chat template, rendered over a conversation with tools, reasoning and media, within small
// limits. Only mso::Error may come out; what comes out is valid UTF-8 with its marked stretches inside.
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "io/chat_template.h"
#include "io/utf8.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  mso::init_logging("error");
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const nlohmann::ordered_json kMessages = nlohmann::ordered_json::parse(R"([
      {"role": "system", "content": "Be kïnd."}, {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " Hi\n"}]},
      {"role": "assistant", "content": "<think>x</think> A cat.", "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, null]}}}]},
      {"role": "user", "content": "Ünd?"}, {"role": "assistant", "content": ""}])");
  const std::string source(reinterpret_cast<const char*>(data), size);
  try {
    const mso::JinjaTemplate jinja(source, "fuzz");
    mso::JinjaTemplate::Variables variables = {{"messages", mso::jinja::Value::from_json(kMessages)},
                                               {"tools", mso::jinja::Value::none()},
                                               {"bos_token", mso::jinja::Value("<s>")},
                                               {"add_generation_prompt", mso::jinja::Value(true)}};
    const auto rendered = jinja.render(variables, {.steps = 50000, .output_bytes = 1 << 18, .depth = 100});
    std::string storage;
    if (rendered.text.size() > 1 << 18) abort();
    if (mso::valid_utf8(rendered.text, storage).data() != rendered.text.data()) abort();
    for (const auto& [start, end] : rendered.generations)
      if (start > end || end > rendered.text.size()) abort();
  } catch (const mso::Error&) {
  }
  return 0;
}
