// What a data set holds (`mso data stat`).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "io/dataset.h"

namespace mso {

// Counts of values in ranges: bin i holds values in [edges[i], edges[i+1]), the last bin everything from its edge on.
struct Histogram {
  std::vector<uint64_t> edges, counts;
  explicit Histogram(std::vector<uint64_t> e) : edges(std::move(e)), counts(edges.size(), 0) {}
  void add(uint64_t value);
  // One line per bin that is not empty: range, count, bar of at most `width` characters.
  std::string text(const std::string& unit, size_t width = 40) const;
};

struct Share {
  uint64_t samples = 0, bytes = 0;
};

// Of the videos or the sounds of a data set, from their headers (ShardSample::media).
struct MediaStatistics {
  uint64_t files = 0, unreadable = 0, not_counted = 0, cut = 0;  // the last two: MediaFlag
  uint64_t total_us = 0;
  std::map<std::string, uint64_t> codecs;
  Histogram milliseconds{{0, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000, 1800000, 3600000}};
  // Of video.
  uint64_t with_sound = 0, turned = 0;
  Histogram longer_side{{0, 128, 256, 480, 640, 960, 1280, 1920, 2560, 3840, 7680}};  // pixels
  Histogram frames{{0, 1, 2, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384, 65536}};
  Histogram frame_rate{{0, 1, 10, 20, 24, 25, 26, 30, 31, 50, 60, 61, 120}};  // frames a second, rounded
  // Of sound: Hz → files, channels → files.
  std::map<uint64_t, uint64_t> sample_rates, channels;
};

struct DatasetStatistics {
  uint64_t shards = 0, samples = 0, bytes = 0;
  uint64_t with_picture = 0, text_only = 0, conversations = 0, merged = 0, truncated_shards = 0;
  std::map<std::string, uint64_t> unusable;    // reason → samples, as the index knows them
  std::map<std::string, uint64_t> extensions;  // members
  std::map<std::string, uint64_t> extension_bytes;
  std::map<std::string, Share> categories;     // as the index knows them: "category" of the .json, else the folder of the key
  // "text", "image", "video", "audio" → source as the index knows it ("": not named) → samples that hold such files, and
  // the bytes of these.
  std::map<std::string, std::map<std::string, Share>> sources;
  MediaStatistics video, sound;
  std::map<std::string, uint64_t> modalities;  // what samples count as (io/modality.h)
  Histogram longer_side{{0, 64, 128, 256, 512, 1024, 2048, 4096}};             // pixels
  // Characters, of a conversation those of all its turns.
  Histogram caption_length{{0, 1, 8, 16, 32, 64, 128, 256, 512, 1024, 4096}};
  Histogram media_of_conversation{{0, 1, 2, 3, 4, 5, 8, 16}};  // files
  Histogram aspect{{0, 26, 51, 67, 80, 95, 106, 126, 151, 200, 401}};           // 100 · width / height
  Histogram sample_bytes{{0, 1000, 3000, 10000, 30000, 100000, 300000, 1000000, 3000000, 10000000, 100000000}};
};

// From the indexes alone.
DatasetStatistics dataset_statistics(const Dataset& dataset, bool categories = true,
                                     const std::function<void(uint64_t, uint64_t)>& progress = {});
std::string to_text(const DatasetStatistics& statistics);
// The same for programs. Histograms: [[first value of the range, count], …] of ranges that are not empty.
nlohmann::ordered_json to_json(const DatasetStatistics& statistics);
// True where a sample names a source of this kind.
bool names_sources(const std::map<std::string, Share>& sources);

}  // namespace mso
