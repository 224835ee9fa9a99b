// Folders of pictures with captions, as `mso data pack` reads them: Tux Paint's stamps and plain image + .txt pairs.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace mso {

// One picture with its captions. Paths are relative to the folder.
struct CaptionedPicture {
  std::string picture;   // "animals/birds/cardinal.png"
  std::string category;  // its folder, "animals/birds"; empty at the top
  std::map<std::string, std::string> captions;  // language ("en", "de", "pt_BR", "ca@valencia") → text
  std::string speech;    // spoken English caption, "animals/birds/cardinal_desc.ogg"; empty: none
};

// What a folder holds; `skipped`: reason → paths, sorted.
struct PictureFolder {
  std::vector<CaptionedPicture> pictures;  // by path
  std::map<std::string, std::vector<std::string>> skipped;
};

// Captions of a .txt file. Tux Paint's form: the first line is English, further ones are `LANGUAGE.utf8=caption`. A file
// without such lines is one English caption, line breaks and all. What is not UTF-8 or empty is left out.
std::map<std::string, std::string> parse_captions(const std::string& text);

// Walks the folder (links to folders are not followed). Pictures are .png .jpg .jpeg .webp .bmp .gif .tif .tiff; of
// several with the same stem the first in this list counts as the picture and the others are skipped ("same_stem").
// Other reasons: "svg" (unless a picture stands beside it), "no_caption", "bad_caption" (empty or not UTF-8).
PictureFolder scan_picture_folder(const std::filesystem::path& folder);

}  // namespace mso
