// Every rank's JSON value, for the small lists ranks tell each other in recovery. Binary on the way
// (MessagePack), so that texts that are not UTF-8 arrive as they are.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace mso {

inline std::vector<nlohmann::json> all_gather_json(Communicator& group, const nlohmann::json& mine,
                                                   double timeout_s) {
  std::string packed;
  nlohmann::json::to_msgpack(mine, packed);
  std::vector<nlohmann::json> all;
  for (const std::string& text : all_gather_text(group, packed, timeout_s))
    all.push_back(nlohmann::json::from_msgpack(text));
  return all;
}

}  // namespace mso
