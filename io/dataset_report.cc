#include "io/dataset_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/units.h"
#include "io/sample_content.h"

namespace mso {
namespace {

std::string padded(const std::string& text, size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

std::string category_of(const Dataset& dataset, uint64_t id, const ShardSample& sample) {
  if (const ShardMember* json = sample.find("json"); json && json->size <= (1 << 20)) {
    try {
      const std::vector<std::byte> bytes = dataset.read(id, *json);
      const auto document = parse_shallow_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      if (document.is_object() && document.contains("category") && document["category"].is_string())
        return document["category"].get<std::string>();
    } catch (const std::exception&) {  // statistics go on; verify names it
    }
  }
  const size_t slash = sample.key.rfind('/');
  return slash == std::string::npos ? "" : std::string(sample.key.substr(0, slash));
}

}  // namespace

void Histogram::add(uint64_t value) {
  size_t bin = static_cast<size_t>(std::upper_bound(edges.begin(), edges.end(), value) - edges.begin());
  ++counts[bin == 0 ? 0 : bin - 1];
}

std::string Histogram::text(const std::string& unit, size_t width) const {
  const uint64_t most = std::max<uint64_t>(1, *std::max_element(counts.begin(), counts.end()));
  std::string out;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    std::string range = i + 1 < edges.size() ? edges[i] + 1 == edges[i + 1] ? std::to_string(edges[i])
                                               : std::to_string(edges[i]) + "-" + std::to_string(edges[i + 1] - 1)
                                             : std::to_string(edges[i]) + "+";
    const size_t bar = std::max<size_t>(1, static_cast<size_t>(counts[i] * width / most));
    out += padded(range, 12) + " " + unit + padded(std::to_string(counts[i]), 10) + "  " + std::string(bar, '#') + "\n";
  }
  return out;
}

DatasetStatistics dataset_statistics(const Dataset& dataset, bool categories,
                                     const std::function<void(uint64_t, uint64_t)>& progress) {
  DatasetStatistics s;
  s.shards = dataset.shard_count();
  s.samples = dataset.size();
  for (uint32_t k = 0; k < dataset.shard_count(); ++k) {
    s.bytes += dataset.shard_index(k).tar_size();
    s.truncated_shards += !dataset.shard_index(k).end_mark();
  }
  for (uint64_t id = 0; id < dataset.size(); ++id) {
    if (progress && id % 256 == 0) progress(id, dataset.size());
    const ShardSample& sample = dataset.sample(id);
    uint64_t bytes = 0;
    for (const ShardMember& member : sample.members) {
      bytes += member.size;
      ++s.extensions[std::string(member.extension)];
      s.extension_bytes[std::string(member.extension)] += member.size;
    }
    s.sample_bytes.add(bytes);
    ++s.modalities[name_of(costliest_medium(sample))];
    s.merged += (sample.flags & kSampleMerged) != 0;
    const std::string reason = dataset.unusable_reason(id);
    if (!reason.empty()) ++s.unusable[reason];
    if (sample.picture()) {
      ++s.with_picture;
      if (sample.picture_width > 0 && sample.picture_height > 0) {
        s.longer_side.add(std::max(sample.picture_width, sample.picture_height));
        s.aspect.add((uint64_t{100} * sample.picture_width + sample.picture_height / 2) / sample.picture_height);
      }
    } else if (costliest_medium(sample) == Modality::kText && (sample.find("txt") || (sample.flags & kSampleConversation))) {
      ++s.text_only;
    }
    if (sample.find("txt") || (sample.flags & kSampleConversation)) s.caption_length.add(sample.text_code_points);
    if (sample.flags & kSampleConversation) {
      ++s.conversations;
      s.media_of_conversation.add(static_cast<uint64_t>(std::ranges::count_if(
          sample.members, [](const ShardMember& member) { return media_of_extension(member.extension).has_value(); })));
    }
    if (categories) ++s.categories[category_of(dataset, id, sample)];
  }
  if (progress) progress(dataset.size(), dataset.size());
  return s;
}

std::string to_text(const DatasetStatistics& s) {
  auto line = [](const std::string& name, const std::string& value) {
    return name + std::string(name.size() < 22 ? 22 - name.size() : 1, ' ') + value + "\n";
  };
  std::string out = line("shards", std::to_string(s.shards) + " (" + format_bytes(static_cast<double>(s.bytes)) + ")");
  out += line("samples", std::to_string(s.samples));
  out += line("  with picture", std::to_string(s.with_picture));
  out += line("  text only", std::to_string(s.text_only));
  if (s.conversations) out += line("  conversations", std::to_string(s.conversations));
  for (const auto& [modality, count] : s.modalities) out += line("  counted as " + modality, std::to_string(count));
  if (s.merged) out += line("  not adjacent", std::to_string(s.merged) + " (members joined by key)");
  for (const auto& [reason, count] : s.unusable) out += line("  unusable", std::to_string(count) + " " + reason);
  if (s.truncated_shards) out += line("truncated shards", std::to_string(s.truncated_shards));
  out += "\nmembers\n";
  for (const auto& [extension, count] : s.extensions)
    out += padded("." + extension, 12) + padded(std::to_string(count), 12) + "  " +
           format_bytes(static_cast<double>(s.extension_bytes.at(extension))) + "\n";
  if (s.with_picture) out += "\nlonger side of pictures\n" + s.longer_side.text("px");
  out += "\nlength of captions\n" + s.caption_length.text("characters");
  if (s.conversations) out += "\nmedia of a conversation\n" + s.media_of_conversation.text("files");
  if (!s.categories.empty()) {
    std::vector<std::pair<uint64_t, std::string>> largest;
    for (const auto& [name, count] : s.categories) largest.emplace_back(count, name.empty() ? "(none)" : name);
    std::sort(largest.begin(), largest.end(),
              [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
    out += "\ncategories (" + std::to_string(largest.size()) + ")\n";
    for (size_t i = 0; i < largest.size() && i < 30; ++i)
      out += padded(std::to_string(largest[i].first), 12) + "  " + largest[i].second + "\n";
    if (largest.size() > 30) out += "              … and " + std::to_string(largest.size() - 30) + " smaller ones\n";
  }
  return out;
}

}  // namespace mso
