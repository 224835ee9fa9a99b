// A conversation about pictures, videos and sounds, as data sets write it: LLaVA's `conversations` and OpenAI's `messages`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "io/bad_sample.h"

namespace mso {

enum class MediaKind { kImage, kVideo, kAudio };
inline constexpr MediaKind kMediaKinds[] = {MediaKind::kImage, MediaKind::kVideo, MediaKind::kAudio};
const char* media_name(MediaKind kind);  // "image", "video", "audio"
const char* media_mark(MediaKind kind);  // "<image>", "<video>", "<audio>": what stands for one in a text

// A stretch of text, or one medium.
struct Part {
  bool is_text = true;
  std::string text;  // the text, or the file as the entry names it
  MediaKind kind = MediaKind::kImage;

  bool operator==(const Part&) const = default;
};

struct Turn {
  std::string role;  // "system", "user", "assistant", "tool" …
  // In order. Where the entry has one text with marks, a line break beside a mark belongs to the mark (the one behind it,
  // else the one before) and is in no part.
  std::vector<Part> parts;
  // The content was one text, kept here as it was, marks included; else a list of parts.
  bool one_text = true;
  std::string text;
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();  // other keys of a message: name, tool_calls …
};

struct MediumRef {
  MediaKind kind;
  std::string file;  // as the entry names it

  bool operator==(const MediumRef&) const = default;
};

struct Conversation {
  std::string id;     // of the entry, "" without one
  std::string where;  // "train.json, entry 17 (id abc)" for messages
  std::vector<Turn> turns;
  nlohmann::ordered_json tools;  // null without

  std::vector<MediumRef> media() const;  // in the order of the turns and their parts
};

// An entry and where in it the files are named, in the order of Conversation::media().
struct ConversationEntry {
  Conversation conversation;
  nlohmann::ordered_json json;
  std::vector<nlohmann::ordered_json::json_pointer> files;
};

// `text`: one JSON object. Styles:
//   {"id", "conversations": [{"from": "human" | "gpt" | "system" …, "value": "<image>\n…"}], "image": "a.jpg" | ["a.jpg", …],
//    "video": …, "audio": …, "system": "…"}     (also "images", "videos", "audios")
//   {"id", "messages": [{"role", "content": "…" | [{"type": "text", "text"}, {"type": "image", "image" | "path" | "url": file},
//    {"type": "image_url", "image_url": {"url"}}, …]}], "images": […] …}
// A part without a file takes the next of the lists. `where` names file and line or index.
// Throws BadSampleError and nothing else: bad_json, bad_conversation (what is wrong with which turn), missing_media (a mark
// without file, a file without mark), bad_text (not UTF-8), too_large.
ConversationEntry parse_conversation(std::string_view text, const std::string& where);

// The entry as one line of JSON with other names for its files, one for each of `files`.
std::string with_files(const ConversationEntry& entry, const std::vector<std::string>& names);

}  // namespace mso
