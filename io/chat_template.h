// The chat template of a Hugging Face folder: from a conversation to the text that the model is trained on.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/conversation.h"
#include "io/jinja_template.h"
#include "io/processor.h"

namespace mso {

struct RenderedChat {
  std::string text;
  std::vector<std::pair<size_t, size_t>> generations;  // bytes [start, end) within {% generation %}
};

// How the template writes a medium of a kind: what the family's processor replaces in the text.
const std::string& placeholder_of(const MediaPlaceholders& placeholders, MediaKind kind);

// Immutable; methods may be called from several threads at once.
class ChatTemplate {
 public:
  // `config_text`: a tokenizer_config.json, whose special tokens (bos_token …) the template may write; "" for none.
  // `name` stands for the template in messages. Error (kBadUsage), see JinjaTemplate.
  ChatTemplate(std::string_view source, std::string name, const std::string& config_text = {});

  // The folder's template, the first of: chat_template.jinja, chat_template.json, processor_config.json,
  // tokenizer_config.json ("chat_template", one text or a list of named ones); for `which` other than "default" also
  // additional_chat_templates/WHICH.jinja. Error (kBadUsage) saying where it was looked for.
  static ChatTemplate load(const std::filesystem::path& folder, const std::string& which = "default");
  // The source of load(), and the file it is from; nothing where there is none.
  static std::optional<std::pair<std::string, std::string>> find(const std::filesystem::path& folder,
                                                                 const std::string& which = "default");
  // The sources of all templates by name, "default" first among them: of the folder, and what that lacks of the text of a
  // tokenizer_config.json. Nothing of files that cannot be read.
  static std::map<std::string, std::string> all(const std::filesystem::path& folder, const std::string& config_text);
  // From the text of a tokenizer_config.json; nothing where it has none.
  static std::optional<ChatTemplate> of_config(const std::string& config_text, const std::string& name,
                                               const std::string& which = "default");

  // The first `turns` turns, as apply_chat_template(messages, tokenize=False) writes them. A turn's content is given to the
  // template as the entry has it, a text or a list of parts, where the template takes that, else in the other form; in a
  // text a medium is `placeholders`. Error (kBadData) naming template and line, also for what the template refuses.
  RenderedChat render(const Conversation& conversation, size_t turns, bool add_generation_prompt,
                      const MediaPlaceholders& placeholders) const;

  const std::string& source() const { return source_; }
  bool has_generation() const { return template_.has_generation(); }
  bool takes_text() const { return takes_text_; }
  bool takes_parts() const { return takes_parts_; }

  // Further variables for the template (enable_thinking …). A function strftime_now() is not defined, because what is
  // trained on must not depend on the day; `date`, where given, is what it answers (any format).
  void set_variable(const std::string& name, jinja::Value value);
  void set_date(int year, int month, int day);

 private:
  bool probe(const nlohmann::ordered_json& content) const;
  std::string source_;
  JinjaTemplate template_;
  JinjaTemplate::Variables variables_;
  bool takes_text_ = true, takes_parts_ = true;
};

}  // namespace mso
