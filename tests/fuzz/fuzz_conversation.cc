// Fuzz target: any bytes as a file of conversations. Every entry is read, renamed, and encoded with a small template.
// Refused with mso::Error or BadSampleError, or: media and file names agree, an entry with other names reads back as the
// same conversation, labels are the tokens that follow, positions lie inside.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "io/conversation_encoder.h"
#include "io/conversation_index.h"
#include "io/conversation_packer.h"
#include "io/micro_batch.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  mso::init_logging("error");
  return 0;
}

namespace {

void check(const mso::ConversationEntry& entry, const mso::ConversationEncoder& encoder) {
  const auto media = entry.conversation.media();
  if (media.size() != entry.files.size()) abort();
  const auto names = mso::member_names(media);
  if (names.size() != media.size()) abort();
  const auto again = mso::parse_conversation(mso::with_files(entry, names), "again");
  const auto renamed = again.conversation.media();
  if (renamed.size() != media.size() || again.conversation.turns.size() != entry.conversation.turns.size()) abort();
  for (size_t i = 0; i < media.size(); ++i) {
    if (renamed[i].kind != media[i].kind) abort();
    try {
      mso::media_path("/media", media[i].file);
    } catch (const mso::BadSampleError&) {
    }
  }
  if (media.size() > 50 || entry.conversation.turns.size() > 50) return;
  std::vector<std::vector<mso::TokenRun>> runs;
  for (const auto& medium : media) runs.push_back({{medium.kind == mso::MediaKind::kImage ? "<image>" : "<pad>", 3, true}});
  try {
    const auto encoded = encoder.encode(entry.conversation, runs);
    if (encoded.labels.size() != encoded.tokens.size() || encoded.tokens.size() > 64) abort();
    for (size_t i = 0; i < encoded.labels.size(); ++i)
      if (encoded.labels[i] != mso::kIgnoreLabel && (i + 1 == encoded.tokens.size() || encoded.labels[i] != encoded.tokens[i + 1])) abort();
    for (const auto& [kind, positions] : encoded.feature_positions) {
      if (positions.size() % 3 != 0) abort();
      for (int64_t p : positions)
        if (p < 0 || p >= static_cast<int64_t>(encoded.tokens.size()) || encoded.tokens[static_cast<size_t>(p)] < 256) abort();
    }
  } catch (const mso::BadSampleError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* const encoders = [] {
    const std::shared_ptr<const mso::Tokenizer> bytes = mso::load_tokenizer("bytes");
    mso::ConversationOptions options;
    options.placeholders.video = "<|v|>";
    options.placeholders.audio = "<|a|>";
    options.max_length = 64;
    options.too_long = mso::ConversationOptions::TooLong::kCut;
    auto* made = new std::vector<mso::ConversationEncoder>;
    for (const char* source :
         {"{% for m in messages %}{{ m.role[:1] }}{{ m.content }}<eos>{% endfor %}{% if add_generation_prompt %}a{% endif %}",
          "{% for m in messages %}{% for c in m.content %}{% generation %}{% if c.type == 'text' %}{{ c.text }}{% elif c.type == 'image' %}<image>"
          "{% else %}<|{{ c.type[:1] }}|>{% endif %}{% endgeneration %}{% endfor %}{% endfor %}"})
      made->emplace_back(bytes, mso::ChatTemplate(source, "t", bytes->config_text()), options);
    return made;
  }();
  static const int fd = ::memfd_create("fuzz.json", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, data, size, 0) != static_cast<ssize_t>(size)) abort();
  try {
    const auto file = mso::ConversationFile::open(path);
    for (uint64_t i = 0; i < file.size() && i < 64; ++i) {
      if (file.where(i).empty()) abort();
      try {
        const auto entry = file.read(i);
        for (const auto& encoder : *encoders) check(entry, encoder);
      } catch (const mso::BadSampleError&) {
      }
    }
  } catch (const mso::Error&) {
  }
  return 0;
}
