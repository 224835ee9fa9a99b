#include "io/conversation.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/json_text.h"
#include "io/utf8.h"

namespace mso {
namespace {

using nlohmann::ordered_json;
using Pointer = ordered_json::json_pointer;

constexpr size_t kMaxEntry = 16 << 20, kMaxTurns = 4096, kMaxMedia = 4096;
// Looking up a key of an object takes time in proportion to its keys.
constexpr size_t kMaxKeys = 50000, kMaxKeysOfObject = 4096;

// Members of all objects, at least: what stands before a colon outside of texts.
size_t count_keys(std::string_view text) {
  size_t keys = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (inside) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        inside = false;
    } else if (text[i] == '"') {
      inside = true;
    } else if (text[i] == ':') {
      ++keys;
    }
  }
  return keys;
}

class Reader {
 public:
  Reader(ConversationEntry& entry, const std::string& where) : entry_(entry), where_(where) {}

  void read() {
    const ordered_json& json = entry_.json;
    Conversation& conversation = entry_.conversation;
    if (!json.is_object()) fail("bad_conversation", "it is no JSON object");
    for (const char* key : {"id", "sample_id", "question_id"}) {
      auto found = json.find(key);
      if (found == json.end() || !conversation.id.empty()) continue;
      if (found->is_string()) conversation.id = found->get<std::string>();
      if (found->is_number_integer()) conversation.id = std::to_string(found->get<int64_t>());
    }
    if (conversation.id.size() > 200) conversation.id.resize(200);
    conversation.where = where_ + (conversation.id.empty() ? "" : " (id " + conversation.id + ")");

    for (MediaKind kind : kMediaKinds) collect_files(kind);
    const bool llava = json.contains("conversations"), messages = json.contains("messages");
    if (llava && messages) fail("bad_conversation", "it has both 'conversations' and 'messages'");
    if (!llava && !messages) fail("bad_conversation", "it has neither 'conversations' nor 'messages'");
    const std::string list_name = llava ? "conversations" : "messages";
    const ordered_json& list = json[list_name];
    if (!list.is_array() || list.empty()) fail("bad_conversation", "'" + list_name + "' is no list of turns, or an empty one");
    if (list.size() > kMaxTurns) fail("too_large", "it has " + std::to_string(list.size()) + " turns, at most 4096 are read");

    if (auto system = json.find("system"); system != json.end() && system->is_string() && !system->get_ref<const std::string&>().empty()) {
      Turn turn;
      turn.role = "system";
      read_text(turn, *system, "'system'");
      conversation.turns.push_back(std::move(turn));
    }
    for (size_t i = 0; i < list.size(); ++i) llava ? read_value(list[i], i) : read_message(list[i], i);
    if (auto tools = json.find("tools"); tools != json.end() && tools->is_array()) conversation.tools = *tools;

    for (MediaKind kind : kMediaKinds) {
      const auto& files = files_[static_cast<size_t>(kind)];
      const size_t used = next_[static_cast<size_t>(kind)];
      if (used < files.size())
        fail("missing_media", std::string("the ") + media_name(kind) + " '" + file_at(files[used]) + "' has no " + media_mark(kind) +
                                  " in the text (" + std::to_string(files.size()) + " files, " + std::to_string(used) + " marks)");
    }
    if (entry_.files.size() > kMaxMedia) fail("too_large", "it has more than 4096 media");
  }

 private:
  [[noreturn]] void fail(const char* reason, const std::string& what) const {
    const std::string& where = entry_.conversation.where;
    throw BadSampleError(reason, (where.empty() ? where_ : where) + ": " + what);
  }

  const std::string& file_at(const Pointer& at) const { return entry_.json.at(at).get_ref<const std::string&>(); }

  // "image": "a.jpg", "image": ["a.jpg", …], "images": […].
  void collect_files(MediaKind kind) {
    for (const std::string& key : {std::string(media_name(kind)), std::string(media_name(kind)) + "s"}) {
      auto found = entry_.json.find(key);
      if (found == entry_.json.end() || found->is_null()) continue;
      auto add = [&](const ordered_json& value, const Pointer& at) {
        if (!value.is_string() || value.get_ref<const std::string&>().empty())
          fail("bad_conversation", "'" + key + "' is neither a file name nor a list of them");
        files_[static_cast<size_t>(kind)].push_back(at);
      };
      if (found->is_array()) {
        for (size_t i = 0; i < found->size(); ++i) add((*found)[i], Pointer("/" + key + "/" + std::to_string(i)));
      } else if (!(found->is_string() && found->get_ref<const std::string&>().empty())) {
        add(*found, Pointer("/" + key));
      }
    }
  }

  void take_file(Turn& turn, MediaKind kind, const std::string& what) {
    auto& files = files_[static_cast<size_t>(kind)];
    size_t& next = next_[static_cast<size_t>(kind)];
    if (next >= files.size())
      fail("missing_media", what + " has a " + media_mark(kind) + " for which there is no file (" + std::to_string(files.size()) +
                                " in the entry)");
    add_file(turn, kind, files[next++], what);
  }
  void add_file(Turn& turn, MediaKind kind, const Pointer& at, const std::string& what) {
    const std::string& file = file_at(at);
    if (file.find('\0') != std::string::npos) fail("bad_conversation", what + " names a file with a zero byte");
    turn.parts.push_back({false, file, kind});
    entry_.files.push_back(at);
  }

  // One text with marks.
  void read_text(Turn& turn, const ordered_json& value, const std::string& what) {
    if (!value.is_string()) fail("bad_conversation", "the text of " + what + " is no text");
    turn.one_text = true;
    turn.text = value.get<std::string>();
    check_text(turn.text, what);
    std::string_view rest = turn.text;
    while (true) {
      size_t first = std::string_view::npos;
      MediaKind kind{};
      for (MediaKind k : kMediaKinds)
        if (const size_t at = rest.find(media_mark(k)); at < first) first = at, kind = k;
      std::string_view before = rest.substr(0, first);
      const bool mark = first != std::string_view::npos;
      if (mark) rest.remove_prefix(first + std::string_view(media_mark(kind)).size());
      bool taken = false;
      if (mark && rest.starts_with('\n')) rest.remove_prefix(1), taken = true;
      if (mark && !taken && before.ends_with('\n')) before.remove_suffix(1);
      if (!before.empty()) turn.parts.push_back({true, std::string(before), {}});
      if (!mark) return;
      take_file(turn, kind, what);
    }
  }

  void check_text(const std::string& text, const std::string& what) const {
    std::string storage;
    if (valid_utf8(text, storage).data() != text.data()) fail("bad_text", "the text of " + what + " is not UTF-8");
  }

  void read_value(const ordered_json& item, size_t i) {
    const std::string what = "turn " + std::to_string(i);
    if (!item.is_object()) fail("bad_conversation", what + " is no JSON object");
    auto from = item.find("from"), value = item.find("value");
    if (from == item.end() || !from->is_string()) fail("bad_conversation", what + " has no text 'from'");
    if (value == item.end()) fail("bad_conversation", what + " has no 'value'");
    static const std::map<std::string, const char*> kRoles = {
        {"human", "user"},      {"user", "user"},     {"gpt", "assistant"},     {"assistant", "assistant"}, {"chatgpt", "assistant"},
        {"model", "assistant"}, {"system", "system"}, {"observation", "tool"}, {"tool", "tool"}};
    auto role = kRoles.find(from->get_ref<const std::string&>());
    if (role == kRoles.end())
      fail("bad_conversation", what + " is from '" + from->get<std::string>().substr(0, 60) + "', which is none of human, gpt, system, tool");
    Turn turn;
    turn.role = role->second;
    read_text(turn, *value, what);
    entry_.conversation.turns.push_back(std::move(turn));
  }

  void read_message(const ordered_json& item, size_t i) {
    const std::string what = "message " + std::to_string(i);
    if (!item.is_object()) fail("bad_conversation", what + " is no JSON object");
    auto role = item.find("role"), content = item.find("content");
    if (role == item.end() || !role->is_string() || role->get_ref<const std::string&>().empty())
      fail("bad_conversation", what + " has no text 'role'");
    Turn turn;
    turn.role = role->get<std::string>();
    check_text(turn.role, what);
    for (const auto& [key, value] : item.items())
      if (key != "role" && key != "content" && !value.is_null()) turn.extra[key] = value;
    if (content == item.end() || content->is_null()) {
      if (!turn.extra.contains("tool_calls")) fail("bad_conversation", what + " has no 'content'");
      turn.parts.clear();
    } else if (content->is_string()) {
      read_text(turn, *content, what);
    } else if (content->is_array()) {
      turn.one_text = false;
      for (size_t k = 0; k < content->size(); ++k)
        read_part(turn, (*content)[k], Pointer("/messages/" + std::to_string(i) + "/content/" + std::to_string(k)),
                  "part " + std::to_string(k) + " of " + what);
    } else {
      fail("bad_conversation", "the content of " + what + " is neither a text nor a list of parts");
    }
    entry_.conversation.turns.push_back(std::move(turn));
  }

  void read_part(Turn& turn, const ordered_json& part, const Pointer& at, const std::string& what) {
    if (part.is_string()) {
      check_text(part.get_ref<const std::string&>(), what);
      turn.parts.push_back({true, part.get<std::string>(), {}});
      return;
    }
    if (!part.is_object()) fail("bad_conversation", what + " is no JSON object");
    std::string type = part.contains("type") && part["type"].is_string() ? part["type"].get<std::string>() : "";
    if (type.empty())
      for (const char* key : {"text", "image", "video", "audio"})
        if (part.contains(key)) type = key;
    if (type == "text") {
      auto text = part.find("text");
      if (text == part.end() || !text->is_string()) fail("bad_conversation", what + " has no text");
      check_text(text->get_ref<const std::string&>(), what);
      turn.parts.push_back({true, text->get<std::string>(), {}});
      return;
    }
    for (MediaKind kind : kMediaKinds) {
      const std::string name = media_name(kind);
      if (type != name && type != name + "_url" && type != "input_" + name) continue;
      for (const std::string& key : {name, name + "_url", std::string("path"), std::string("url")}) {
        auto file = part.find(key);
        if (file == part.end() || file->is_null()) continue;
        if (file->is_string()) return add_file(turn, kind, at / key, what);
        if (file->is_object() && file->contains("url") && (*file)["url"].is_string()) return add_file(turn, kind, at / key / "url", what);
        fail("bad_conversation", what + ": its '" + key + "' names no file");
      }
      if (part.contains("base64") || part.contains("data")) fail("bad_conversation", what + " holds the bytes themselves; only files are read");
      return take_file(turn, kind, what);
    }
    fail("bad_conversation", what + " is of type '" + type.substr(0, 60) + "', which is none of text, image, video, audio");
  }

  ConversationEntry& entry_;
  const std::string& where_;
  std::array<std::vector<Pointer>, 3> files_;
  std::array<size_t, 3> next_{};
};

}  // namespace

const char* media_name(MediaKind kind) {
  return kind == MediaKind::kImage ? "image" : kind == MediaKind::kVideo ? "video" : "audio";
}
const char* media_mark(MediaKind kind) {
  return kind == MediaKind::kImage ? "<image>" : kind == MediaKind::kVideo ? "<video>" : "<audio>";
}

std::vector<MediumRef> Conversation::media() const {
  std::vector<MediumRef> found;
  for (const Turn& turn : turns)
    for (const Part& part : turn.parts)
      if (!part.is_text) found.push_back({part.kind, part.text});
  return found;
}

ConversationEntry parse_conversation(std::string_view text, const std::string& where) {
  if (text.size() > kMaxEntry)
    throw BadSampleError("too_large", where + ": the entry has " + std::to_string(text.size()) + " bytes, at most 16 MiB are read");
  if (count_keys(text) > kMaxKeys) throw BadSampleError("too_large", where + ": the entry has more than 50000 keys");
  ConversationEntry entry;
  try {
    // Refuses an object with very many keys before it has been built.
    std::vector<size_t> keys;
    const ordered_json::parser_callback_t limit = [&](int, ordered_json::parse_event_t event, ordered_json&) {
      if (event == ordered_json::parse_event_t::object_start) keys.push_back(0);
      if (event == ordered_json::parse_event_t::object_end && !keys.empty()) keys.pop_back();
      if (event == ordered_json::parse_event_t::key && !keys.empty() && ++keys.back() > kMaxKeysOfObject)
        throw BadSampleError("too_large", where + ": an object in it has more than 4096 keys");
      return true;
    };
    if (json_depth(text) > kMaxJsonDepth) throw JsonTooDeep();
    entry.json = ordered_json::parse(text, limit);
    Reader(entry, where).read();
  } catch (const nlohmann::json::exception& error) {
    throw BadSampleError("bad_json", where + ": " + error.what());
  }
  return entry;
}

std::string with_files(const ConversationEntry& entry, const std::vector<std::string>& names) {
  ordered_json json = entry.json;
  for (size_t i = 0; i < names.size() && i < entry.files.size(); ++i) json[entry.files[i]] = names[i];
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace mso
