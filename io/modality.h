// The kinds of samples: what a sample is counted as in recipes, prefetch buffers and reports.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace mso {

// A sample is of the most costly kind of media in it: one with a video and a sound is a video.
enum class Modality : uint8_t { kText, kAudio, kImage, kVideo };
inline constexpr size_t kModalities = 4;
inline constexpr std::array<Modality, kModalities> kAllModalities = {Modality::kText, Modality::kAudio, Modality::kImage,
                                                                     Modality::kVideo};

const char* name_of(Modality modality);  // "text", "audio", "image", "video"
std::optional<Modality> modality_from_name(std::string_view name);

// What a file of a sample holds, by its extension in lower case without the dot; nothing for .json, .txt and unknown ones.
std::optional<Modality> media_of_extension(std::string_view extension);

// One value per modality.
template <typename T>
class PerModality {
 public:
  T& operator[](Modality m) { return values_[static_cast<size_t>(m)]; }
  const T& operator[](Modality m) const { return values_[static_cast<size_t>(m)]; }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  auto begin() { return values_.begin(); }
  auto end() { return values_.end(); }
  bool operator==(const PerModality&) const = default;

 private:
  std::array<T, kModalities> values_{};
};

}  // namespace mso
