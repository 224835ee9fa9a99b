// Reading conversations, and cutting and labelling them. Ids and labels are compared with transformers in tests/reference.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <numeric>

#include "base/error.h"
#include "io/conversation_encoder.h"
#include "io/conversation_index.h"
#include "io/micro_batch.h"

namespace mso {
namespace {

namespace fs = std::filesystem;

// What parse_conversation() says of an entry it refuses.
std::string refusal(const std::string& text) {
  try {
    parse_conversation(text, "f.json entry 3");
    return "accepted";
  } catch (const BadSampleError& error) {
    return error.what();
  }
}

TEST(Conversation, ReadsLlavasStyle) {
  const auto entry = parse_conversation(
      R"({"id": "a7", "image": ["x.jpg", "y/z.png"], "conversations": [{"from": "human", "value": "<image>\nWhat?\n<image>"},
          {"from": "gpt", "value": "A cat."}, {"from": "human", "value": "Sure?"}, {"from": "gpt", "value": "Yes."}]})",
      "f.json entry 3");
  const Conversation& c = entry.conversation;
  EXPECT_EQ(c.id, "a7");
  EXPECT_EQ(c.where, "f.json entry 3 (id a7)");
  ASSERT_EQ(c.turns.size(), 4u);
  EXPECT_EQ(c.turns[0].role, "user");
  EXPECT_EQ(c.turns[0].parts, (std::vector<Part>{{false, "x.jpg", MediaKind::kImage}, {true, "What?", {}}, {false, "y/z.png", MediaKind::kImage}}));
  EXPECT_EQ(c.turns[1].role, "assistant");
  EXPECT_EQ(c.media(), (std::vector<MediumRef>{{MediaKind::kImage, "x.jpg"}, {MediaKind::kImage, "y/z.png"}}));
  const auto renamed = nlohmann::json::parse(with_files(entry, {"0.jpg", "1.png"}));
  EXPECT_EQ(renamed["image"], (nlohmann::json{"0.jpg", "1.png"}));
  EXPECT_EQ(renamed["conversations"][0]["value"], "<image>\nWhat?\n<image>");
}

TEST(Conversation, ReadsMessages) {
  const auto entry = parse_conversation(
      R"({"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": [{"type": "image", "image": "a.jpg"},
          {"type": "text", "text": "Hi <b>"}, {"type": "audio"}, {"type": "video", "path": "v.mp4"},
          {"type": "image_url", "image_url": {"url": "b.png"}}]}, {"role": "assistant", "content": "Yes", "name": "bot", "x": null}],
          "audios": ["s.ogg"]})",
      "f");
  EXPECT_EQ(entry.conversation.media(), (std::vector<MediumRef>{{MediaKind::kImage, "a.jpg"}, {MediaKind::kAudio, "s.ogg"},
                                                                {MediaKind::kVideo, "v.mp4"}, {MediaKind::kImage, "b.png"}}));
  EXPECT_EQ(entry.conversation.turns[2].extra, (nlohmann::ordered_json{{"name", "bot"}}));
  const auto renamed = nlohmann::json::parse(with_files(entry, {"0", "1", "2", "3"}));
  EXPECT_EQ(renamed["messages"][1]["content"][0]["image"], "0");
  EXPECT_EQ(renamed["audios"][0], "1");
  EXPECT_EQ(renamed["messages"][1]["content"][3]["path"], "2");
  EXPECT_EQ(renamed["messages"][1]["content"][4]["image_url"]["url"], "3");
}

TEST(Conversation, TextOnlyEntriesAndEmptyImagesAreFine) {
  for (const char* text : {R"({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]})",
                           R"({"image": "", "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]})",
                           R"({"image": null, "images": [], "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": ""}]})"})
    EXPECT_EQ(refusal(text), "accepted") << text;
}

TEST(Conversation, WhatIsWrongIsNamed) {
  struct Case {
    const char *text, *reason, *word;
  } cases[] = {
      {"", "bad_json", "f.json entry 3"},
      {"{", "bad_json", "f.json entry 3"},
      {"[]", "bad_conversation", "no JSON object"},
      {R"({"id": 5, "conversations": []})", "bad_conversation", "(id 5)"},
      {R"({"id": "q"})", "bad_conversation", "neither"},
      {R"({"conversations": [], "messages": []})", "bad_conversation", "both"},
      {R"({"conversations": [{"from": "human"}]})", "bad_conversation", "turn 0 has no 'value'"},
      {R"({"conversations": [{"value": "x"}]})", "bad_conversation", "turn 0 has no text 'from'"},
      {R"({"conversations": [{"from": "alien", "value": "x"}]})", "bad_conversation", "alien"},
      {R"({"conversations": [{"from": "human", "value": 3}]})", "bad_conversation", "no text"},
      {R"({"conversations": [7]})", "bad_conversation", "turn 0"},
      {R"({"id": "z", "conversations": [{"from": "human", "value": "<image> a"}]})", "missing_media", "turn 0 has a <image> for which there is no file"},
      {R"({"id": "z", "image": "a.jpg", "conversations": [{"from": "human", "value": "a"}]})", "missing_media", "the image 'a.jpg' has no <image>"},
      {R"({"image": ["a.jpg"], "conversations": [{"from": "human", "value": "<image><image>"}]})", "missing_media", "(1 in the entry)"},
      {R"({"video": "a.mp4", "conversations": [{"from": "human", "value": "<image>"}]})", "missing_media", "<image>"},
      {R"({"audio": "a.ogg", "conversations": [{"from": "human", "value": "<video>"}]})", "missing_media", "<video>"},
      {R"({"image": 5, "conversations": [{"from": "human", "value": "<image>"}]})", "bad_conversation", "neither a file name"},
      {R"({"image": [""], "conversations": [{"from": "human", "value": "<image>"}]})", "bad_conversation", "neither a file name"},
      {R"({"messages": [{"role": "user"}]})", "bad_conversation", "no 'content'"},
      {R"({"messages": [{"content": "x"}]})", "bad_conversation", "no text 'role'"},
      {R"({"messages": [{"role": "user", "content": [{"type": "smell"}]}]})", "bad_conversation", "smell"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image", "image": 3}]}]})", "bad_conversation", "names no file"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image", "base64": "xx"}]}]})", "bad_conversation", "bytes themselves"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})", "missing_media", "part 0 of message 0"},
      {"{\"conversations\": [{\"from\": \"human\", \"value\": \"\xff\"}]}", "bad_json", ""},
  };
  for (const Case& c : cases) {
    const std::string said = refusal(c.text);
    EXPECT_TRUE(said.starts_with(c.reason)) << c.text << ": " << said;
    EXPECT_NE(said.find(c.word), std::string::npos) << c.text << ": " << said;
    EXPECT_NE(said.find("f.json entry 3"), std::string::npos) << said;
  }
  std::string deep = "{\"messages\": ", many = "{";
  for (int i = 0; i < 100000; ++i) deep += "[";
  EXPECT_TRUE(refusal(deep).starts_with("bad_json"));
  for (int i = 0; i < 60000; ++i) many += "\"" + std::to_string(i) + "\":1,";
  EXPECT_TRUE(refusal(many + "\"x\":1}").starts_with("too_large"));
  many.resize(many.size() / 8);
  many.resize(many.rfind(','));
  EXPECT_TRUE(refusal(many + "}").starts_with("too_large")) << refusal(many + "}");
}

class ConversationFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "mso-conversation-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path write(const std::string& text) {
    std::ofstream(folder_ / "c.json", std::ios::binary) << text;
    return folder_ / "c.json";
  }
  fs::path folder_;
};

constexpr const char* kEntry = R"({"id": "%s", "conversations": [{"from": "human", "value": "a ] [ } , \" \\"}, {"from": "gpt", "value": "b"}]})";
std::string entry(const std::string& id) {
  std::string text = kEntry;
  return text.replace(text.find("%s"), 2, id);
}

TEST_F(ConversationFiles, ArraysAndLinesAreIndexed) {
  for (const std::string& text :
       {"[" + entry("0") + "," + entry("1") + ",\n " + entry("2") + " ]\n", "\xef\xbb\xbf [ " + entry("0") + " , " + entry("1") + "," + entry("2") + "]",
        entry("0") + "\n" + entry("1") + "\n" + entry("2"), "\n" + entry("0") + "\r\n\n  \n" + entry("1") + "\n" + entry("2") + "\n\n"}) {
    const auto file = ConversationFile::open(write(text));
    ASSERT_EQ(file.size(), 3u) << text;
    for (uint64_t i = 0; i < 3; ++i) {
      const auto found = file.read(i);
      EXPECT_EQ(found.conversation.id, std::to_string(i));
      EXPECT_EQ(found.conversation.turns[0].text, "a ] [ } , \" \\");
    }
  }
  const auto lines = ConversationFile::open(write("\n" + entry("0") + "\n\n\n" + entry("1") + "\n" + entry("2")));
  EXPECT_EQ(lines.where(0), "c.json line 2");
  EXPECT_EQ(lines.where(1), "c.json line 5");
  EXPECT_EQ(lines.where(2), "c.json line 6");
  EXPECT_EQ(ConversationFile::open(write("[" + entry("0") + "]")).where(0), "c.json entry 0");
  EXPECT_EQ(ConversationFile::open(write("")).size(), 0u);
  EXPECT_EQ(ConversationFile::open(write(" [ ] ")).size(), 0u);
}

TEST_F(ConversationFiles, ABadEntryDoesNotHurtTheOthers) {
  const auto lines = ConversationFile::open(write(entry("0") + "\n{broken\n" + entry("2")));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines.read(2).conversation.id, "2");
  try {
    lines.read(1);
    FAIL();
  } catch (const BadSampleError& error) {
    EXPECT_NE(std::string(error.what()).find("c.json line 2"), std::string::npos);
  }
  const auto array = ConversationFile::open(write("[" + entry("0") + ", 7, \"x\", {\"a\" 1}, " + entry("4") + "]"));
  ASSERT_EQ(array.size(), 5u);
  for (uint64_t i : {1, 2, 3}) EXPECT_THROW(array.read(i), BadSampleError);
  EXPECT_EQ(array.read(4).conversation.id, "4");
}

TEST_F(ConversationFiles, DamagedArraysAreRefused) {
  for (const std::string& text : {"[" + entry("0"), std::string("["), "[" + entry("0") + "] x", std::string("[,]"), "[" + entry("0") + ",]",
                                  std::string("[{\"a"), std::string("[}]"), "[" + entry("0") + ",," + entry("1") + "]"})
    EXPECT_THROW(ConversationFile::open(write(text)), Error) << text;
  EXPECT_THROW(ConversationFile::open(folder_), Error);
  EXPECT_THROW(ConversationFile::open(folder_ / "none"), Error);
}

// ---- encoding ----

constexpr const char* kChatMl =
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<eos>' }}\n{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";

Conversation conversation(const std::string& text) { return parse_conversation(text, "f").conversation; }

ConversationEncoder encoder(const std::string& source, int64_t max_length = 0, bool cut = true) {
  ConversationOptions options;
  options.max_length = max_length;
  options.too_long = cut ? ConversationOptions::TooLong::kCut : ConversationOptions::TooLong::kDrop;
  std::shared_ptr<const Tokenizer> bytes = load_tokenizer("bytes");
  return ConversationEncoder(bytes, ChatTemplate(source, "t", bytes->config_text()), options);
}

// The learned tokens as text; "|" between tokens that do not follow each other.
std::string learned(const EncodedConversation& encoded) {
  const auto bytes = load_tokenizer("bytes");
  std::string text;
  for (size_t i = 0; i < encoded.labels.size(); ++i) {
    if (encoded.labels[i] == kIgnoreLabel) continue;
    if (i > 0 && encoded.labels[i - 1] == kIgnoreLabel && !text.empty()) text += '|';
    EXPECT_EQ(encoded.labels[i], encoded.tokens[i + 1]);
    text += bytes->decode(std::vector<int64_t>{encoded.labels[i]});
  }
  return text;
}

const std::vector<TokenRun> kThree = {{"<image>", 3, true}};

TEST(ConversationEncoder, LearnsWhatTheAssistantSays) {
  const Conversation c = conversation(R"({"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "q1"}, {"from": "gpt", "value": "a1"},
      {"from": "human", "value": "q2"}, {"from": "gpt", "value": "a2 "}]})");
  EXPECT_EQ(learned(encoder(kChatMl).encode(c, {})), "a1<eos>|a2 <eos>");
  // Marked: as marked.
  EXPECT_EQ(learned(encoder("{% for m in messages %}{{ m.role }}{% generation %}{{ m.content[:1] }}{% endgeneration %}{% endfor %}").encode(c, {})),
            "s|q|a|q|a");
  // No generation prompt: the words, and a special token behind them.
  EXPECT_EQ(learned(encoder("{% for m in messages %}{{ m.role + ': ' + m.content.strip() }}{% if m.role == 'assistant' %}<eos>{% endif %}\n{% endfor %}").encode(c, {})),
            "a1<eos>|a2<eos>");
  // Earlier turns are written otherwise than the last.
  EXPECT_EQ(learned(encoder("{% for m in messages %}{% if loop.last %}LAST{% endif %}{{ m.role + ': ' + m.content }}<eos>{% endfor %}").encode(c, {})),
            "a1<eos>|a2 <eos>");
}

TEST(ConversationEncoder, PutsMediaInTheirPlaces) {
  const Conversation c = conversation(R"({"image": ["0", "1"], "conversations": [{"from": "human", "value": "<image>\nx"}, {"from": "gpt", "value": "a"},
      {"from": "human", "value": "y<image>"}, {"from": "gpt", "value": "b"}]})");
  const auto e = encoder(kChatMl).encode(c, {kThree, {{"<image>", 2, true}, {"<pad>", 1, false}, {"<image>", 1, true}, {"!", 2, false}}});
  const auto bytes = load_tokenizer("bytes");
  EXPECT_EQ(bytes->decode(e.tokens), "<|user|><image><image><image>\nx<eos>\n<|assistant|>a<eos>\n<|user|>y<image><image><pad><image>!!<eos>\n<|assistant|>b<eos>\n");
  ASSERT_EQ(e.feature_positions.size(), 1u);
  const std::vector<int64_t>& positions = e.feature_positions.at("image");
  ASSERT_EQ(positions.size(), 6u);
  for (int64_t p : positions) EXPECT_EQ(e.tokens[static_cast<size_t>(p)], 259);
  EXPECT_EQ(positions[0], 8);
  EXPECT_EQ(e.kept, (std::vector<bool>{true, true}));
  EXPECT_EQ(learned(e), "a<eos>|b<eos>");
}

TEST(ConversationEncoder, CutsNeverThroughAMedium) {
  const Conversation c = conversation(R"({"image": ["0", "1"], "conversations": [{"from": "human", "value": "<image>\nx"}, {"from": "gpt", "value": "abc"},
      {"from": "human", "value": "<image>"}, {"from": "gpt", "value": "d"}]})");
  const auto whole = encoder(kChatMl).encode(c, {kThree, kThree});
  const auto size = static_cast<int64_t>(whole.tokens.size());
  const int64_t second = whole.feature_positions.at("image")[3];
  EXPECT_FALSE(whole.cut);
  for (int64_t length = size; length > 0; --length) {
    EncodedConversation e;
    try {
      e = encoder(kChatMl, length).encode(c, {kThree, kThree});
    } catch (const BadSampleError& error) {
      EXPECT_EQ(error.reason(), "too_long");
      EXPECT_LT(length, whole.feature_positions.at("image")[0] + 3 + 2 + 2 + 13 + 1) << "one letter of the answer would have fitted";
      continue;
    }
    const auto kept = static_cast<int64_t>(e.tokens.size());
    EXPECT_EQ(kept, length < second + 3 && length > second ? second : length);
    EXPECT_TRUE(std::equal(e.tokens.begin(), e.tokens.end(), whole.tokens.begin()));
    EXPECT_EQ(e.cut, length < size);
    EXPECT_EQ(e.kept, (std::vector<bool>{true, length >= second + 3}));
    EXPECT_EQ(e.feature_positions.at("image").size(), length >= second + 3 ? 6u : 3u);
    EXPECT_EQ(e.labels.back(), kIgnoreLabel);
  }
  try {
    encoder(kChatMl, size - 1, false).encode(c, {kThree, kThree});
    FAIL();
  } catch (const BadSampleError& error) {
    EXPECT_EQ(error.reason(), "too_long");
  }
}

TEST(ConversationEncoder, RefusesWhatWouldBeWrong) {
  auto reason = [](const std::string& source, const std::string& text, const std::vector<std::vector<TokenRun>>& runs) {
    try {
      encoder(source).encode(conversation(text), runs);
      return std::string("accepted");
    } catch (const BadSampleError& error) {
      EXPECT_NE(error.detail().find("f"), std::string::npos);
      return error.reason();
    } catch (const Error& error) {
      return std::string("error ") + std::to_string(static_cast<int>(error.exit_code()));
    }
  };
  const std::string plain = R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})";
  const std::string picture = R"({"image": "i", "conversations": [{"from": "human", "value": "<image>q"}, {"from": "gpt", "value": "a"}]})";
  EXPECT_EQ(reason(kChatMl, plain, {}), "accepted");
  EXPECT_EQ(reason("{{ raise_exception('x') }}", plain, {}), "template_error");
  EXPECT_EQ(reason("{{ messages[0].content }}", plain, {}), "template_error");                // the answer is lost
  EXPECT_EQ(reason("{{ messages[1].content }}", picture, {kThree}), "template_error");        // the picture is lost
  EXPECT_EQ(reason("{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}", picture, {kThree}), "template_error");
  EXPECT_EQ(reason(kChatMl, R"({"conversations": [{"from": "human", "value": "q"}]})", {}), "no_label");
  EXPECT_EQ(reason(kChatMl, R"({"messages": [{"role": "user", "content": [{"type": "image", "image": "i"}, {"type": "text", "text": "a <image>"}]}]})", {kThree}), "bad_text");
  EXPECT_EQ(reason(kChatMl, picture, {{{"<nosuch>", 2, true}}}), "error 2");
  EXPECT_EQ(reason(kChatMl, picture, {}), "error 1");
}

TEST(ChatTemplates, AreFoundInAFolder) {
  std::string name = (fs::temp_directory_path() / "mso-template-XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const fs::path folder = name;
  auto write = [&](const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  };
  auto text_of = [&](const std::string& which) {
    return ChatTemplate::load(folder, which).render(conversation(R"({"messages": [{"role": "user", "content": "q"}]})"), 1, false, {}).text;
  };
  EXPECT_THROW(text_of("default"), Error);
  write(folder / "tokenizer_config.json", R"({"bos_token": {"content": "<B>"}, "chat_template": [{"name": "default", "template": "1{{ bos_token }}"}, {"name": "tool_use", "template": "tools"}]})");
  EXPECT_EQ(text_of("default"), "1<B>");
  EXPECT_EQ(text_of("tool_use"), "tools");
  EXPECT_THROW(text_of("nosuch"), Error);
  write(folder / "chat_template.json", R"({"chat_template": "2{{ bos_token }}"})");
  EXPECT_EQ(text_of("default"), "2<B>");
  write(folder / "chat_template.jinja", "3{{ bos_token }}");
  EXPECT_EQ(text_of("default"), "3<B>");
  write(folder / "additional_chat_templates/rag.jinja", "4");
  EXPECT_EQ(text_of("rag"), "4");
  // All of them, the stronger file first, for an export.
  using Sources = std::map<std::string, std::string>;
  EXPECT_EQ(ChatTemplate::all(folder, R"({"chat_template": {"default": "5", "more": "6"}})"),
            (Sources{{"default", "3{{ bos_token }}"}, {"more", "6"}, {"rag", "4"}, {"tool_use", "tools"}}));
  EXPECT_EQ(ChatTemplate::all("", R"({"chat_template": "5"})"), (Sources{{"default", "5"}}));
  for (const char* none : {"", "[", "[]", "{}", R"({"chat_template": null})", R"({"chat_template": [1, {"name": 2}]})"})
    EXPECT_EQ(ChatTemplate::all("/nothing/there", none), Sources{}) << none;
  // Names become names of files.
  for (const char* bad : {"../x", "a/b", "", ".hidden", "..", "a b", "\u0000"})
    EXPECT_EQ(ChatTemplate::all("", std::string(R"({"chat_template": {")") + bad + R"(": "x"}})"), Sources{}) << bad;
  write(folder / "chat_template.jinja", "{% if %}");
  EXPECT_THROW(text_of("default"), Error);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace mso
