#include "io/caption.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/json_text.h"
#include "io/conversation_sample.h"
#include "io/utf8.h"

namespace mso {
namespace {

constexpr uint64_t kMaxTextBytes = 1 << 20, kMaxJsonBytes = 16 << 20;

CaptionResult broken(const char* reason, const std::string& detail) { return {"", reason, detail, 0}; }

}  // namespace

CaptionResult read_caption(const Dataset& dataset, uint64_t id, const ShardSample& sample, const std::string& caption) {
  const bool json = caption != "txt";
  if (!json && is_conversation(dataset, sample)) {
    try {
      const ConversationSample read = read_conversation(dataset, id, sample);
      return {words_of(read.conversation), "", "", read.bytes_read};
    } catch (const BadSampleError& error) {
      return broken(error.reason().c_str(), error.detail());
    }
  }
  const auto* member = sample.find(json ? "json" : "txt");
  if (!member) return broken("no_caption", std::string("there is no .") + (json ? "json" : "txt"));
  if (member->size > (json ? kMaxJsonBytes : kMaxTextBytes))
    return broken("too_large", "its ." + std::string(member->extension) + " has " + std::to_string(member->size) + " bytes");
  std::string text;
  try {
    const std::vector<std::byte> bytes = dataset.read(id, *member);
    text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (json) {
      const auto document = parse_shallow_json(text);
      const nlohmann::json::json_pointer at(caption);
      if (!document.contains(at)) return broken("no_caption", "its .json has no " + caption);
      if (!document.at(at).is_string()) return broken("bad_json", caption + " is not a text");
      text = document.at(at).get<std::string>();
      if (text.size() > kMaxTextBytes) return broken("too_large", "its caption has more than 1 MiB");
    }
  } catch (const nlohmann::json::exception& error) {
    return broken("bad_json", error.what());
  } catch (const Error& error) {
    return broken("read_error", error.what());
  }
  const std::string_view trimmed = trim_caption(text);
  if (trimmed.empty()) return broken("empty_caption", "its caption is empty");
  std::string storage;
  if (valid_utf8(trimmed, storage).data() != trimmed.data()) return broken("bad_text", "its caption is not UTF-8");
  return {std::string(trimmed), "", "", member->size};
}

}  // namespace mso
