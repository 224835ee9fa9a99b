// Start time and private memory of a data set with a large index (made up, the shards are holes): two processes open it,
// start a loader by a recipe, and look at every sample, as ranks of a node do. By hand: make index_bench &&
// ./index_bench FOLDER [SAMPLES] [SHARDS]
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "io/data_loader.h"
#include "io/dataset.h"
#include "io/index_file.h"
#include "io/tokenizer.h"

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// One line of /proc/self/smaps_rollup, in kB.
long memory_kb(const std::string& field) {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(field + ":")) return std::strtol(line.c_str() + field.size() + 1, nullptr, 10);
  return 0;
}

void make(const std::filesystem::path& folder, uint64_t samples, uint64_t shards) {
  mso::make_folders(folder);
  for (uint64_t shard = 0; shard < shards; ++shard) {
    char name[32];
    std::snprintf(name, sizeof name, "shard-%06llu.tar", static_cast<unsigned long long>(shard));
    const std::filesystem::path tar = folder / name;
    mso::IndexDraft index;
    const uint64_t from = samples * shard / shards, to = samples * (shard + 1) / shards;
    uint64_t at = 512;
    for (uint64_t id = from; id < to; ++id) {
      mso::SampleDraft sample;
      sample.key = "category-" + std::to_string(id % 100) + "/picture-" + std::to_string(id);
      sample.lineage.category = "category-" + std::to_string(id % 100);
      // Of ten samples seven have a picture, one a video, one a sound, and one is text.
      const char* media = id % 10 < 7 ? "jpg" : id % 10 == 7 ? "mp4" : id % 10 == 8 ? "ogg" : nullptr;
      for (const char* extension : {media, "json", "txt"}) {
        if (!extension) continue;
        sample.members.push_back({extension, at, 20000 + id % 1000});
        sample.modalities |= mso::modality_of_extension(extension);
        at += 21504;
      }
      sample.picture_width = 640;
      sample.picture_height = 480;
      sample.text_bytes = sample.text_code_points = 60;
      if (const uint8_t kind = media ? mso::modality_of_extension(media) : 0; kind == mso::kHasVideo || kind == mso::kHasAudio) {
        mso::MediaFactsDraft facts;
        facts.kind = kind;
        facts.codec = kind == mso::kHasVideo ? "h264" : "vorbis";
        facts.duration_us = 10'000'000 + id;
        facts.frames = kind == mso::kHasVideo ? 250 : 0;
        sample.media.push_back(std::move(facts));
      }
      index.samples.push_back(std::move(sample));
    }
    index.tar_size = at + 1024;
    mso::FileDescriptor fd = mso::open_file(tar, O_WRONLY | O_CREAT | O_TRUNC);
    if (::ftruncate(fd.get(), static_cast<off_t>(index.tar_size)) != 0) throw mso::system_error("cannot size", tar.string());
    struct stat info;
    if (::fstat(fd.get(), &info) != 0) throw mso::system_error("cannot stat", tar.string());
    index.tar_changed_ns = int64_t{1'000'000'000} * info.st_mtim.tv_sec + info.st_mtim.tv_nsec;
    std::ofstream(mso::index_path(tar), std::ios::binary) << index.serialize();
  }
}

// As training does, with a recipe, which needs to know of every sample what it is.
std::unique_ptr<mso::DataLoader> make_loader(const std::shared_ptr<const mso::Dataset>& data) {
  const std::shared_ptr<const mso::Tokenizer> tokenizer = mso::load_tokenizer("bytes");
  mso::PictureDecoder pictures;
  pictures.shape = {3, 224, 224};
  pictures.tokens = 196;
  mso::PerModality<mso::MediaDecoder> others;
  for (mso::Modality m : {mso::Modality::kVideo, mso::Modality::kAudio}) {
    others[m].token = -2 - static_cast<int64_t>(m);
    others[m].most_tokens = 196;
    others[m].decode = [](auto...) -> mso::ProcessedMedia { throw mso::Error("the shards are holes", "index_bench"); };
  }
  mso::AssemblerOptions options;
  options.text_template = "<image><video><audio>{caption}";
  options.image_token = -1;
  mso::DataLoaderOptions loading;
  loading.batch_samples = 32;
  loading.recipe[mso::Modality::kText] = 8;
  loading.recipe[mso::Modality::kImage] = 16;
  loading.recipe[mso::Modality::kVideo] = 4;
  loading.recipe[mso::Modality::kAudio] = 4;
  return std::make_unique<mso::DataLoader>(std::make_shared<mso::SampleAssembler>(data, tokenizer, pictures, options, others), loading);
}

// One rank. `ready` and `go`: pipes, so that all have everything mapped when memory is read.
void rank(const std::string& folder, int ready, int go) {
  const long before = memory_kb("Private_Dirty") + memory_kb("Private_Clean"), own_before = memory_kb("Anonymous");
  const auto begin = Clock::now();
  const auto data = mso::Dataset::open({folder});
  const double open_s = since(begin);
  const auto start = Clock::now();
  const auto loader = make_loader(data);
  const double loader_s = since(start);
  const long started = memory_kb("Anonymous");
  const auto plan = Clock::now();
  constexpr uint64_t kSteps = 100;
  uint64_t planned = 0;
  for (uint64_t step = 0; step < kSteps; ++step) planned += loader->global_batch(step * 997).ids.size();
  const double plan_s = since(plan);
  const auto touch = Clock::now();
  uint64_t members = 0;
  if (planned != 32 * kSteps) std::_Exit(1);
  for (uint64_t id = 0; id < data->size(); ++id) {
    const mso::ShardSample sample = data->sample(id);
    members += sample.members.size() + sample.media.size();
  }
  const double touch_s = since(touch);
  char byte = 'r';
  if (::write(ready, &byte, 1) != 1 || ::read(go, &byte, 1) != 1) std::_Exit(1);
  const long dirty = memory_kb("Private_Dirty"), clean = memory_kb("Private_Clean");
  std::printf("{\"samples\": %llu, \"members\": %llu, \"open_s\": %.3f, \"loader_s\": %.3f, \"plan_ms\": %.2f, \"start_private_kb_per_million\": %.0f, \"every_sample_s\": %.2f, \"private_kb\": %ld, "
              "\"private_dirty_kb\": %ld, \"private_kb_per_million\": %.0f, \"shared_kb\": %ld}\n",
              static_cast<unsigned long long>(data->size()), static_cast<unsigned long long>(members), open_s, loader_s, 1e3 * plan_s / kSteps,
              1e6 * static_cast<double>(started - own_before) / static_cast<double>(data->size()), touch_s,
              dirty + clean - before, dirty, 1e6 * static_cast<double>(dirty + clean - before) / static_cast<double>(data->size()),
              memory_kb("Shared_Clean"));
  std::fflush(stdout);
  if (::write(ready, &byte, 1) != 1 || ::read(go, &byte, 1) != 1) std::_Exit(1);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::cerr << "usage: index_bench FOLDER [SAMPLES=10000000] [SHARDS=1000]\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  const uint64_t samples = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 10'000'000;
  const uint64_t shards = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1000;
  if (!std::filesystem::exists(folder)) make(folder, samples, shards);
  constexpr int kRanks = 2;
  int ready[2], go[2];
  if (::pipe(ready) != 0 || ::pipe(go) != 0) return 1;
  for (int r = 0; r < kRanks; ++r)
    if (::fork() == 0) {
      rank(folder.string(), ready[1], go[0]);
      std::_Exit(0);
    }
  for (int round = 0; round < 2; ++round) {  // all have mapped; all have printed
    for (int r = 0; r < kRanks; ++r) {
      char byte;
      if (::read(ready[0], &byte, 1) != 1) return 1;
    }
    for (int r = 0; r < kRanks; ++r)
      if (::write(go[1], "g", 1) != 1) return 1;
  }
  int failed = 0, status = 0;
  while (::wait(&status) > 0) failed |= status;
  return failed != 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
