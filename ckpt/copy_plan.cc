#include "ckpt/copy_plan.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/error.h"

namespace mso {

namespace {

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// One slice of the target and how much of it has been found.
struct Wanted {
  const TensorSlice* slice;
  uint64_t found = 0;
};

}  // namespace

CopyPlan plan_copies(const std::vector<std::vector<BufferInfo>>& files,
                     const std::vector<TargetBuffer>& targets) {
  CopyPlan plan;
  plan.runs.resize(files.size());
  for (size_t t = 0; t < targets.size(); ++t) {
    const TargetBuffer& target = targets[t];
    std::vector<Wanted> wanted;
    std::unordered_map<std::string, std::vector<size_t>> by_name;
    for (const TensorSlice& slice : target.slices) {
      if (slice.begin > slice.end || slice.offset > target.count ||
          slice.end - slice.begin > target.count - slice.offset)
        throw Error("slice lies outside of its buffer",
                    "buffer '" + target.name + "' tensor '" + slice.name + "'");
      by_name[slice.name].push_back(wanted.size());
      wanted.push_back({&slice});
    }
    bool seen = false;
    for (size_t f = 0; f < files.size(); ++f) {
      for (size_t b = 0; b < files[f].size(); ++b) {
        const BufferInfo& source = files[f][b];
        if (source.name != target.name) continue;
        seen = true;
        if (source.dtype != target.dtype)
          throw Error("buffer has another type in the snapshot",
                      "'" + target.name + "' is " + name_of(source.dtype) + ", the model has " +
                          name_of(target.dtype));
        for (const TensorSlice& from : source.slices) {
          auto it = by_name.find(from.name);
          if (it == by_name.end()) continue;
          for (size_t w : it->second) {
            const TensorSlice& to = *wanted[w].slice;
            if (from.shape != to.shape)
              throw Error(
                  "tensor has another shape in the snapshot",
                  "'" + to.name + "' is " + text_of(from.shape) + ", the model has " + text_of(to.shape));
            const uint64_t begin = std::max(from.begin, to.begin), end = std::min(from.end, to.end);
            if (begin >= end) continue;
            plan.runs[f].push_back(
                {b, from.offset + (begin - from.begin), t, to.offset + (begin - to.begin), end - begin});
            wanted[w].found += end - begin;
          }
        }
      }
    }
    if (!seen) {
      if (target.required && target.count > 0)
        throw Error("buffer is missing in the snapshot", "'" + target.name + "'");
      plan.missing_buffers.push_back(target.name);
      continue;
    }
    for (const Wanted& w : wanted) {
      const uint64_t size = w.slice->end - w.slice->begin;
      if (w.found != size)
        throw Error(
            w.found == 0 ? "tensor is missing in the snapshot" : "tensor is not whole in the snapshot",
            "'" + w.slice->name + "' in buffer '" + target.name + "' (" + std::to_string(w.found) + " of " +
                std::to_string(size) + " elements of this rank's part)");
      plan.bytes += size * size_of(target.dtype);
    }
  }
  // In the file's order, and neighbours as one: fewer, longer reads.
  for (std::vector<CopyRun>& runs : plan.runs) {
    std::sort(runs.begin(), runs.end(), [](const CopyRun& a, const CopyRun& b) {
      return std::tie(a.source_buffer, a.source_offset) < std::tie(b.source_buffer, b.source_offset);
    });
    std::vector<CopyRun> joined;
    for (const CopyRun& run : runs) {
      if (!joined.empty()) {
        CopyRun& last = joined.back();
        if (last.source_buffer == run.source_buffer && last.target == run.target &&
            last.source_offset + last.count == run.source_offset &&
            last.target_offset + last.count == run.target_offset) {
          last.count += run.count;
          continue;
        }
      }
      joined.push_back(run);
    }
    runs = std::move(joined);
  }
  return plan;
}

void zero_padding(const TargetBuffer& target, const CopyPlan& plan) {
  char* const data = static_cast<char*>(target.data);
  const size_t unit = size_of(target.dtype);
  if (std::find(plan.missing_buffers.begin(), plan.missing_buffers.end(), target.name) !=
      plan.missing_buffers.end()) {
    if (target.count) std::memset(data, 0, target.count * unit);
    return;
  }
  std::vector<std::pair<uint64_t, uint64_t>> covered;
  for (const TensorSlice& s : target.slices) covered.emplace_back(s.offset, s.offset + (s.end - s.begin));
  std::sort(covered.begin(), covered.end());
  uint64_t at = 0;
  for (const auto& [begin, end] : covered) {
    if (begin > at) std::memset(data + at * unit, 0, (begin - at) * unit);
    at = std::max(at, end);
  }
  if (target.count > at) std::memset(data + at * unit, 0, (target.count - at) * unit);
}

}  // namespace mso
