#include "io/modality.h"

#include "io/shard_index.h"

namespace mso {
namespace {

constexpr std::string_view kNames[kModalities] = {"text", "audio", "image", "video"};

}  // namespace

const char* name_of(Modality modality) { return kNames[static_cast<size_t>(modality)].data(); }

std::optional<Modality> modality_from_name(std::string_view name) {
  for (Modality m : kAllModalities)
    if (kNames[static_cast<size_t>(m)] == name) return m;
  return std::nullopt;
}

std::optional<Modality> media_of_extension(std::string_view extension) {
  switch (modality_of_extension(extension)) {
    case kHasImage: return Modality::kImage;
    case kHasVideo: return Modality::kVideo;
    case kHasAudio: return Modality::kAudio;
    default: return std::nullopt;
  }
}

}  // namespace mso
