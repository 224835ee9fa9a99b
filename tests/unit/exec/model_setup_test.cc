// What a configuration can get wrong about model, tokenizer and template is refused before anything starts, by the same
// function for `mso train` and `mso plan`.
#include "exec/model_setup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace mso {
namespace {

constexpr const char* kTiny =
    "model: {tokenizer: bytes, vision: {hidden_size: 8, intermediate_size: 8, num_hidden_layers: 2, num_attention_heads: 2, "
    "image_size: 16, patch_size: 8}, text: {vocab_size: 264, hidden_size: 8, intermediate_size: 8, num_hidden_layers: 1, "
    "num_attention_heads: 2}}\n";

Config tiny(const std::function<void(Config&)>& change = {}) {
  Config config = parse_config(kTiny, "a.yaml").config;
  if (change) change(config);
  return config;
}

std::string refusal(const std::function<void(Config&)>& change) {
  try {
    check_model_inputs(tiny(change));
    return "";
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), ExitCode::kBadUsage);
    return e.what();
  }
}

TEST(ModelInputs, AutoImageTokenIsTheTokenizers) {
  EXPECT_EQ(check_model_inputs(tiny()).model.image_token_index, 259);  // <image> of the byte tokenizer
  const ModelInputs given = check_model_inputs(tiny([](Config& c) { c.model.image_token_index = 260; }));
  EXPECT_EQ(given.model.image_token_index, 260);
  EXPECT_EQ(given.samples.image_token, 260);
}

TEST(ModelInputs, VideoAndSoundTakeTheTokenizersTokensWhereAskedFor) {
  const LlavaConfig plain = check_model_inputs(tiny()).model;
  EXPECT_FALSE(plain.video || plain.audio);
  const LlavaConfig omni = check_model_inputs(tiny([](Config& c) {
                             c.model.video.frames = 4;
                             c.model.video.pool = 1;
                             c.model.audio = {{"d_model", 8}, {"encoder_attention_heads", 2}, {"max_source_positions", 10}};
                           })).model;
  EXPECT_EQ(omni.video_token_index, 260);
  EXPECT_EQ(omni.video->frames, 4);
  EXPECT_EQ(omni.positions_per_frame(), 4);
  EXPECT_EQ(omni.audio_token_index, 261);
  EXPECT_EQ(omni.audio->positions_per_clip(), 5);
  EXPECT_EQ(check_model_inputs(tiny([](Config& c) { c.model.video_token_index = 262; })).model.video_token_index, 262);
}

TEST(ModelInputs, ConfigJsonWinsOverTheTokenizer) {
  char name[] = "/tmp/mso-setup-XXXXXX";
  const std::filesystem::path folder = ::mkdtemp(name);
  const std::string rest =
      R"("model_type": "llava", "vision_config": {"image_size": 16, "patch_size": 8, "hidden_size": 8, "num_attention_heads": 2},
         "text_config": {"vocab_size": 264, "hidden_size": 8, "num_attention_heads": 2}})";
  auto index = [&](const std::string& first) {
    std::ofstream(folder / "config.json") << "{" << first << rest;
    return check_model_inputs(tiny([&](Config& c) {
             c.model.path = folder;
             c.model.vision = c.model.text = nlohmann::json::object();
           }))
        .model.image_token_index;
  };
  EXPECT_EQ(index(R"("image_token_index": 7, )"), 7);
  EXPECT_EQ(index(R"("image_token_id": 8, )"), 8);
  EXPECT_EQ(index(""), 259);
  std::filesystem::remove_all(folder);
}

TEST(ModelInputs, RefusesWhatTrainingWouldRefuse) {
  auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_PRED2(has, refusal([](Config& c) { c.model.image_token_index = 264; }), "image_token_index 264");
  EXPECT_PRED2(has, refusal([](Config& c) { c.model.text["vocab_size"] = 260; }), "more tokens");
  EXPECT_PRED2(has, refusal([](Config& c) { c.model.text["hiden_size"] = 8; }), "hidden_size");  // strict
  EXPECT_PRED2(has, refusal([](Config& c) { c.model.tokenizer = "/nowhere"; }), "/nowhere");
  EXPECT_PRED2(has, refusal([](Config& c) { c.train.device = "cuda"; }), "cuda");
  EXPECT_PRED2(has, refusal([](Config& c) { c.data.prompt_template = "<image>"; }), "{caption}");
  EXPECT_PRED2(has, refusal([](Config& c) { c.data.caption = "json"; }), "data.caption");
  EXPECT_PRED2(has, refusal([](Config& c) { c.data.image_size = 32; }), "data.image_size");
  EXPECT_PRED2(has, refusal([](Config& c) { c.model.path = "/nowhere"; }), "/nowhere/config.json");
}

// With video of at most four frames and sound of 20 mel frames.
void take_all(Config& c) {
  c.model.video.frames = 4;
  c.model.video.pool = 1;
  c.model.audio = {{"d_model", 8}, {"encoder_attention_heads", 2}, {"max_source_positions", 10}};
}

TEST(ModelInputs, AlignmentsAreInForceOrRefusedByName) {
  const LlavaConfig model = check_model_inputs(tiny(take_all)).model;
  const Config none = tiny();
  for (const char* modality : {"video", "audio", "signal"}) EXPECT_FALSE(alignment_rule(none, model, modality)) << modality;
  const Config some = tiny([](Config& c) {
    take_all(c);
    c.data.alignment.video.length = 64;
    c.data.alignment.audio = {20, "auto", -1.5};
  });
  const AlignmentRule video = *alignment_rule(some, model, "video"), audio = *alignment_rule(some, model, "audio");
  EXPECT_EQ(video.method, AlignmentRule::Method::kInterpolate);
  EXPECT_EQ(video.length, 64);
  EXPECT_EQ(aligned_rows(32, video), 64);
  EXPECT_EQ(aligned_rows(8, video), 16);
  EXPECT_EQ(audio.method, AlignmentRule::Method::kPad);
  EXPECT_EQ(audio.value, -1.5f);
  const ModelInputs inputs = check_model_inputs(some);
  EXPECT_EQ(inputs.media[Modality::kVideo].most_tokens, 64 * 4);
  EXPECT_TRUE(inputs.media[Modality::kVideo].same_tokens);

  auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_PRED2(has, refusal([](Config& c) { c.data.alignment.video.length = 8; }), "data.alignment.video.length: 8");  // takes no video
  EXPECT_PRED2(has, refusal([](Config& c) { c.data.alignment.audio.length = 20; }), "data.alignment.audio.length: 20");
  EXPECT_PRED2(has, refusal([](Config& c) { take_all(c), c.data.alignment.audio.length = 64; }), "reads 20 frames");
  EXPECT_PRED2(has, refusal([](Config& c) { c.data.alignment.signal.length = 64; }), "data.alignment.signal.length: 64");
  EXPECT_PRED2(has, refusal([](Config& c) { c.data.alignment.signal.value = 1; }), "data.alignment.signal.value");
  EXPECT_PRED2(has, refusal([](Config& c) { take_all(c), c.data.alignment.video.rule = "pad"; }), "data.alignment.video.rule");
}

TEST(ModelInputs, TheChatTemplateIsTheModelsOrTheOneThatIsNamed) {
  auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const ModelInputs without = check_model_inputs(tiny());
  EXPECT_FALSE(without.samples.conversations);
  EXPECT_PRED2(has, without.samples.no_conversations, "data.chat_template: auto");
  auto source = [](const std::string& where) {
    const ModelInputs inputs = check_model_inputs(tiny([&](Config& c) { c.data.chat_template = where; }));
    return inputs.samples.conversations ? inputs.samples.conversations->chat_template().source() : "none";
  };
  EXPECT_PRED2(has, source("llava_v1"), "A chat between a curious human");
  EXPECT_PRED2(has, source("chatml"), "<|im_start|>");
  EXPECT_PRED2(has, source("plain"), "<image>");
  char name[] = "/tmp/mso-setup-XXXXXX";
  const std::filesystem::path folder = ::mkdtemp(name);
  std::ofstream(folder / "mine.jinja") << "{{ messages[0].content }}{{ eos_token }}";
  EXPECT_EQ(source(folder / "mine.jinja"), "{{ messages[0].content }}{{ eos_token }}");
  auto refused = [&](const std::string& where) { return refusal([&](Config& c) { c.data.chat_template = where; }); };
  EXPECT_PRED2(has, refused("vicuna"), "data.chat_template: vicuna");
  EXPECT_PRED2(has, refused(folder), folder.c_str());  // a folder without any
  std::ofstream(folder / "wrong.jinja") << "{% if %}";
  EXPECT_PRED2(has, refused(folder / "wrong.jinja"), "wrong.jinja");
  EXPECT_PRED2(has, refused(folder / "none.jinja"), "none.jinja");
  std::ofstream(folder / "chat_template.jinja") << "{{ messages[0].content }}";
  EXPECT_EQ(source(folder), "{{ messages[0].content }}");
  std::filesystem::remove_all(folder);

  // What LLaVA-1.5 is trained on, from conv_vicuna_v1 of its code: no space behind </s>, bos from the tokenizer.
  ConversationOptions options;
  options.add_bos = true;
  const std::shared_ptr<const Tokenizer> bytes = load_tokenizer("bytes");
  std::string missing;
  ChatTemplate v1 = *chat_template(tiny([](Config& c) { c.data.chat_template = "llava_v1"; }), *bytes, options.placeholders, &missing);
  const ConversationEncoder encoder(bytes, std::move(v1), options);
  const Conversation talk = parse_conversation(R"({"image": "i", "conversations": [{"from": "human", "value": "<image>\nq1"}, {"from": "gpt", "value": "a1 "},
      {"from": "human", "value": "q2"}, {"from": "gpt", "value": "a2"}]})", "f").conversation;
  const EncodedConversation encoded = encoder.encode(talk, {{{"<image>", 1, true}}});
  EXPECT_EQ(bytes->decode(encoded.tokens),
            "<bos>A chat between a curious human and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite "
            "answers to the human's questions. USER: <image>\nq1 ASSISTANT: a1<eos>USER: q2 ASSISTANT: a2<eos>");
  std::vector<int64_t> learned;
  for (int64_t label : encoded.labels)
    if (label != kIgnoreLabel) learned.push_back(label);
  EXPECT_EQ(bytes->decode(learned), " a1<eos> a2<eos>");
  // The first stage: the picture and the caption.
  ChatTemplate plain = *chat_template(tiny([](Config& c) { c.data.chat_template = "plain"; }), *bytes, options.placeholders, &missing);
  const ConversationEncoder first(bytes, std::move(plain), options);
  const Conversation caption = parse_conversation(R"({"image": "i", "conversations": [{"from": "human", "value": "Tell.\n<image>"}, {"from": "gpt", "value": "an owl"}]})", "f").conversation;
  EXPECT_EQ(bytes->decode(first.encode(caption, {{{"<image>", 2, true}}}).tokens), "<bos><image><image>an owl\n");
}

// What a folder from a hub brings beside its weights: kept for exports, or left out where it is broken on purpose.
TEST(ModelSetup, FilesBesideTheWeights) {
  std::string name = (std::filesystem::temp_directory_path() / "mso-files-XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const std::filesystem::path folder = name;
  const Config config = tiny([&](Config& c) { c.model.path = folder; });
  const auto bytes = load_tokenizer("bytes");
  auto files = [&] { return nlohmann::json::parse(model_files(config, *bytes, nullptr)); };
  EXPECT_EQ(files(), nlohmann::json::object());
  std::ofstream(folder / "chat_template.jinja") << "a {{ b \xff }}";  // no UTF-8, no template: as it is, but for what JSON cannot hold
  std::ofstream(folder / "generation_config.json") << R"({"temperature": 0.5})";
  EXPECT_EQ(files(), (nlohmann::json{{"chat_templates", {{"default", "a {{ b \ufffd }}"}}}, {"generation_config", {{"temperature", 0.5}}}}));
  const std::string deep = R"({"a": )" + std::string(200000, '[') + std::string(200000, ']') + "}";
  for (const std::string& bad : {deep, std::string("{"), std::string("[1]"), std::string()}) {
    std::ofstream(folder / "generation_config.json") << bad;
    EXPECT_FALSE(files().contains("generation_config")) << bad.substr(0, 20);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace mso
