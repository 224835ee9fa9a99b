#include "io/shard_packer.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>
#include <unordered_set>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "io/dataset.h"
#include "io/image.h"
#include "io/pack_target.h"
#include "io/picture_folder.h"

namespace mso {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kMaxSourceFile = uint64_t{512} << 20;

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

// The folder in place of an older one, and what is in it.
void publish(PackTarget& target, nlohmann::ordered_json more, PackSummary* summary) {
  for (auto& [reason, paths] : summary->skipped) {
    std::sort(paths.begin(), paths.end());
    more["skipped"][reason] = paths.size();
  }
  target.publish({{"pictures", summary->pictures}}, more);
  summary->samples = target.writer().samples();
  summary->shards = target.writer().shards();
  summary->bytes = target.writer().bytes();
}

}  // namespace

PackSummary pack_folder(const fs::path& source, const fs::path& out, const PackOptions& options,
                        const std::function<void(uint64_t, uint64_t)>& progress) {
  if (options.quality < 1 || options.quality > 100)
    throw Error("quality out of range", std::to_string(options.quality), "1 to 100", ExitCode::kBadUsage);
  PackTarget target(out, options.limits);
  PictureFolder folder = scan_picture_folder(source);
  if (folder.pictures.empty())
    throw Error("nothing to pack", source.string() + " has no picture with a caption",
                "captions stand beside pictures: cat.png and cat.txt", ExitCode::kBadData);

  PackSummary summary;
  summary.skipped = std::move(folder.skipped);
  const std::vector<CaptionedPicture>& pictures = folder.pictures;
  const KeyedPermutation permutation(pictures.size(), kPackShuffleKey);
  auto at = [&](size_t i) -> const CaptionedPicture& { return pictures[options.shuffle ? permutation(i) : i]; };
  const size_t threads = pack_threads(options.threads);
  ShardWriter& writer = target.writer();
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
  if (writer.samples() == 0)
    throw Error("nothing could be packed", source.string() + ": no picture could be decoded", "", ExitCode::kBadData);
  publish(target, {{"quality", options.quality}, {"every_language", options.every_language}}, &summary);
  return summary;
}

PackSummary repack_shards(const std::vector<std::string>& sources, const fs::path& out, const PackOptions& options,
                          const std::function<void(uint64_t, uint64_t)>& progress) {
  PackTarget target(out, options.limits);
  const auto dataset = Dataset::open(sources);
  for (uint32_t k = 0; k < dataset->shard_count(); ++k) {
    std::error_code ignored;
    if (fs::equivalent(dataset->shard_path(k).parent_path().empty() ? fs::path(".") : dataset->shard_path(k).parent_path(), out, ignored))
      throw Error("cannot pack a folder into itself", out.string(), "give the name of a new one", ExitCode::kBadUsage);
  }
  PackSummary summary;
  const uint64_t count = dataset->size();
  const KeyedPermutation permutation(count, kPackShuffleKey);
  ShardWriter& writer = target.writer();
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
  if (writer.samples() == 0)
    throw Error("nothing could be packed", sources.front() + ": no sample is whole", "", ExitCode::kBadData);
  publish(target, nlohmann::ordered_json::object(), &summary);
  return summary;
}

}  // namespace mso
