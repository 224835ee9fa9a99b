#include "io/dataset_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "io/run_lineage.h"
#include "io/sample_content.h"

namespace mso {
namespace {

std::string padded(const std::string& text, size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

void count_media(const ShardSample& sample, DatasetStatistics* s) {
  for (const MediaFacts& facts : sample.media) {
    if (facts.kind == kHasImage) {
      if (facts.width > 0) s->longer_side.add(std::max(facts.width, facts.height));
      continue;
    }
    const bool video = facts.kind == kHasVideo;
    MediaStatistics& m = video ? s->video : s->sound;
    ++m.files;
    if (facts.flags & kMediaUnreadable) {
      ++m.unreadable;
      continue;
    }
    m.not_counted += (facts.flags & kMediaNotCounted) != 0;
    m.cut += (facts.flags & kMediaCut) != 0;
    ++m.codecs[std::string(facts.codec)];
    m.total_us += facts.duration_us;
    if (facts.duration_us > 0 || !(facts.flags & kMediaNotCounted)) m.milliseconds.add((facts.duration_us + 500) / 1000);
    if (video) {
      m.with_sound += (facts.flags & kMediaWithSound) != 0;
      m.turned += facts.rotation != 0;
      if (facts.width > 0) m.longer_side.add(std::max(facts.width, facts.height));
      if (!(facts.flags & kMediaNotCounted)) m.frames.add(facts.frames);
      if (facts.millihertz > 0) m.frame_rate.add((uint64_t{facts.millihertz} + 500) / 1000);
    } else {
      ++m.sample_rates[facts.sample_rate];
      ++m.channels[facts.channels];
    }
  }
}

void count_sources(const ShardSample& sample, DatasetStatistics* s) {
  for (const SourceOfKind& of : sources_of(sample)) {
    Share& share = s->sources[of.kind][std::string(of.source)];
    ++share.samples;
    for (const ShardMember& member : sample.members)
      if (modality_of_extension(member.extension) == of.bit) share.bytes += member.size;
  }
}

std::string seconds_text(uint64_t us) {
  const double seconds = static_cast<double>(us) / 1e6;
  char text[64];
  if (seconds < 600)
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  else
    std::snprintf(text, sizeof text, "%.2f h", seconds / 3600);
  return text;
}

nlohmann::ordered_json bins(const Histogram& histogram) {
  auto list = nlohmann::ordered_json::array();
  for (size_t i = 0; i < histogram.counts.size(); ++i)
    if (histogram.counts[i] > 0) list.push_back({histogram.edges[i], histogram.counts[i]});
  return list;
}

nlohmann::ordered_json shares(const std::map<std::string, Share>& of) {
  auto json = nlohmann::ordered_json::object();
  for (const auto& [name, share] : of) json[name] = {{"samples", share.samples}, {"bytes", share.bytes}};
  return json;
}

nlohmann::ordered_json media_json(const MediaStatistics& m, bool video) {
  nlohmann::ordered_json json = {{"files", m.files}, {"unreadable", m.unreadable}, {"not_counted", m.not_counted}, {"cut", m.cut},
                                 {"seconds", static_cast<double>(m.total_us) / 1e6}, {"codecs", m.codecs},
                                 {"milliseconds", bins(m.milliseconds)}};
  if (video) {
    json["with_sound"] = m.with_sound;
    json["turned"] = m.turned;
    json["longer_side"] = bins(m.longer_side);
    json["frames"] = bins(m.frames);
    json["frame_rate"] = bins(m.frame_rate);
    return json;
  }
  for (const auto& [name, of] : {std::pair("sample_rates", &m.sample_rates), std::pair("channels", &m.channels)}) {
    json[name] = nlohmann::ordered_json::array();
    for (const auto& [value, count] : *of) json[name].push_back({value, count});
  }
  return json;
}

std::string media_text(const MediaStatistics& m, bool video) {
  if (m.files == 0) return "";
  const std::string name = video ? "videos" : "sounds";
  std::string out = "\n" + name + " (" + std::to_string(m.files) + ", " + seconds_text(m.total_us) + ")\n";
  auto count = [&](uint64_t n, const std::string& what) {
    if (n > 0) out += padded(std::to_string(n), 12) + "  " + what + "\n";
  };
  for (const auto& [codec, n] : m.codecs) count(n, codec);
  for (const auto& [rate, n] : m.sample_rates) count(n, std::to_string(rate) + " Hz");
  for (const auto& [channels, n] : m.channels) count(n, std::to_string(channels) + (channels == 1 ? " channel" : " channels"));
  count(m.with_sound, "with a sound track");
  count(m.turned, "turned by their container");
  count(m.unreadable, "with a header that cannot be read (mso data verify looks inside)");
  count(m.cut, "cut off: frames that the header lists are not there");
  count(m.not_counted, "not counted, as they are large: mso data index --count-frames reads them");
  out += "\nlength of " + name + "\n" + m.milliseconds.text("ms");
  if (!video) return out;
  out += "\nlonger side of videos\n" + m.longer_side.text("px");
  out += "\nframes of videos\n" + m.frames.text("frames");
  return out + "\nframe rate of videos\n" + m.frame_rate.text("frames/s");
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
    count_media(sample, &s);
    count_sources(sample, &s);
    if (categories) {
      Share& share = s.categories[std::string(sample.lineage.category)];
      ++share.samples;
      share.bytes += bytes;
    }
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
  out += media_text(s.video, true) + media_text(s.sound, false);
  auto list = [&](const std::string& title, const std::map<std::string, Share>& of, const char* none) {
    std::vector<std::pair<Share, std::string>> largest;
    for (const auto& [name, share] : of) largest.emplace_back(share, name.empty() ? none : name);
    std::ranges::sort(largest, [](const auto& a, const auto& b) {
      return a.first.samples != b.first.samples ? a.first.samples > b.first.samples : a.second < b.second;
    });
    out += "\n" + title + " (" + std::to_string(largest.size()) + ")\n";
    for (size_t i = 0; i < largest.size() && i < 30; ++i)
      out += padded(std::to_string(largest[i].first.samples), 12) + padded(format_bytes(static_cast<double>(largest[i].first.bytes)), 12) +
             "  " + largest[i].second + "\n";
    if (largest.size() > 30) out += "              … and " + std::to_string(largest.size() - 30) + " smaller ones\n";
  };
  for (const auto& [kind, sources] : s.sources)
    if (names_sources(sources)) list("sources of " + kind, sources, "(not named)");
  if (!s.categories.empty()) list("categories", s.categories, "(none)");
  return out;
}

bool names_sources(const std::map<std::string, Share>& sources) {
  return sources.size() > 1 || (sources.size() == 1 && !sources.begin()->first.empty());
}

nlohmann::ordered_json to_json(const DatasetStatistics& s) {
  nlohmann::ordered_json json = {{"shards", s.shards}, {"samples", s.samples}, {"bytes", s.bytes},
                                 {"with_picture", s.with_picture}, {"text_only", s.text_only},
                                 {"conversations", s.conversations}, {"not_adjacent", s.merged},
                                 {"truncated_shards", s.truncated_shards}, {"unusable", s.unusable},
                                 {"modalities", s.modalities}};
  json["members"] = nlohmann::ordered_json::object();
  for (const auto& [extension, count] : s.extensions)
    json["members"][extension] = {{"files", count}, {"bytes", s.extension_bytes.at(extension)}};
  json["categories"] = shares(s.categories);
  json["sources"] = nlohmann::ordered_json::object();
  for (const auto& [kind, sources] : s.sources) json["sources"][kind] = shares(sources);
  json["pictures"] = {{"longer_side", bins(s.longer_side)}, {"aspect", bins(s.aspect)}};
  json["caption_length"] = bins(s.caption_length);
  json["media_of_conversation"] = bins(s.media_of_conversation);
  json["sample_bytes"] = bins(s.sample_bytes);
  json["video"] = media_json(s.video, true);
  json["sound"] = media_json(s.sound, false);
  return json;
}

}  // namespace mso
