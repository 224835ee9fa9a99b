// The data template of a captioned sample ("<image>{caption}"), in pieces that are tokens, text or a medium's place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/modality.h"
#include "io/tokenizer.h"

namespace mso {

std::string_view mark_of(Modality m);  // "<image>", "<video>", "<audio>"; empty for text

// "A <image> B {caption} C" in parts, and for every set of media that a sample may lack, the pieces that are left: text
// on both sides of a mark that is left out is one piece.
class CaptionTemplate {
 public:
  using Present = unsigned;  // bit per Modality
  static constexpr Present bit(Modality m) { return 1u << static_cast<unsigned>(m); }

  // A run of text, encoded as one, or the place of one medium.
  struct Piece {
    std::optional<Modality> media;
    bool has_caption = false;
    std::string before, after;  // around the caption; without one, all is `before`
    std::vector<int64_t> before_ids, after_ids;
  };

  // Error (kBadUsage) naming data.template: without {caption}, or with a mark twice.
  CaptionTemplate(const std::string& text, const Tokenizer& tokenizer);

  bool has(Modality m) const { return marks_ & bit(m); }
  // `present`: some of the marks.
  const std::vector<Piece>& pieces(Present present) const { return variants_.at(present); }

 private:
  std::vector<Piece> make_pieces(Present present, const Tokenizer& tokenizer) const;

  Present marks_ = 0;
  std::vector<std::pair<std::string_view, std::string>> parts_;  // {mark or empty, text}
  std::vector<std::vector<Piece>> variants_{1u << kModalities};
};

}  // namespace mso
