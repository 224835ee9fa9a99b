#include "exec/parameter_groups.h"

#include <fnmatch.h>

#include <algorithm>

#include "base/error.h"

namespace mso {

std::vector<ParameterSettings> parameter_settings(const FlatLayout& layout, double weight_decay,
                                                  const std::vector<ParameterGroupRule>& rules) {
  std::vector<ParameterSettings> settings(layout.tensors.size());
  for (size_t i = 0; i < settings.size(); ++i)
    settings[i].weight_decay = layout.tensors[i].shape.size() >= 2 ? weight_decay : 0.0;
  for (const ParameterGroupRule& rule : rules) {
    bool used = false;
    for (size_t i = 0; i < settings.size(); ++i) {
      const FlatTensor& tensor = layout.tensors[i];
      if (tensor.stage != rule.match && ::fnmatch(rule.match.c_str(), tensor.name.c_str(), 0) != 0) continue;
      used = true;
      settings[i].learning_rate_scale = rule.learning_rate_scale;
      if (rule.weight_decay >= 0) settings[i].weight_decay = rule.weight_decay;
    }
    if (!used)
      throw Error("train.groups: no trainable parameter or stage matches", rule.match,
                  "`mso plan` lists the stages; parameter names are those of the Hugging Face hub",
                  ExitCode::kBadUsage);
  }
  return settings;
}

std::vector<ShardSegment> segments_of_shard(const FlatLayout& layout, const Shard& shard,
                                            const std::vector<ParameterSettings>& settings) {
  std::vector<ShardSegment> segments;
  for (const ShardPiece& piece : shard.pieces) {
    const size_t piece_end = piece.flat_offset + piece.count;
    size_t at = piece.flat_offset;
    auto it = std::upper_bound(layout.tensors.begin(), layout.tensors.end(), at,
                               [](size_t offset, const FlatTensor& t) { return offset < t.offset; });
    size_t tensor = static_cast<size_t>(it - layout.tensors.begin()) - 1;
    while (at < piece_end) {
      size_t tensor_end = tensor + 1 < layout.tensors.size() ? layout.tensors[tensor + 1].offset : layout.size;
      size_t end = std::min(tensor_end, piece_end);
      size_t shard_offset = piece.shard_offset + (at - piece.flat_offset);
      ShardSegment* last = segments.empty() ? nullptr : &segments.back();
      if (last && last->bucket == piece.bucket && last->settings == settings[tensor])
        last->count += end - at;
      else
        segments.push_back({piece.bucket, shard_offset, end - at, settings[tensor]});
      at = end;
      ++tensor;
    }
  }
  return segments;
}

}  // namespace mso
