#include "io/conversation_sample.h"

#include <algorithm>

#include "base/error.h"
#include "io/utf8.h"

namespace mso {
namespace {

constexpr uint64_t kMaxEntry = 16 << 20;

}  // namespace

Modality modality_of(MediaKind kind) {
  return kind == MediaKind::kImage ? Modality::kImage : kind == MediaKind::kVideo ? Modality::kVideo : Modality::kAudio;
}

std::pair<uint32_t, uint32_t> size_of_conversation(const nlohmann::json& entry) {
  uint64_t bytes = 0, code_points = 0;
  auto add = [&](const nlohmann::json& object, const char* key) {
    if (!object.is_object()) return;
    const auto at = object.find(key);
    if (at == object.end() || !at->is_string()) return;
    const std::string& text = at->get_ref<const std::string&>();
    bytes += text.size();
    code_points += count_code_points(text);
  };
  add(entry, "system");
  for (const auto& [list, key] : {std::pair("conversations", "value"), std::pair("messages", "content")}) {
    if (!entry.is_object() || !entry.contains(list) || !entry[list].is_array()) continue;
    for (const auto& turn : entry[list]) {
      add(turn, key);
      if (turn.is_object() && turn.contains(key) && turn[key].is_array())
        for (const auto& part : turn[key]) add(part, "text");
    }
  }
  auto bounded = [](uint64_t n) { return static_cast<uint32_t>(std::min<uint64_t>(n, UINT32_MAX)); };
  return {bounded(bytes), bounded(code_points)};
}

bool is_conversation(const Dataset& dataset, const ShardSample& sample) {
  if (sample.find("txt") || !sample.find("json")) return false;
  return (sample.flags & kSampleConversation) || dataset.has_conversations();
}

ConversationSample read_conversation(const Dataset& dataset, uint64_t id, const ShardSample& sample) {
  const ShardMember* json = sample.find("json");
  if (!json) throw BadSampleError("bad_conversation", "there is no .json");
  if (json->size > kMaxEntry)
    throw BadSampleError("too_large", "its .json has " + std::to_string(json->size) + " bytes, at most 16 MiB are read");
  ConversationSample out;
  std::vector<std::byte> bytes;
  try {
    bytes = dataset.read(id, *json);
  } catch (const Error& error) {
    throw BadSampleError("read_error", error.what());
  }
  out.bytes_read = bytes.size();
  out.conversation =
      parse_conversation({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, dataset.describe(id)).conversation;

  const std::vector<MediumRef> media = out.conversation.media();
  out.media.assign(media.size(), nullptr);
  auto bad = [&](const std::string& what) { return BadSampleError("missing_media", out.conversation.where + ": " + what); };
  for (MediaKind kind : kMediaKinds) {
    std::vector<size_t> wanted;
    for (size_t i = 0; i < media.size(); ++i)
      if (media[i].kind == kind) wanted.push_back(i);
    std::vector<const ShardMember*> there;
    for (const ShardMember& member : sample.members)
      if (media_of_extension(member.extension) == modality_of(kind)) there.push_back(&member);
    size_t found = 0;
    for (size_t i : wanted) found += (out.media[i] = sample.find(lower_ascii(media[i].file))) != nullptr;
    if (found == 0 && wanted.size() == there.size())
      for (size_t k = 0; k < wanted.size(); ++k) out.media[wanted[k]] = there[k];
    for (size_t i : wanted)
      if (!out.media[i])
        throw bad(std::string("there is no member for the ") + media_name(kind) + " '" + media[i].file.substr(0, 200) + "'");
    for (const ShardMember* member : there)
      if (std::ranges::find(out.media, member) == out.media.end())
        throw bad("the member ." + std::string(member->extension) + " has no " + media_mark(kind) + " in the text");
  }
  return out;
}

std::string words_of(const Conversation& conversation) {
  std::string text;
  for (const Turn& turn : conversation.turns)
    for (const Part& part : turn.parts)
      if (part.is_text) text += (text.empty() || text.ends_with('\n') ? "" : "\n") + part.text;
  return text;
}

}  // namespace mso
