// Packs a file of conversations and the media it names into shards (`mso data pack chat.json shards`).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/conversation.h"
#include "io/shard_writer.h"

namespace mso {

struct ConversationPackOptions {
  ShardLimits limits;
  std::filesystem::path media;  // folder the files are relative to; empty: that of the conversations
  int threads = 0;              // 0: all cores of the process
  bool shuffle = true;          // false: in the order of the file
};

struct ConversationPackSummary {
  uint64_t samples = 0, shards = 0, bytes = 0;
  std::map<std::string, uint64_t> media;                      // "image", "video", "audio" → members
  std::map<std::string, std::vector<std::string>> skipped;    // reason → "file line 7 (id x): what is wrong", sorted
};

// Extensions of the members that hold an entry's media, in the order of Conversation::media(): the first of each kind has
// its file's ("jpg", "mp4"; "image" where that is none of letters and digits, or is taken), further ones stand as
// "image1.jpg", "image2.png", "video1.mp4".
std::vector<std::string> member_names(const std::vector<MediumRef>& media);

// The file of a medium below `folder`; "file://" is taken off. Throws BadSampleError: "outside_folder" for a path that
// leads out of it, "web_address".
std::filesystem::path media_path(const std::filesystem::path& folder, const std::string& file);

// Each sample: KEY.json, the entry with its files' names replaced by the extensions of the members (member_names()), and
// the media themselves, byte for byte. KEY is the running number. Pictures are decoded to see that they can be. An entry
// that is malformed, or one of whose files is missing (reason "missing_file") or no picture (decode_error), is skipped.
// The same input gives the same bytes, on any number of threads; order, replacing and progress as pack_folder().
ConversationPackSummary pack_conversations(const std::filesystem::path& conversations, const std::filesystem::path& out,
                                           const ConversationPackOptions& options,
                                           const std::function<void(uint64_t, uint64_t)>& progress = {});

}  // namespace mso
