#include "io/shard_packer.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>
#include <unordered_set>

#include "base/error.h"
#include "base/file.h"
#include "base/partial_folder.h"
#include "base/random.h"
#include "io/dataset.h"
#include "io/dataset_manifest.h"
#include "io/image.h"
#include "io/neighbour_file.h"
#include "io/picture_folder.h"

namespace mso {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kMaxSourceFile = uint64_t{512} << 20;
constexpr uint64_t kShuffleKey = 0x7061636b;  // never change: shards would come out differently

int cores_of_process() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

bool is_shard_file(const std::string& name) {
  if (name == kDatasetManifest || name == kNeighbourFile) return true;  // the latter of `mso data index --embed`
  if (name.size() != 16 || !name.starts_with("shard-")) return false;
  if (!name.ends_with(".tar") && !name.ends_with(".idx")) return false;
  return std::all_of(name.begin() + 6, name.begin() + 12, [](char c) { return c >= '0' && c <= '9'; });
}

// Error unless the folder is missing or holds nothing but what pack_folder() writes.
void check_own_folder(const fs::path& folder, bool may_be_unfinished) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(folder, error))) return;
  if (!fs::is_directory(folder, error))
    throw Error("would overwrite", folder.string() + " is no folder", "choose another name", ExitCode::kBadUsage);
  bool any = false;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    any = true;
    const size_t tmp = name.find(".tmp");
    if (may_be_unfinished && tmp != std::string::npos) name.resize(tmp);
    if (!is_shard_file(name))
      throw Error("would overwrite a folder with other files in it", entry.path().string(),
                  "choose another folder, or remove what is in this one", ExitCode::kBadUsage);
  }
  if (any && !may_be_unfinished &&
      (!fs::exists(folder / kDatasetManifest, error) ||
       read_file(folder / kDatasetManifest, 64 << 20).find("\"made_by\": \"mso data pack\"") == std::string::npos))
    throw Error("would overwrite shards that were not made by `mso data pack`", folder.string(),
                "choose another folder, or remove this one", ExitCode::kBadUsage);
}

// A picture ready to be written, or why not.
struct Encoded {
  std::string jpeg, speech, failure;
  int width = 0, height = 0;
};

Encoded encode(const fs::path& source, const CaptionedPicture& picture, int quality) {
  Encoded encoded;
  try {
    const std::string file = read_file(source / picture.picture, kMaxSourceFile);
    const Image image =
        decode_image({reinterpret_cast<const std::byte*>(file.data()), file.size()}, picture.picture, {.exact = true});
    const std::vector<std::byte> jpeg = encode_jpeg(image, quality);
    encoded.jpeg.assign(reinterpret_cast<const char*>(jpeg.data()), jpeg.size());
    encoded.width = image.width;
    encoded.height = image.height;
    if (!picture.speech.empty()) encoded.speech = read_file(source / picture.speech, kMaxSourceFile);
  } catch (const Error& error) {
    encoded.failure = error.what();
  }
  return encoded;
}

std::string metadata(const CaptionedPicture& picture, const Encoded& encoded, const std::string& language,
                     const PackOptions& options) {
  nlohmann::ordered_json json;
  json["source"] = picture.picture;
  // Lineage, which the index takes over (io/shard_index.h).
  json["image_source"] = picture.picture;
  json["text_source"] = fs::path(picture.picture).replace_extension(".txt").string();
  if (!picture.speech.empty()) json["audio_source"] = picture.speech;
  json["category"] = picture.category;
  json["language"] = language;
  json["width"] = encoded.width;
  json["height"] = encoded.height;
  nlohmann::ordered_json captions = nlohmann::ordered_json::object();
  for (const auto& [code, caption] : picture.captions)
    if (options.every_language ? code == language : options.all_captions || code == "en") captions[code] = caption;
  json["captions"] = captions;
  // File names may be any bytes.
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// The folder to be made, by its plain name; Error where it must not be replaced.
fs::path check_target(const fs::path& out_given, const PackOptions& options) {
  if (options.limits.samples == 0 || options.limits.bytes == 0)
    throw Error("a shard must hold at least one sample", "limits of a shard", "", ExitCode::kBadUsage);
  fs::path out = out_given.lexically_normal();
  if (!out.has_filename()) out = out.parent_path();  // "shards/"
  if (out.empty() || out == "." || out == "..")
    throw Error("cannot replace this folder", out_given.string(), "give the name of a new one", ExitCode::kBadUsage);
  check_own_folder(out, false);
  return out;
}

PartialFolder partial_folder_of(const fs::path& out) {
  return PartialFolder(out, [](std::string name) {
    if (const size_t tmp = name.find(".tmp"); tmp != std::string::npos) name.resize(tmp);
    return is_shard_file(name);
  });
}

// Writes the list of shards, and puts the whole folder in place of an older one.
void publish(const fs::path& out, PartialFolder& partial, ShardWriter& writer, nlohmann::ordered_json more,
             PackSummary* summary) {
  summary->samples = writer.samples();
  summary->shards = writer.shards();
  summary->bytes = writer.bytes();
  for (auto& [reason, paths] : summary->skipped) std::sort(paths.begin(), paths.end());
  nlohmann::ordered_json manifest;
  manifest["made_by"] = "mso data pack";
  manifest["pictures"] = summary->pictures;
  manifest["samples"] = summary->samples;
  manifest["shards"] = summary->shards;
  manifest["files"] = nlohmann::ordered_json::array();
  for (const ListedShard& shard : writer.closed())
    manifest["files"].push_back({{"name", shard.name}, {"bytes", *shard.bytes}, {"samples", *shard.samples}});
  manifest.update(more);
  for (const auto& [reason, paths] : summary->skipped) manifest["skipped"][reason] = paths.size();
  write_file_durably(partial.path() / kDatasetManifest, manifest.dump(2) + "\n");

  // A crash between the two renames leaves the old shards under .old and the new ones under .partial: nothing is lost.
  fs::path old = out;
  old += ".old";
  std::error_code error;
  if (fs::exists(out, error)) {
    check_own_folder(old, true);
    fs::remove_all(old);
    rename_path(out, old);
  }
  partial.publish();
  fs::remove_all(old, error);
}

}  // namespace

PackSummary pack_folder(const fs::path& source, const fs::path& out_given, const PackOptions& options,
                        const std::function<void(uint64_t, uint64_t)>& progress) {
  if (options.quality < 1 || options.quality > 100)
    throw Error("quality out of range", std::to_string(options.quality), "1 to 100", ExitCode::kBadUsage);
  const fs::path out = check_target(out_given, options);
  PictureFolder folder = scan_picture_folder(source);
  if (folder.pictures.empty())
    throw Error("nothing to pack", source.string() + " has no picture with a caption",
                "captions stand beside pictures: cat.png and cat.txt", ExitCode::kBadData);

  PartialFolder partial = partial_folder_of(out);
  PackSummary summary;
  summary.skipped = std::move(folder.skipped);
  const std::vector<CaptionedPicture>& pictures = folder.pictures;
  const KeyedPermutation permutation(pictures.size(), kShuffleKey);
  auto at = [&](size_t i) -> const CaptionedPicture& { return pictures[options.shuffle ? permutation(i) : i]; };
  const size_t threads = static_cast<size_t>(options.threads > 0 ? options.threads : cores_of_process());
  ShardWriter writer(partial.path(), options.limits);
  // Encoded in parallel block by block, written in order.
  const size_t block = threads * 16;
  for (size_t start = 0; start < pictures.size(); start += block) {
    const size_t count = std::min(block, pictures.size() - start);
    std::vector<Encoded> encoded(count);
    std::atomic<size_t> next = 0;
    {
      std::vector<std::jthread> workers;
      for (size_t t = 0; t < std::min(threads, count); ++t)
        workers.emplace_back([&] {
          for (size_t i; (i = next++) < count;) encoded[i] = encode(source, at(start + i), options.quality);
        });
    }
    for (size_t i = 0; i < count; ++i) {
      const CaptionedPicture& picture = at(start + i);
      if (!encoded[i].failure.empty()) {
        summary.skipped["decode_error"].push_back(encoded[i].failure);
        continue;
      }
      ++summary.pictures;
      summary.with_speech += !encoded[i].speech.empty();
      for (const auto& [language, caption] : picture.captions) {
        if (language != "en" && !options.every_language) continue;
        char key[24];
        std::snprintf(key, sizeof key, "%09llu", static_cast<unsigned long long>(writer.samples()));
        std::vector<std::pair<std::string, std::string>> members = {
            {"jpg", encoded[i].jpeg}, {"txt", caption}, {"json", metadata(picture, encoded[i], language, options)}};
        if (language == "en" && !encoded[i].speech.empty()) members.emplace_back("ogg", encoded[i].speech);
        writer.add(key, members);
        ++summary.languages[language];
      }
    }
    if (progress) progress(start + count, pictures.size());
  }
  writer.finish();
  if (writer.samples() == 0)
    throw Error("nothing could be packed", source.string() + ": no picture could be decoded", "", ExitCode::kBadData);
  publish(out, partial, writer, {{"quality", options.quality}, {"every_language", options.every_language}}, &summary);
  return summary;
}

PackSummary repack_shards(const std::vector<std::string>& sources, const fs::path& out_given, const PackOptions& options,
                          const std::function<void(uint64_t, uint64_t)>& progress) {
  const fs::path out = check_target(out_given, options);
  const auto dataset = Dataset::open(sources);
  for (uint32_t k = 0; k < dataset->shard_count(); ++k) {
    std::error_code ignored;
    if (fs::equivalent(dataset->shard_path(k).parent_path().empty() ? fs::path(".") : dataset->shard_path(k).parent_path(), out, ignored))
      throw Error("cannot pack a folder into itself", out.string(), "give the name of a new one", ExitCode::kBadUsage);
  }
  PartialFolder partial = partial_folder_of(out);
  PackSummary summary;
  const uint64_t count = dataset->size();
  const KeyedPermutation permutation(count, kShuffleKey);
  ShardWriter writer(partial.path(), options.limits);
  std::unordered_set<std::string> keys;
  for (uint64_t i = 0; i < count; ++i) {
    if (progress && i % 64 == 0) progress(i, count);
    const uint64_t id = options.shuffle ? permutation(i) : i;
    if (const std::string reason = dataset->unusable_reason(id); !reason.empty()) {
      summary.skipped[reason].push_back(dataset->describe(id));
      continue;
    }
    const auto& sample = dataset->sample(id);
    // Two shards of different origin may use one key; a shard of both must not.
    std::string key(sample.key);
    for (int copy = 2; !keys.insert(key).second; ++copy) key = std::string(sample.key) + "-" + std::to_string(copy);
    std::vector<std::pair<std::string, std::string>> members;
    try {
      for (const auto& member : sample.members) {
        const std::vector<std::byte> bytes = dataset->read(id, member);
        members.emplace_back(member.extension, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
      }
    } catch (const Error& error) {
      summary.skipped["read_error"].push_back(error.what());
      continue;
    }
    summary.pictures += sample.picture() != nullptr;
    writer.add(key, members);
  }
  if (progress) progress(count, count);
  writer.finish();
  if (writer.samples() == 0)
    throw Error("nothing could be packed", sources.front() + ": no sample is whole", "", ExitCode::kBadData);
  publish(out, partial, writer, nlohmann::ordered_json::object(), &summary);
  return summary;
}

}  // namespace mso
