#include "io/neighbour_builder.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "io/half.h"
#include "io/neighbour_file.h"
#include "io/neighbours.h"
#include "io/sample_content.h"
#include "node/cpu_list.h"

namespace mso {
namespace {

constexpr size_t kBatch = 16;  // samples embedded at once

using Progress = std::function<void(const char*, uint64_t, uint64_t)>;

// Tells how far `work` is while it runs in a thread of its own. What it throws is thrown here.
template <typename Work>
void run_with_progress(const char* stage, uint64_t total, const Progress& progress, std::atomic<uint64_t>& done,
                       Work work) {
  std::exception_ptr failure;
  std::atomic<bool> ended = false;
  {
    std::jthread worker([&] {
      try {
        work();
      } catch (...) {
        failure = std::current_exception();
      }
      ended = true;
    });
    while (progress && !ended) {
      progress(stage, done, total);
      for (int i = 0; i < 10 && !ended; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  if (failure) std::rethrow_exception(failure);
  if (progress) progress(stage, total, total);
}

// A row as it is stored: each part times the root of its share where both are there, alone as it is.
void store_row(const float* row, const Embedder& embedder, bool half, std::span<std::byte> out, uint8_t* parts) {
  const int media = embedder.media_size(), text = embedder.text_size();
  auto any = [](const float* from, int count) { return std::any_of(from, from + count, [](float v) { return v != 0; }); };
  *parts = static_cast<uint8_t>((any(row, media) ? kMediaPart : 0) | (any(row + media, text) ? kTextPart : 0));
  const bool both = *parts == (kMediaPart | kTextPart);
  const float media_scale = both ? static_cast<float>(std::sqrt(embedder.media_share())) : 1;
  const float text_scale = both ? static_cast<float>(std::sqrt(1 - embedder.media_share())) : 1;
  for (int i = 0; i < media + text; ++i) {
    const float value = row[i] * (i < media ? media_scale : text_scale);
    if (half) {
      const uint16_t bits = to_half(value);
      std::memcpy(out.data() + static_cast<size_t>(i) * 2, &bits, 2);
    } else {
      std::memcpy(out.data() + static_cast<size_t>(i) * 4, &value, 4);
    }
  }
}

// Groups of samples that may replace each other, each split by what its queries are compared by.
std::vector<SearchGroup> search_groups(std::span<const uint32_t> categories, std::span<const uint8_t> states,
                                       bool hide_category) {
  std::map<std::pair<uint32_t, int>, std::vector<uint32_t>> members;
  for (uint32_t row = 0; row < states.size(); ++row)
    members[{hide_category ? 0 : categories[row], states[row] >> kModalityShift}].push_back(row);
  std::vector<SearchGroup> groups;
  for (const auto& [key, rows] : members) {
    std::vector<uint32_t> healthy;
    for (uint32_t row : rows)
      if ((states[row] & kHealthy) != 0) healthy.push_back(row);
    for (uint8_t parts : {kMediaPart | kTextPart, static_cast<int>(kMediaPart), static_cast<int>(kTextPart)}) {
      SearchGroup group;
      group.parts = parts;
      for (uint32_t row : rows)
        if ((states[row] & (kMediaPart | kTextPart)) == parts) group.queries.push_back(row);
      if (group.queries.empty() || healthy.empty()) continue;
      group.candidates = healthy;
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

}  // namespace

NeighbourSummary build_neighbours(const Dataset& dataset, const Embedder& embedder, const NeighbourOptions& options,
                                  const std::filesystem::path& path, const Progress& progress) {
  const CategoryRule rule(options.category);
  const int threads = options.threads > 0 ? options.threads : usable_cores();
  const uint64_t samples = dataset.size();
  NeighbourSummary summary;
  summary.samples = samples;
  std::atomic<uint64_t> done = 0;

  // Categories first: the file begins with their names.
  std::vector<std::string> names(samples);
  run_with_progress("reading categories", samples, progress, done, [&] {
    std::atomic<uint64_t> next = 0;
    std::vector<std::jthread> workers;
    for (int t = 0; t < threads; ++t)
      workers.emplace_back([&] {
        for (uint64_t id; (id = next++) < samples; ++done) names[id] = rule.of(dataset, id);
      });
  });
  NeighbourAbout about;
  about.embedder = embedder.name();
  about.category_rule = options.hide_category ? "hidden" : rule.text();  // training takes no file of hidden ones
  about.caption = options.caption;
  about.media_share = embedder.media_share();
  {
    const std::set<std::string> sorted(names.begin(), names.end());
    about.categories.assign(sorted.begin(), sorted.end());
  }
  summary.categories = about.categories.size();
  about.shards = shards_of(dataset);

  NeighbourLayout layout;
  layout.rows = samples;
  layout.media_size = static_cast<uint32_t>(embedder.media_size());
  layout.text_size = static_cast<uint32_t>(embedder.text_size());
  layout.half = options.half;
  layout.kept = options.kept;
  NeighbourWriter writer(path, about, layout);
  const std::span<uint32_t> categories = writer.categories();
  const std::span<uint8_t> states = writer.states();
  for (uint64_t id = 0; id < samples; ++id)
    categories[id] = static_cast<uint32_t>(
        std::lower_bound(about.categories.begin(), about.categories.end(), names[id]) - about.categories.begin());
  names = {};

  std::mutex mutex;
  std::exception_ptr failure;
  done = 0;
  run_with_progress("describing samples", samples, progress, done, [&] {
    std::atomic<uint64_t> next = 0;
    std::vector<std::jthread> workers;
    for (int t = 0; t < threads; ++t)
      workers.emplace_back([&] {
        const size_t row_size = static_cast<size_t>(embedder.media_size() + embedder.text_size());
        std::vector<SampleContent> contents;
        std::vector<ReadContent> reads;
        std::vector<float> rows(kBatch * row_size);
        try {
          for (uint64_t first; (first = kBatch * next++) < samples;) {
            const uint64_t count = std::min<uint64_t>(kBatch, samples - first);
            contents.clear();
            reads.clear();
            for (uint64_t i = 0; i < count; ++i) {
              reads.push_back(read_content(dataset, first + i, options.caption, embedder));
              contents.push_back(std::move(reads.back().content));
            }
            embedder.embed(contents, rows.data());
            for (uint64_t i = 0; i < count; ++i) {
              uint8_t parts = 0;
              store_row(rows.data() + i * row_size, embedder, options.half, writer.embedding(first + i), &parts);
              const bool healthy = reads[i].reason.empty();
              states[first + i] = static_cast<uint8_t>(parts | (healthy ? kHealthy : 0) |
                                                       (static_cast<int>(reads[i].modality) << kModalityShift));
            }
            {
              std::lock_guard lock(mutex);
              for (const ReadContent& read : reads)
                if (!read.reason.empty()) ++summary.broken[read.reason];
            }
            done += count;
          }
        } catch (...) {  // of the embedder: nothing that one sample holds
          std::lock_guard lock(mutex);
          failure = std::current_exception();
          next = samples / kBatch + 1;
        }
      });
  });
  if (failure) std::rethrow_exception(failure);
  for (uint8_t state : states) {
    summary.healthy += (state & kHealthy) != 0;
    summary.with_media += (state & kMediaPart) != 0;
    summary.with_text += (state & kTextPart) != 0;
  }

  for (uint64_t row = 0; row < samples; ++row) std::ranges::fill(writer.neighbours(row), kNoRow);
  const std::vector<SearchGroup> groups = search_groups(categories, states, options.hide_category);
  uint64_t queries = 0;
  for (const SearchGroup& group : groups) queries += group.queries.size();
  done = 0;
  run_with_progress("searching neighbours", queries, progress, done, [&] {
    search_neighbours(writer.table(), groups, options.kept, threads,
                      [&](uint32_t row, std::span<const FoundNeighbour> found) {
                        for (size_t i = 0; i < found.size(); ++i) {
                          writer.neighbours(row)[i] = found[i].row;
                          writer.similarities(row)[i] = found[i].similarity;
                        }
                      },
                      &done);
  });
  writer.finish();
  summary.bytes = std::filesystem::file_size(path);
  return summary;
}

}  // namespace mso
