#include "io/chat_template.h"

#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "io/jinja_functions.h"

namespace mso {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using jinja::Value;

constexpr uint64_t kMaxFile = 64 << 20;

ordered_json parse(const std::string& text, const std::string& name) {
  try {
    return parse_shallow_json<ordered_json>(text);
  } catch (const nlohmann::json::exception& error) {
    throw Error("not valid JSON", name + ": " + error.what(), "take the file again from where the model came from",
                ExitCode::kBadUsage);
  }
}

// "chat_template": a text, or a list of {"name", "template"}, or an object of name → template.
std::optional<std::string> named_template(const ordered_json& config, const std::string& which, const std::string& name) {
  if (!config.is_object()) return {};
  auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return {};
  if (found->is_string()) return which == "default" ? std::optional(found->get<std::string>()) : std::nullopt;
  std::string known;
  auto look = [&](const std::string& key, const ordered_json& text) -> std::optional<std::string> {
    known += (known.empty() ? "" : ", ") + key;
    return key == which && text.is_string() ? std::optional(text.get<std::string>()) : std::nullopt;
  };
  if (found->is_array()) {
    for (const auto& item : *found)
      if (item.is_object() && item.contains("name") && item["name"].is_string() && item.contains("template"))
        if (auto text = look(item["name"].get<std::string>(), item["template"])) return text;
  } else if (found->is_object()) {
    for (const auto& [key, item] : found->items())
      if (auto text = look(key, item)) return text;
  }
  throw Error("no chat template of that name", name + ": '" + which + "'", known.empty() ? "" : "there are: " + known,
              ExitCode::kBadUsage);
}

// Special tokens, as texts or as objects with their "content".
JinjaTemplate::Variables special_tokens(const ordered_json& config) {
  JinjaTemplate::Variables variables;
  if (!config.is_object()) return variables;
  auto add = [&](const std::string& name, const ordered_json& token) {
    const ordered_json* text = &token;
    if (token.is_object() && token.contains("content")) text = &token["content"];
    if (text->is_string()) variables.emplace_back(name, Value::from_json(*text));
  };
  for (const auto& [key, value] : config.items())
    if (key.ends_with("_token")) add(key, value);
  if (auto extra = config.find("extra_special_tokens"); extra != config.end() && extra->is_object())
    for (const auto& [key, value] : extra->items()) add(key, value);
  return variables;
}

Value text_part(const std::string& text) {
  return Value::dict({{{Value("type"), Value("text")}, {Value("text"), Value(text)}}});
}

Value content_parts(const Turn& turn) {
  jinja::List parts;
  for (const Part& part : turn.parts)
    parts.push_back(part.is_text ? text_part(part.text) : Value::dict({{{Value("type"), Value(media_name(part.kind))}}}));
  return Value::list(std::move(parts));
}

std::string content_text(const Turn& turn, const MediaPlaceholders& placeholders) {
  std::string out;
  if (!turn.one_text) {
    for (size_t i = 0; i < turn.parts.size(); ++i) {
      const Part& part = turn.parts[i];
      out += part.is_text ? part.text : placeholder_of(placeholders, part.kind);
      if (!part.is_text && i + 1 < turn.parts.size()) out += '\n';
    }
    return out;
  }
  for (size_t at = 0; at < turn.text.size();) {
    bool mark = false;
    for (MediaKind kind : kMediaKinds)
      if (std::string_view(turn.text).substr(at).starts_with(media_mark(kind))) {
        out += placeholder_of(placeholders, kind);
        at += std::string_view(media_mark(kind)).size();
        mark = true;
        break;
      }
    if (!mark) out += turn.text[at++];
  }
  return out;
}

bool has_media(const Turn& turn) {
  return std::any_of(turn.parts.begin(), turn.parts.end(), [](const Part& part) { return !part.is_text; });
}

}  // namespace

const std::string& placeholder_of(const MediaPlaceholders& placeholders, MediaKind kind) {
  return kind == MediaKind::kImage ? placeholders.image : kind == MediaKind::kVideo ? placeholders.video : placeholders.audio;
}

ChatTemplate::ChatTemplate(std::string_view source, std::string name, const std::string& config_text)
    : source_(source), template_(source, std::move(name)) {
  if (!config_text.empty()) variables_ = special_tokens(parse(config_text, template_.name() + " (its tokenizer_config.json)"));
  static const std::string kNeedle = "5eedle";
  takes_text_ = probe(kNeedle);
  takes_parts_ = probe(ordered_json::array({{{"type", "text"}, {"text", kNeedle}}}));
  if (!takes_text_ && !takes_parts_) takes_text_ = takes_parts_ = true;  // it will say itself what is wrong
}

// Whether a user's message with this content comes out as its text and nothing else of it.
bool ChatTemplate::probe(const ordered_json& content) const {
  JinjaTemplate::Variables variables = variables_;
  variables.emplace_back("messages", Value::from_json(ordered_json::array({{{"role", "user"}, {"content", content}}})));
  variables.emplace_back("tools", Value::none());
  variables.emplace_back("documents", Value::none());
  variables.emplace_back("add_generation_prompt", false);
  try {
    const std::string text = template_.render(variables).text;
    return text.find("5eedle") != std::string::npos && text.find("'type'") == std::string::npos &&
           text.find("\"type\"") == std::string::npos;
  } catch (const Error&) {
    return false;
  }
}

std::optional<std::pair<std::string, std::string>> ChatTemplate::find(const fs::path& folder, const std::string& which) {
  std::error_code ignored;
  if (which != "default") {
    const fs::path file = folder / "additional_chat_templates" / (which + ".jinja");
    if (which.find('/') == std::string::npos && fs::exists(file, ignored)) return {{read_file(file, kMaxFile), file.string()}};
  } else if (const fs::path file = folder / "chat_template.jinja"; fs::exists(file, ignored)) {
    return {{read_file(file, kMaxFile), file.string()}};
  }
  for (const char* name : {"chat_template.json", "processor_config.json", "tokenizer_config.json"}) {
    const fs::path file = folder / name;
    if (!fs::exists(file, ignored)) continue;
    if (auto text = named_template(parse(read_file(file, kMaxFile), file.string()), which, file.string()))
      return {{std::move(*text), file.string()}};
  }
  return {};
}

// Names become names of files where a model is exported.
static bool is_template_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 && name[0] != '.' &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == std::string::npos;
}

std::map<std::string, std::string> ChatTemplate::all(const fs::path& folder, const std::string& config_text) {
  std::map<std::string, std::string> sources;
  auto add_named = [&](const std::string& text, const std::string& name) {
    const ordered_json config = parse(text, name);
    if (!config.is_object() || !config.contains("chat_template")) return;
    const ordered_json& given = config["chat_template"];
    auto add = [&](const std::string& key, const ordered_json& source) {
      if (is_template_name(key) && source.is_string()) sources.emplace(key, source.get<std::string>());
    };
    if (given.is_array()) {
      for (const auto& item : given)
        if (item.is_object() && item.contains("name") && item["name"].is_string() && item.contains("template"))
          add(item["name"].get<std::string>(), item["template"]);
    } else if (given.is_object()) {
      for (const auto& [key, source] : given.items()) add(key, source);
    } else {
      add("default", given);
    }
  };
  auto quietly = [](auto&& body) {
    try {
      body();
    } catch (const Error&) {
    }
  };
  std::error_code ignored;
  if (!folder.empty() && fs::is_directory(folder, ignored)) {
    if (fs::exists(folder / "chat_template.jinja", ignored))
      quietly([&] { sources.emplace("default", read_file(folder / "chat_template.jinja", kMaxFile)); });
    fs::directory_iterator it(folder / "additional_chat_templates", ignored);
    for (; !ignored && it != fs::directory_iterator(); it.increment(ignored))
      if (const std::string name = it->path().stem().string(); it->path().extension() == ".jinja" && is_template_name(name))
        quietly([&] { sources.emplace(name, read_file(it->path(), kMaxFile)); });
    for (const char* name : {"chat_template.json", "processor_config.json", "tokenizer_config.json"})
      if (fs::exists(folder / name, ignored)) quietly([&] { add_named(read_file(folder / name, kMaxFile), name); });
  }
  if (!config_text.empty()) quietly([&] { add_named(config_text, "tokenizer_config.json"); });
  return sources;
}

ChatTemplate ChatTemplate::load(const fs::path& folder, const std::string& which) {
  std::error_code ignored;
  auto found = find(folder, which);
  if (!found)
    throw Error("there is no chat template" + (which == "default" ? "" : " '" + which + "'"), folder.string(),
                "looked for in chat_template.jinja, chat_template.json, processor_config.json and tokenizer_config.json",
                ExitCode::kBadUsage);
  ordered_json config = ordered_json::object();
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    if (!fs::exists(folder / name, ignored)) continue;
    const ordered_json other = parse(read_file(folder / name, kMaxFile), (folder / name).string());
    if (!other.is_object()) continue;
    for (const auto& [key, value] : other.items())
      if (!value.is_null()) config[key] = value;
  }
  return ChatTemplate(found->first, found->second, config.dump());
}

std::optional<ChatTemplate> ChatTemplate::of_config(const std::string& config_text, const std::string& name,
                                                    const std::string& which) {
  if (config_text.empty()) return {};
  const auto text = named_template(parse(config_text, name), which, name);
  if (!text) return {};
  return ChatTemplate(*text, name + " (chat_template)", config_text);
}

void ChatTemplate::set_variable(const std::string& name, Value value) {
  std::erase_if(variables_, [&](const auto& variable) { return variable.first == name; });
  variables_.emplace_back(name, std::move(value));
}

void ChatTemplate::set_date(int year, int month, int day) {
  std::tm date{};
  date.tm_year = year - 1900;
  date.tm_mon = month - 1;
  date.tm_mday = day;
  date.tm_hour = 12;
  ::timegm(&date);  // the day of the week and of the year
  set_variable("strftime_now", Value::function("strftime_now", [date](jinja::Context& context, jinja::Arguments& arguments) -> Value {
                 jinja::ArgumentReader reader(context, "strftime_now", arguments);
                 const std::string format = reader.text("format", "");
                 reader.done();
                 if (format.size() > 200) context.fail("strftime_now's format is too long");
                 char buffer[4096];
                 return std::string(buffer, std::strftime(buffer, sizeof buffer, format.c_str(), &date));
               }));
}

RenderedChat ChatTemplate::render(const Conversation& conversation, size_t turns, bool add_generation_prompt,
                                  const MediaPlaceholders& placeholders) const {
  jinja::List messages;
  for (size_t i = 0; i < std::min(turns, conversation.turns.size()); ++i) {
    const Turn& turn = conversation.turns[i];
    jinja::Dict message;
    // Reasoning goes by several names; templates read them all. Source: _alias_reasoning_fields() of transformers.
    const ordered_json* reasoning = nullptr;
    for (const char* key : {"reasoning_content", "thinking", "reasoning"})
      if (!reasoning && turn.extra.contains(key)) reasoning = &turn.extra[key];
    if (reasoning && !turn.extra.contains("thinking")) message.items.emplace_back(Value("thinking"), Value::from_json(*reasoning));
    message.items.emplace_back(Value("role"), Value(turn.role));
    if (!(turn.one_text && turn.text.empty() && turn.extra.contains("tool_calls"))) {
      const bool as_parts = turn.one_text ? (has_media(turn) ? takes_parts_ : !takes_text_) : takes_parts_;
      message.items.emplace_back(Value("content"), as_parts ? content_parts(turn) : Value(content_text(turn, placeholders)));
    }
    for (const auto& [key, value] : turn.extra.items())
      if (!(reasoning && key == "reasoning_content")) message.items.emplace_back(Value(key), Value::from_json(value));
    if (reasoning) message.items.emplace_back(Value("reasoning_content"), Value::from_json(*reasoning));
    messages.push_back(Value::dict(std::move(message)));
  }
  JinjaTemplate::Variables variables = variables_;
  variables.emplace_back("messages", Value::list(std::move(messages)));
  variables.emplace_back("tools", conversation.tools.is_null() ? Value::none() : Value::from_json(conversation.tools));
  variables.emplace_back("documents", Value::none());
  variables.emplace_back("add_generation_prompt", add_generation_prompt);
  JinjaTemplate::Rendered rendered = template_.render(variables);
  return {std::move(rendered.text), std::move(rendered.generations)};
}

}  // namespace mso
