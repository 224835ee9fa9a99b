// Makes neighbours.mso: one parallel pass over the samples for categories and embeddings, then the exact search.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "io/category.h"
#include "io/dataset.h"
#include "io/embedder.h"

namespace mso {

struct NeighbourOptions {
  std::string category = "auto";  // mdp.healing.category
  std::string caption = "txt";    // data.caption
  int threads = 0;                // 0: all cores of the process
  bool half = true;               // embeddings stored as float16, else float32
  uint32_t kept = 8;              // neighbours stored: three, and spare ones for when some break too
  bool hide_category = false;     // search everything, for measurements
};

struct NeighbourSummary {
  uint64_t samples = 0, healthy = 0, with_media = 0, with_text = 0, categories = 0, bytes = 0;
  std::map<std::string, uint64_t> broken;  // reason → samples
};

// Writes `path` for the shards of `dataset`, in its order. Candidates are the healthy samples of the same category and of
// the same kind (io/modality.h), so that a replacement costs about what the broken sample did. The same data, embedder
// and options give the same bytes, on any number of threads. `progress(stage, done, total)` is called from this thread.
NeighbourSummary build_neighbours(const Dataset& dataset, const Embedder& embedder, const NeighbourOptions& options,
                                  const std::filesystem::path& path,
                                  const std::function<void(const char*, uint64_t, uint64_t)>& progress = {});

}  // namespace mso
