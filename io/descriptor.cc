#include "io/descriptor.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "base/hash.h"
#include "io/resize.h"
#include "io/utf8.h"

namespace mso {
namespace {

constexpr int kSide = 48;                                    // pixels the picture is looked at with
constexpr int kColourSteps = 4, kLayoutCells = 6, kGradientCells = 4, kDirections = 8;
// Chosen on captioned clip art, like kFloor, so that above the default threshold some 95 of 100 neighbours are of the
// right category (tests/unit/io/healing_stamps_test.cc).
constexpr double kColourShare = 0.35, kLayoutShare = 0.25, kGradientShare = 0.4;
constexpr double kMediaShare = 0.6;
constexpr double kFloor = 0.78;   // b of the header
constexpr float kLastWord = 1.5;  // the noun that a caption is about tends to come last

// Scales to the length `length`; a part that says nothing (all but zero) is left short, so that it makes nothing alike.
void scale_to(float* values, int count, double length, double smallest = 1e-6) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += static_cast<double>(values[i]) * values[i];
  const double factor = length / std::max(std::sqrt(sum), smallest);
  for (int i = 0; i < count; ++i) values[i] = static_cast<float>(values[i] * factor);
}

// out[0] is the constant part; the whole becomes a unit vector.
void finish_part(float* out, int size, double floor) {
  scale_to(out + 1, size - 1, std::sqrt(1 - floor));
  out[0] = static_cast<float>(std::sqrt(floor));
  scale_to(out, size, 1);
}

struct Pixels {
  std::array<float, kSide * kSide> luma, blue, red;  // 0…1, and chroma -0.5…0.5
  std::array<float, kSide * kSide> stands_out;       // weight 0…1: how far the pixel is from the border's colour
};

// JPEG's luma and chroma (ITU-R BT.601, full range).
void split_channels(const Image& small, Pixels* p) {
  for (int i = 0; i < kSide * kSide; ++i) {
    const float r = small.rgb[3 * i] / 255.0f, g = small.rgb[3 * i + 1] / 255.0f, b = small.rgb[3 * i + 2] / 255.0f;
    p->luma[i] = 0.299f * r + 0.587f * g + 0.114f * b;
    p->blue[i] = (b - p->luma[i]) / 1.772f;
    p->red[i] = (r - p->luma[i]) / 1.402f;
  }
  // The border's colour: the mean of the outermost pixels.
  float mean[3] = {};
  int count = 0;
  for (int y = 0; y < kSide; ++y)
    for (int x = 0; x < kSide; ++x) {
      if (y != 0 && x != 0 && y != kSide - 1 && x != kSide - 1) continue;
      const int i = y * kSide + x;
      mean[0] += p->luma[i], mean[1] += p->blue[i], mean[2] += p->red[i];
      ++count;
    }
  for (float& m : mean) m /= static_cast<float>(count);
  for (int i = 0; i < kSide * kSide; ++i) {
    const float l = p->luma[i] - mean[0], b = p->blue[i] - mean[1], r = p->red[i] - mean[2];
    p->stands_out[i] = std::min(1.0f, 0.02f + 4.0f * std::sqrt(l * l + b * b + r * r));
  }
}

void describe_colours(const Image& small, const Pixels& p, float* out) {
  std::fill_n(out, kColourSteps * kColourSteps * kColourSteps, 0.0f);
  for (int i = 0; i < kSide * kSide; ++i) {
    int low[3];
    float share[3];
    for (int c = 0; c < 3; ++c) {
      const float at = small.rgb[3 * i + c] / 255.0f * (kColourSteps - 1);
      low[c] = std::min(static_cast<int>(at), kColourSteps - 2);
      share[c] = at - static_cast<float>(low[c]);
    }
    for (int corner = 0; corner < 8; ++corner) {
      float weight = p.stands_out[i];
      int bin = 0;
      for (int c = 0; c < 3; ++c) {
        const int up = (corner >> c) & 1;
        weight *= up ? share[c] : 1 - share[c];
        bin = bin * kColourSteps + low[c] + up;
      }
      out[bin] += weight;
    }
  }
  for (int i = 0; i < kColourSteps * kColourSteps * kColourSteps; ++i) out[i] = std::sqrt(out[i]);
}

void describe_layout(const Pixels& p, float* out) {
  constexpr int kCell = kSide / kLayoutCells;
  for (int cy = 0; cy < kLayoutCells; ++cy)
    for (int cx = 0; cx < kLayoutCells; ++cx) {
      float sum[3] = {};
      for (int y = cy * kCell; y < (cy + 1) * kCell; ++y)
        for (int x = cx * kCell; x < (cx + 1) * kCell; ++x) {
          const int i = y * kSide + x;
          sum[0] += p.luma[i], sum[1] += 2 * p.blue[i], sum[2] += 2 * p.red[i];
        }
      for (int c = 0; c < 3; ++c) out[(cy * kLayoutCells + cx) * 3 + c] = sum[c] / (kCell * kCell);
    }
  // As differences from the cells of the border, so that a white ground makes nothing alike.
  float ground[3] = {};
  int count = 0;
  for (int cy = 0; cy < kLayoutCells; ++cy)
    for (int cx = 0; cx < kLayoutCells; ++cx)
      if (cy == 0 || cx == 0 || cy == kLayoutCells - 1 || cx == kLayoutCells - 1) {
        for (int c = 0; c < 3; ++c) ground[c] += out[(cy * kLayoutCells + cx) * 3 + c];
        ++count;
      }
  for (int i = 0; i < kLayoutCells * kLayoutCells; ++i)
    for (int c = 0; c < 3; ++c) out[i * 3 + c] -= ground[c] / static_cast<float>(count);
}

void describe_gradients(const Pixels& p, float* out) {
  constexpr int kCell = kSide / kGradientCells;
  std::fill_n(out, kGradientCells * kGradientCells * kDirections, 0.0f);
  for (int y = 1; y + 1 < kSide; ++y)
    for (int x = 1; x + 1 < kSide; ++x) {
      const float dx = p.luma[y * kSide + x + 1] - p.luma[y * kSide + x - 1];
      const float dy = p.luma[(y + 1) * kSide + x] - p.luma[(y - 1) * kSide + x];
      const float strength = std::sqrt(dx * dx + dy * dy);
      if (strength < 0.02f) continue;
      // Directions without sign: light on dark is as good as dark on light.
      float turn = std::atan2(dy, dx) / 3.14159265f;
      if (turn < 0) turn += 1;
      const float at = turn * kDirections;
      const int low = static_cast<int>(at);
      const float share = at - static_cast<float>(low);
      float* cell = out + ((y / kCell) * kGradientCells + x / kCell) * kDirections;
      cell[low % kDirections] += strength * (1 - share);
      cell[(low + 1) % kDirections] += strength * share;
    }
  for (int i = 0; i < kGradientCells * kGradientCells * kDirections; ++i) out[i] = std::sqrt(out[i]);
}

// Words that say nothing of what is shown.
bool is_filler(std::string_view word) {
  constexpr std::string_view kWords[] = {"a",  "an", "and", "are", "as", "at",  "by",   "for",  "from", "in",
                                         "is", "it", "its", "of",  "on", "or",  "that", "the",  "this", "to",
                                         "was", "with"};
  return std::binary_search(std::begin(kWords), std::end(kWords), word);
}

// Case-folded words of the text.
std::vector<std::string> words_of(std::string_view utf8) {
  std::vector<std::string> words;
  std::string word;
  size_t at = 0;
  while (at < utf8.size()) {
    const uint32_t code_point = next_code_point(utf8, at);
    if (is_word_character(code_point)) {
      append_utf8(word, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))));
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

void add_feature(std::string_view feature, float weight, float* out) {
  const uint64_t hash = hash64(feature, 0x6d736f64);
  out[hash % (kTextDescriptorSize - 1)] += (hash >> 63) != 0 ? weight : -weight;
}

// A word counts `weight`, half of its square for the word itself, half for its parts.
void add_word(const std::string& word, float weight, float* out) {
  const std::string framed = "<" + word + ">";
  add_feature(framed, weight * std::sqrt(0.5f), out);
  std::vector<size_t> starts;  // of characters
  for (size_t i = 0; i < framed.size(); i += utf8_length(framed[i])) starts.push_back(i);
  starts.push_back(framed.size());
  std::vector<std::string_view> parts;
  for (size_t length = 3; length <= 5; ++length)
    for (size_t i = 0; i + length < starts.size(); ++i)
      if (starts[i + length] - starts[i] < framed.size())
        parts.push_back(std::string_view(framed).substr(starts[i], starts[i + length] - starts[i]));
  for (std::string_view part : parts) add_feature(part, weight * std::sqrt(0.5f / static_cast<float>(parts.size())), out);
}

}  // namespace

void describe_picture(const Image& picture, float* out) {
  const Image small = resize(picture, kSide, kSide, Resample::kBox);
  Pixels pixels;
  split_channels(small, &pixels);
  float* colours = out + 1;
  float* layout = colours + kColourSteps * kColourSteps * kColourSteps;
  float* gradients = layout + kLayoutCells * kLayoutCells * 3;
  describe_colours(small, pixels, colours);
  describe_layout(pixels, layout);
  describe_gradients(pixels, gradients);
  scale_to(colours, kColourSteps * kColourSteps * kColourSteps, std::sqrt(kColourShare));
  scale_to(layout, kLayoutCells * kLayoutCells * 3, std::sqrt(kLayoutShare), 0.05);
  scale_to(gradients, kGradientCells * kGradientCells * kDirections, std::sqrt(kGradientShare), 0.05);
  finish_part(out, kPictureDescriptorSize, kFloor);
}

void describe_text(std::string_view utf8, float* out) {
  std::fill_n(out, kTextDescriptorSize, 0.0f);
  const std::vector<std::string> words = words_of(utf8);
  std::vector<std::string> telling;
  std::ranges::copy_if(words, std::back_inserter(telling), [](const std::string& word) { return !is_filler(word); });
  if (telling.empty()) telling = words;  // a text of fillers alone is described by them
  for (size_t i = 0; i < telling.size(); ++i) add_word(telling[i], i + 1 == telling.size() ? kLastWord : 1.0f, out + 1);
  if (!telling.empty()) finish_part(out, kTextDescriptorSize, kFloor);
}

double BuiltinEmbedder::media_share() const { return kMediaShare; }

DecodeOptions BuiltinEmbedder::decode_options(int, int) const {
  DecodeOptions options;
  options.target_width = options.target_height = kSide;
  return options;
}

void BuiltinEmbedder::embed(std::span<const SampleContent> samples, float* rows) const {
  for (size_t i = 0; i < samples.size(); ++i) {
    float* row = rows + i * (kPictureDescriptorSize + kTextDescriptorSize);
    std::fill_n(row, kPictureDescriptorSize, 0.0f);
    if (!samples[i].picture.rgb.empty()) describe_picture(samples[i].picture, row);
    describe_text(samples[i].text, row + kPictureDescriptorSize);
  }
}

}  // namespace mso
