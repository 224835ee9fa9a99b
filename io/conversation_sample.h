// A conversation as a sample of a shard: its .json, and the members that are its media.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "io/conversation.h"
#include "io/dataset.h"
#include "io/modality.h"

namespace mso {

Modality modality_of(MediaKind kind);

// {bytes, code points} of what the turns say, from a parsed entry, however wrong it is; for estimates.
std::pair<uint32_t, uint32_t> size_of_conversation(const nlohmann::json& entry);

// Whether the sample is a conversation: it has a .json and no .txt, and the index found `conversations` or `messages` in it,
// or in others of the data set (then a .json without any is a broken conversation).
bool is_conversation(const Dataset& dataset, const ShardSample& sample);

struct ConversationSample {
  Conversation conversation;
  std::vector<const ShardMember*> media;  // of the sample, in the order of Conversation::media()
  uint64_t bytes_read = 0;                // of the .json
};

// Reads the entry and finds its media: a file is the member with that extension, as io/conversation_packer.h writes it. In
// shards of others, where of a kind none of the files is a member and there are as many members as files, these are taken
// in their order in the shard.
// Throws BadSampleError: as parse_conversation(), read_error, and missing_media for a file without member and for a picture,
// video or sound that no turn has a mark for.
ConversationSample read_conversation(const Dataset& dataset, uint64_t id, const ShardSample& sample);

// What the turns say, one a line.
std::string words_of(const Conversation& conversation);

}  // namespace mso
