#include "io/modality.h"

#include <algorithm>

#include "io/shard_index.h"

namespace mso {
namespace {

constexpr std::string_view kNames[kModalities] = {"text", "audio", "image", "video"};
constexpr std::string_view kVideoExtensions[] = {"avi", "flv", "m4v", "mkv", "mov", "mp4", "mpeg", "mpg", "ogv", "ts", "webm", "wmv"};
constexpr std::string_view kAudioExtensions[] = {"aac", "aif", "aiff", "flac", "m4a", "mp3", "oga", "ogg", "opus", "wav", "wma"};

}  // namespace

const char* name_of(Modality modality) { return kNames[static_cast<size_t>(modality)].data(); }

std::optional<Modality> modality_from_name(std::string_view name) {
  for (Modality m : kAllModalities)
    if (kNames[static_cast<size_t>(m)] == name) return m;
  return std::nullopt;
}

std::optional<Modality> media_of_extension(std::string_view extension) {
  if (is_picture_extension(extension)) return Modality::kImage;
  if (std::ranges::binary_search(kVideoExtensions, extension)) return Modality::kVideo;
  if (std::ranges::binary_search(kAudioExtensions, extension)) return Modality::kAudio;
  return std::nullopt;
}

}  // namespace mso
