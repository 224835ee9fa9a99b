#include "io/caption_template.h"

#include "base/error.h"

namespace mso {
namespace {

constexpr std::string_view kCaptionMark = "{caption}";
// In the order of Modality; text has none.
constexpr std::string_view kMediaMarks[kModalities] = {"", "<audio>", "<image>", "<video>"};

}  // namespace

std::string_view mark_of(Modality m) { return kMediaMarks[static_cast<size_t>(m)]; }

CaptionTemplate::CaptionTemplate(const std::string& text, const Tokenizer& tokenizer) {
  auto refuse = [&](const std::string& what) {
    return Error("wrong template: " + what, "data.template: " + text, "the default is <image>{caption}", ExitCode::kBadUsage);
  };
  bool caption = false;
  std::string words;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = std::string_view(text).substr(at);
    std::string_view mark;
    if (rest.starts_with(kCaptionMark)) {
      if (caption) throw refuse("{caption} comes twice");
      caption = true;
      mark = kCaptionMark;
    }
    for (Modality m : kAllModalities) {
      if (mark_of(m).empty() || !rest.starts_with(mark_of(m))) continue;
      if (marks_ & bit(m)) throw refuse(std::string(mark_of(m)) + " comes twice");
      marks_ |= bit(m);
      mark = mark_of(m);
    }
    if (mark.empty()) {
      words += text[at++];
      continue;
    }
    parts_.emplace_back(std::string_view(), std::exchange(words, {}));
    parts_.emplace_back(mark, std::string());
    at += mark.size();
  }
  parts_.emplace_back(std::string_view(), words);
  if (!caption) throw refuse("{caption} is missing");
  for (Present present = 0; present < variants_.size(); ++present)
    if ((present & ~marks_) == 0) variants_[present] = make_pieces(present, tokenizer);
}

std::vector<CaptionTemplate::Piece> CaptionTemplate::make_pieces(Present present, const Tokenizer& tokenizer) const {
  std::vector<Piece> made(1);
  for (const auto& [mark, words] : parts_) {
    Piece& last = made.back();
    (last.has_caption ? last.after : last.before) += words;
    if (mark == kCaptionMark) last.has_caption = true;
    for (Modality m : kAllModalities) {
      if (mark.empty() || mark != mark_of(m) || !(present & bit(m))) continue;
      Piece place;
      place.media = m;
      made.push_back(place);
      made.emplace_back();
    }
  }
  std::erase_if(made, [](const Piece& p) { return !p.media && !p.has_caption && p.before.empty(); });
  for (Piece& piece : made) {
    piece.before_ids = tokenizer.encode(piece.before);
    piece.after_ids = tokenizer.encode(piece.after);
  }
  return made;
}

}  // namespace mso
