#include "io/conversation_encoder.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "io/micro_batch.h"
#include "io/utf8.h"

namespace mso {
namespace {

bool is_blank(std::string_view text) {
  for (size_t at = 0; at < text.size();)
    if (!is_white_space(next_code_point(text, at))) return false;
  return true;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.substr(0, utf8_length(text[0])))) text.remove_prefix(utf8_length(text[0]));
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while ((static_cast<uint8_t>(text[last]) & 0xc0) == 0x80) --last;
    if (!is_blank(text.substr(last))) break;
    text = text.substr(0, last);
  }
  return text;
}

// A medium's place in a text that is put together.
struct Place {
  size_t start, end;
  size_t medium;  // in the order of Conversation::media()
};

}  // namespace

ConversationEncoder::ConversationEncoder(std::shared_ptr<const Tokenizer> tokenizer, ChatTemplate chat_template,
                                         ConversationOptions options)
    : tokenizer_(std::move(tokenizer)), template_(std::move(chat_template)), options_(std::move(options)) {
  const std::vector<int64_t> added = tokenizer_->encode("", true);
  if (options_.add_bos && tokenizer_->bos_id() && !added.empty() && added.front() == *tokenizer_->bos_id())
    bos_ = tokenizer_->token(added.front()).value_or("");
}

std::vector<ConversationEncoder::Stretch> ConversationEncoder::stretches(const Conversation& conversation,
                                                                         const std::string& whole) const {
  auto render = [&](size_t turns, bool prompt) -> std::optional<std::string> {
    if (turns == 0 && !prompt) return std::string();
    try {
      return template_.render(conversation, turns, prompt, options_.placeholders).text;
    } catch (const Error&) {  // some refuse to stop in the middle
      return {};
    }
  };
  std::vector<Stretch> found;
  size_t cursor = 0;
  for (size_t i = 0; i < conversation.turns.size(); ++i) {
    const Turn& turn = conversation.turns[i];
    if (turn.role != "assistant") continue;
    std::string_view first_words, last_words;
    for (const Part& part : turn.parts)
      if (part.is_text && !trimmed(part.text).empty()) {
        if (first_words.empty()) first_words = trimmed(part.text);
        last_words = trimmed(part.text);
      }
    const std::optional<std::string> before = render(i, false), prompt = render(i, true);
    Stretch stretch{};
    if (prompt && before && prompt->size() > before->size() && prompt->starts_with(*before) && whole.starts_with(*prompt) &&
        prompt->size() >= cursor) {
      stretch.start = prompt->size();
    } else {
      if (first_words.empty()) continue;
      const size_t from = before && whole.starts_with(*before) ? std::max(cursor, before->size()) : cursor;
      stretch.start = whole.find(first_words, from);
      if (stretch.start == std::string::npos)
        throw BadSampleError("template_error", conversation.where + ": cannot tell what the assistant says in turn " + std::to_string(i) +
                                                   ", because the chat template does not write its words; {% generation %} would mark them");
    }
    const std::optional<std::string> through = i + 1 == conversation.turns.size() ? whole : render(i + 1, false);
    if (through && whole.starts_with(*through) && through->size() >= stretch.start) {
      stretch.end = through->size();
    } else {
      size_t end = stretch.start;
      if (!last_words.empty()) {
        end = whole.find(last_words, stretch.start);
        if (end == std::string::npos)
          throw BadSampleError("template_error", conversation.where + ": cannot tell where turn " + std::to_string(i) +
                                                     " ends in what the chat template writes; {% generation %} would mark it");
        end += last_words.size();
      }
      stretch.end = end;
      stretch.joins_special = true;
    }
    cursor = stretch.end;
    found.push_back(stretch);
  }
  return found;
}

EncodedConversation ConversationEncoder::encode(const Conversation& conversation,
                                                const std::vector<std::vector<TokenRun>>& expansions) const {
  const std::vector<MediumRef> media = conversation.media();
  auto bad = [&](const char* reason, const std::string& what) { return BadSampleError(reason, conversation.where + ": " + what); };
  if (expansions.size() != media.size())
    throw Error("media and their tokens do not fit", conversation.where + ": " + std::to_string(media.size()) + " media, tokens for " +
                                                         std::to_string(expansions.size()));

  std::set<std::string> placeholders;
  for (const MediumRef& medium : media) {
    const std::string& placeholder = placeholder_of(options_.placeholders, medium.kind);
    if (placeholder.empty()) throw bad("bad_conversation", std::string("the model takes no ") + media_name(medium.kind) + " in its text");
    placeholders.insert(placeholder);
  }
  for (const Turn& turn : conversation.turns)
    for (const Part& part : turn.parts)
      for (const std::string& mark : placeholders)
        if (part.is_text && part.text.find(mark) != std::string::npos) throw bad("bad_text", "a text holds '" + mark + "', which stands for a medium");

  RenderedChat rendered;
  std::vector<Stretch> learned;
  try {
    rendered = template_.render(conversation, conversation.turns.size(), false, options_.placeholders);
  } catch (const Error& error) {
    throw bad("template_error", error.what());
  }
  if (template_.has_generation())
    for (const auto& [start, end] : rendered.generations) learned.push_back({start, end, false});
  else
    learned = stretches(conversation, rendered.text);

  // The media's places: the n-th placeholder of a kind is the n-th medium of it.
  std::vector<Place> places;
  std::string text;                               // with the media's tokens in
  std::vector<std::pair<size_t, size_t>> shifts;  // from this byte of the rendered text on → this byte of `text`
  {
    std::map<std::string, std::vector<size_t>> waiting;
    for (size_t i = media.size(); i-- > 0;) waiting[placeholder_of(options_.placeholders, media[i].kind)].push_back(i);
    size_t done = 0;
    shifts.emplace_back(0, 0);
    while (true) {
      size_t at = std::string::npos;
      const std::string* mark = nullptr;
      for (const std::string& p : placeholders)
        if (const size_t found = rendered.text.find(p, done); found < at) at = found, mark = &p;
      if (!mark) break;
      std::vector<size_t>& left = waiting[*mark];
      if (left.empty()) throw bad("template_error", "the chat template writes '" + *mark + "' more often than there are media");
      text.append(rendered.text, done, at - done);
      const size_t start = text.size();
      for (const TokenRun& run : expansions[left.back()]) {
        const bool known = tokenizer_->token_id(run.token).has_value();
        if (run.feature && !known)
          throw Error("the tokenizer does not know a media token", "'" + run.token + "'", "give the tokenizer of the model, or add the token to it",
                      ExitCode::kBadUsage);
        for (int64_t k = 0; k < (known ? std::min<int64_t>(run.count, 1) : run.count); ++k) text += run.token;
      }
      places.push_back({start, text.size(), left.back()});
      left.pop_back();
      done = at + mark->size();
      shifts.emplace_back(done, text.size());
    }
    text.append(rendered.text, done);
    for (const auto& [mark, left] : waiting)
      if (!left.empty()) throw bad("template_error", "the chat template leaves out " + std::to_string(left.size()) + " '" + mark + "'");
  }
  for (Stretch& stretch : learned)
    for (size_t* byte : {&stretch.start, &stretch.end}) {
      auto after = std::upper_bound(shifts.begin(), shifts.end(), *byte, [](size_t b, const auto& shift) { return b < shift.first; });
      *byte = std::prev(after)->second + (*byte - std::prev(after)->first);
    }

  std::vector<TokenSpan> spans;
  const std::vector<int64_t> ids = tokenizer_->encode_with_spans(text, spans);
  // As transformers: every token that overlaps a stretch.
  std::vector<bool> learn(ids.size(), false);
  size_t s = 0;
  for (size_t i = 0; i < ids.size() && s < learned.size(); ++i) {
    while (s < learned.size() && spans[i].start >= learned[s].end) {
      if (learned[s].joins_special && i > 0 && learn[i - 1] && tokenizer_->is_special(ids[i]) && spans[i].start == learned[s].end) learn[i] = true;
      ++s;
    }
    if (s < learned.size() && spans[i].end > learned[s].start) learn[i] = true;
  }
  if (!template_.has_generation()) {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (!learn[i] || !tokenizer_->is_special(ids[i])) continue;
      // White space between a special token and the end of the stretch.
      size_t end = i + 1;
      while (end < ids.size() && learn[end] && is_blank(std::string_view(text).substr(spans[end].start, spans[end].end - spans[end].start))) ++end;
      const bool stretch_ends = end == ids.size() || !learn[end] ||
                                std::any_of(learned.begin(), learned.end(), [&](const Stretch& l) { return l.end <= spans[end].start && l.end > spans[i].start; });
      for (size_t k = i + 1; stretch_ends && k < end; ++k) learn[k] = false;
    }
  }

  EncodedConversation out;
  out.kept.assign(media.size(), true);
  std::vector<bool> is_learned;
  struct Range {
    size_t start, end, medium;
  };
  std::vector<Range> ranges;  // of tokens of each medium
  std::set<int64_t> media_ids;
  for (const auto& runs : expansions)
    for (const TokenRun& run : runs)
      if (run.feature) media_ids.insert(*tokenizer_->token_id(run.token));
  if (!bos_.empty() && !text.starts_with(bos_)) {
    out.tokens.push_back(*tokenizer_->bos_id());
    is_learned.push_back(false);
  }
  size_t place = 0;
  for (size_t i = 0; i < ids.size();) {
    if (place < places.size() && spans[i].start >= places[place].start && spans[i].end <= places[place].end && spans[i].end > places[place].start) {
      const Place& here = places[place];
      const size_t start = out.tokens.size();
      std::vector<int64_t>& positions = out.feature_positions[media_name(media[here.medium].kind)];
      for (const TokenRun& run : expansions[here.medium]) {
        const auto known = tokenizer_->token_id(run.token);
        if (known && run.count > 0) {
          if (i >= ids.size() || ids[i] != *known)
            throw Error("the tokenizer takes a media token apart", "'" + run.token + "'", "it has to be an added token of the tokenizer", ExitCode::kBadUsage);
          for (int64_t k = 0; k < run.count; ++k) {
            if (run.feature) positions.push_back(static_cast<int64_t>(out.tokens.size()));
            out.tokens.push_back(*known);
          }
          ++i;
          continue;
        }
        // Words between the tokens ("Frame1: "): up to the next run that is a token.
        while (i < ids.size() && spans[i].end <= here.end) {
          bool next_known = false;
          for (const TokenRun& other : expansions[here.medium]) next_known |= tokenizer_->token_id(other.token) == std::optional(ids[i]);
          if (next_known) break;
          out.tokens.push_back(ids[i++]);
        }
      }
      is_learned.resize(out.tokens.size(), false);
      ranges.push_back({start, out.tokens.size(), here.medium});
      ++place;
      continue;
    }
    if (place < places.size() && spans[i].start >= places[place].end) {  // a medium of no tokens
      ++place;
      continue;
    }
    if (media_ids.contains(ids[i])) throw bad("bad_text", "a text holds the token '" + tokenizer_->token(ids[i]).value_or("") + "', which stands for a medium");
    out.tokens.push_back(ids[i]);
    is_learned.push_back(learn[i]);
    ++i;
  }

  if (options_.max_length > 0 && static_cast<int64_t>(out.tokens.size()) > options_.max_length) {
    const std::string sizes = std::to_string(out.tokens.size()) + " tokens, max_length is " + std::to_string(options_.max_length);
    if (options_.too_long == ConversationOptions::TooLong::kDrop) throw bad("too_long", sizes);
    size_t keep = static_cast<size_t>(options_.max_length);
    for (const Range& range : ranges)
      if (range.start < keep && range.end > keep) keep = range.start;
    for (const Range& range : ranges)
      if (range.end > keep) out.kept[range.medium] = false;
    out.tokens.resize(keep);
    is_learned.resize(keep);
    for (auto& [kind, positions] : out.feature_positions) std::erase_if(positions, [&](int64_t p) { return p >= static_cast<int64_t>(keep); });
    out.cut = true;
    if (std::find(is_learned.begin(), is_learned.end(), true) == is_learned.end())
      throw bad("too_long", "nothing the assistant says fits: " + sizes);
  }
  std::erase_if(out.feature_positions, [](const auto& entry) { return entry.second.empty(); });
  out.labels.assign(out.tokens.size(), kIgnoreLabel);
  bool any = false;
  for (size_t i = 0; i + 1 < out.tokens.size(); ++i)
    if (is_learned[i + 1]) out.labels[i] = out.tokens[i + 1], any = true;
  if (!any) throw bad("no_label", "the assistant says nothing in it");
  return out;
}

}  // namespace mso
