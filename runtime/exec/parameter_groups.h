// Which learning rate and weight decay each parameter gets: rules by stage or name pattern. Pure.
#pragma once

#include <string>
#include <vector>

#include "comm/flat_layout.h"

namespace mso {

// Later rules win. `match` is a stage name or a glob over parameter names (fnmatch(3): *, ?, [abc]).
struct ParameterGroupRule {
  std::string match;
  double learning_rate_scale = 1.0;
  double weight_decay = -1;  // < 0: leave as it is
};

struct ParameterSettings {
  double learning_rate_scale = 1.0;
  double weight_decay = 0.0;
  bool operator==(const ParameterSettings&) const = default;
};

// Norms and biases (parameters of one dimension) and class embeddings are not decayed unless a rule says so.
// Error(kBadUsage) for a rule that matches no parameter: a typing mistake would go unnoticed otherwise.
std::vector<ParameterSettings> parameter_settings(const FlatLayout& layout, double weight_decay,
                                                  const std::vector<ParameterGroupRule>& rules);

// A run of a shard whose elements share one setting.
struct ShardSegment {
  size_t bucket = 0;
  size_t shard_offset = 0, count = 0;
  ParameterSettings settings;
};
// Cuts a shard into segments, in order and without gaps (padding goes with the tensor before it; its
// gradient, state and weight are zero and stay so). No segment crosses a bucket.
std::vector<ShardSegment> segments_of_shard(const FlatLayout& layout, const Shard& shard,
                                            const std::vector<ParameterSettings>& settings);

}  // namespace mso
