// From a conversation to what a model is trained on: token ids as apply_chat_template of transformers gives them, media
// tokens in their places, labels on what the assistant says.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/chat_template.h"
#include "io/conversation.h"
#include "io/processor.h"
#include "io/tokenizer.h"

namespace mso {

struct EncodedConversation {
  std::vector<int64_t> tokens;  // [t]
  std::vector<int64_t> labels;  // [t] shifted: labels[i] is the token after i, or kIgnoreLabel
  // "image", "video", "audio" → ascending positions that receive features, those of the first medium of the kind first.
  std::map<std::string, std::vector<int64_t>> feature_positions;
  std::vector<bool> kept;  // [media] in the order of Conversation::media(): false where a cut took the medium away
  bool cut = false;
};

struct ConversationOptions {
  MediaPlaceholders placeholders = {"<image>", "<video>", "<audio>"};  // the processor's placeholders()
  int64_t max_length = 0;  // in tokens, media included; 0: no limit
  // What is longer: left out (reason "too_long"), or cut at its end. A cut never goes through the tokens of a medium: it is
  // made before them, and that medium and those behind it are not used.
  enum class TooLong { kDrop, kCut } too_long = TooLong::kDrop;
  // bos in front where the tokenizer puts it before a text and the template does not write it: what apply_chat_template of
  // transformers' processors gives (that of its tokenizers never adds any).
  bool add_bos = false;
};

// Which tokens are learned. Where the template marks what the assistant says ({% generation %}): the tokens that overlap
// such a stretch, as return_assistant_tokens_mask of transformers. Else a turn of the assistant is the stretch that begins
// behind the text of the turns before it with the generation prompt and ends with the text of the turns up to it, each as
// the template writes them alone; white space at its end behind a special token is not part of it. Where the template has
// no generation prompt, or writes earlier turns otherwise than later ones, the turn's own words are looked for instead (a turn without
// any is not learned), and a special token right behind them belongs to them. Media and the first token are never learned.
class ConversationEncoder {
 public:
  ConversationEncoder(std::shared_ptr<const Tokenizer> tokenizer, ChatTemplate chat_template, ConversationOptions options);

  // `expansions`: for each medium of the conversation, in order, what its placeholder is replaced by. Throws
  // BadSampleError: bad_conversation (a medium the family does not take), template_error (the template refuses the conversation, drops or repeats a medium), bad_text (a text
  // holds a placeholder or media token), too_long, no_label. Error (kBadUsage) for media tokens the tokenizer lacks.
  EncodedConversation encode(const Conversation& conversation, const std::vector<std::vector<TokenRun>>& expansions) const;

  const ChatTemplate& chat_template() const { return template_; }
  const ConversationOptions& options() const { return options_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

  // What the assistant says, as stretches of `whole`, the conversation's rendered text, for a template without marks.
  // `joins_special`: a special token right behind the stretch belongs to it. Public for tests.
  struct Stretch {
    size_t start, end;
    bool joins_special = false;
  };
  std::vector<Stretch> stretches(const Conversation& conversation, const std::string& whole) const;

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  ChatTemplate template_;
  ConversationOptions options_;
  std::string bos_;  // what `text` must not begin with for bos to be added; empty: it never is
};

}  // namespace mso
