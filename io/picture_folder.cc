#include "io/picture_folder.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "io/utf8.h"

namespace mso {
namespace {

constexpr uint64_t kMaxCaptionFile = 4 << 20;
constexpr std::string_view kExtensions[] = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"};

bool is_utf8(std::string_view text) {
  std::string storage;
  return valid_utf8(text, storage).data() == text.data();
}

// "de.utf8=Hallo" → {"de", "Hallo"}; an empty language: no such line.
std::pair<std::string, std::string> split_language(std::string_view line) {
  constexpr std::string_view kMark = ".utf8=";
  const size_t mark = line.find(kMark);
  if (mark == 0 || mark == std::string_view::npos || mark > 32) return {};
  for (char c : line.substr(0, mark))
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '@' || c == '-')) return {};
  return {std::string(line.substr(0, mark)), std::string(trim_caption(line.substr(mark + kMark.size())))};
}

}  // namespace

std::map<std::string, std::string> parse_captions(const std::string& text) {
  std::map<std::string, std::string> captions;
  auto keep = [&captions](const std::string& language, std::string_view caption) {
    caption = trim_caption(caption);
    if (!caption.empty() && is_utf8(caption)) captions.emplace(language, caption);
  };
  bool by_language = false;
  std::string first_line;
  for (size_t start = 0, number = 0; start < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view line = std::string_view(text).substr(start, end - start);
    if (number == 0) {
      first_line = line;
    } else if (auto [language, caption] = split_language(line); !language.empty()) {
      by_language = true;
      keep(language, caption);
    }
    start = end + 1;
  }
  if (by_language) captions.erase("en");  // the first line is the English one
  keep("en", by_language ? std::string_view(first_line) : std::string_view(text));
  return captions;
}

PictureFolder scan_picture_folder(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw Error("no such folder", folder.string(), "give a folder of pictures with captions", ExitCode::kBadUsage);
  std::vector<std::string> files;
  fs::recursive_directory_iterator it(folder, error), end;
  if (error) throw system_error("cannot list", folder.string(), error.value());
  for (; it != end; it.increment(error)) {
    if (error) throw system_error("cannot list", folder.string(), error.value());
    if (it->is_regular_file(error)) files.push_back(it->path().lexically_relative(folder).generic_string());
  }
  std::sort(files.begin(), files.end());

  // Stem → picture by rank of its extension.
  std::map<std::string, std::vector<std::pair<size_t, std::string>>> by_stem;
  std::vector<std::string> svgs;
  for (const std::string& file : files) {
    const std::string extension = lower_ascii(fs::path(file).extension().string());
    const std::string stem = file.substr(0, file.size() - extension.size());
    if (extension == ".svg") svgs.push_back(file);
    auto at = std::find(std::begin(kExtensions), std::end(kExtensions), extension);
    if (at != std::end(kExtensions)) by_stem[stem].emplace_back(at - std::begin(kExtensions), file);
  }
  PictureFolder result;
  for (auto& [stem, candidates] : by_stem) {
    std::sort(candidates.begin(), candidates.end());
    for (size_t i = 1; i < candidates.size(); ++i) result.skipped["same_stem"].push_back(candidates[i].second);
    CaptionedPicture picture;
    picture.picture = candidates[0].second;
    picture.category = fs::path(picture.picture).parent_path().generic_string();
    auto exists = [&](const std::string& name) { return std::binary_search(files.begin(), files.end(), name); };
    if (!exists(stem + ".txt")) {
      result.skipped["no_caption"].push_back(picture.picture);
      continue;
    }
    picture.captions = parse_captions(read_file(folder / (stem + ".txt"), kMaxCaptionFile));
    if (!picture.captions.contains("en")) {
      result.skipped["bad_caption"].push_back(picture.picture);
      continue;
    }
    if (exists(stem + "_desc.ogg")) picture.speech = stem + "_desc.ogg";
    result.pictures.push_back(std::move(picture));
  }
  std::sort(result.pictures.begin(), result.pictures.end(),
            [](const auto& a, const auto& b) { return a.picture < b.picture; });
  for (const std::string& svg : svgs)
    if (!by_stem.contains(svg.substr(0, svg.size() - 4))) result.skipped["svg"].push_back(svg);
  for (auto& [reason, paths] : result.skipped) std::sort(paths.begin(), paths.end());
  return result;
}

}  // namespace mso
