// Packs a folder of captioned pictures, or existing tars anew, into shards (`mso data pack`).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "io/shard_writer.h"

namespace mso {

struct PackOptions {
  ShardLimits limits;
  int quality = 90;             // of the JPEGs, 1–100
  int threads = 0;              // 0: all cores of the process
  bool all_captions = true;     // .json holds the captions of all languages, else the English one
  bool every_language = false;  // one sample per picture and language, each with its own copy of the JPEG
  bool shuffle = true;          // false: by path; neighbours are then alike, and so are the samples of a shard
};

struct PackSummary {
  uint64_t pictures = 0, samples = 0, shards = 0, bytes = 0, with_speech = 0;
  std::map<std::string, uint64_t> languages;                // language → captions
  std::map<std::string, std::vector<std::string>> skipped;  // reason → source paths ("decode_error": "path: why")
};

// Each sample: KEY.jpg (composited on white), KEY.txt (its caption), KEY.json {source, image_source, text_source,
// audio_source, category, language, width, height, captions}, KEY.ogg (spoken English caption, where there is one). KEY is the running number of the sample.
//
// The same source and options give the same bytes, on any number of threads. By default pictures come in the order of a
// keyed permutation with a fixed key, so that every shard, held-out ones too, is a fair draw; all languages of a picture
// stay together. Everything is written to `OUT.partial` and renamed when it is whole; an OUT from an earlier run is
// replaced, anything else in its place is an Error (kBadUsage) and stays as it is. `progress(done, total)` is called from
// the calling thread.
PackSummary pack_folder(const std::filesystem::path& source, const std::filesystem::path& out,
                        const PackOptions& options, const std::function<void(uint64_t, uint64_t)>& progress = {});

// Packs the samples of existing shards (folders of them, or .tar files) anew: into shards of other sizes, several sets
// into one, in the fixed shuffled order or as they come. Members stay as they are, byte by byte, and so do keys, but where
// two are the same: then the later ones get "-2", "-3" … What the index rules out is left out and named. Otherwise as
// pack_folder().
PackSummary repack_shards(const std::vector<std::string>& sources, const std::filesystem::path& out,
                          const PackOptions& options, const std::function<void(uint64_t, uint64_t)>& progress = {});

}  // namespace mso
