// What chat templates and conversations come to, one JSON object a line, for comparisons with Python.
//   encode_chat --jinja                          lines {"template", "variables"} → {"text", "generations"}
//   encode_chat FOLDER [--max-length N] [--cut] [--bos]  entries of conversations, with the folder's chat template and tokenizer
//                                                → {"text", "ids", "labels", "positions"}
// Each medium stands for three tokens of its placeholder. Errors → {"error"}. Places count in characters.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "io/conversation_encoder.h"

namespace {
using nlohmann::ordered_json;

size_t characters(const std::string& text, size_t bytes) {
  size_t n = 0;
  for (size_t i = 0; i < bytes; ++i) n += (static_cast<uint8_t>(text[i]) & 0xc0) != 0x80;
  return n;
}

ordered_json render(const ordered_json& line) {
  const mso::JinjaTemplate jinja(line.at("template").get<std::string>(), "template");
  mso::JinjaTemplate::Variables variables;
  for (const auto& [name, value] : line.at("variables").items()) variables.emplace_back(name, mso::jinja::Value::from_json(value));
  const auto rendered = jinja.render(variables);
  ordered_json spans = ordered_json::array();
  for (const auto& [start, end] : rendered.generations) spans.push_back({characters(rendered.text, start), characters(rendered.text, end)});
  return {{"text", rendered.text}, {"generations", spans}};
}

int run(int argc, char** argv) {
  const std::string folder = argv[1];
  std::unique_ptr<mso::ConversationEncoder> encoder;
  mso::ConversationOptions options;
  if (folder != "--jinja") {
    for (int i = 2; i < argc; ++i) {
      const std::string option = argv[i];
      if (option == "--max-length" && i + 1 < argc) options.max_length = std::stoll(argv[++i]);
      if (option == "--bos") options.add_bos = true;
      if (option == "--cut") options.too_long = mso::ConversationOptions::TooLong::kCut;
    }
    mso::ChatTemplate chat = mso::ChatTemplate::load(folder);
    chat.set_date(2025, 3, 14);
    encoder = std::make_unique<mso::ConversationEncoder>(mso::load_tokenizer(folder), std::move(chat), options);
  }
  uint64_t number = 0;
  for (std::string line; std::getline(std::cin, line); ++number) {
    ordered_json out;
    try {
      if (!encoder) {
        out = render(ordered_json::parse(line));
      } else {
        const mso::ConversationEntry entry = mso::parse_conversation(line, "line " + std::to_string(number));
        const auto& conversation = entry.conversation;
        out["text"] = encoder->chat_template().render(conversation, conversation.turns.size(), false, options.placeholders).text;
        std::vector<std::vector<mso::TokenRun>> runs;
        for (const auto& medium : conversation.media()) runs.push_back({{mso::placeholder_of(options.placeholders, medium.kind), 3, true}});
        const mso::EncodedConversation encoded = encoder->encode(conversation, runs);
        out["ids"] = encoded.tokens;
        out["labels"] = encoded.labels;
        out["positions"] = encoded.feature_positions;
        out["kept"] = encoded.kept;
      }
    } catch (const mso::BadSampleError& error) {
      out["error"] = error.what();
    } catch (const mso::Error& error) {
      out["error"] = error.what();
    }
    std::cout << out.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << "\n";
  }
  return 0;
}
}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  mso::init_logging("error");
  if (argc < 2) {
    std::cerr << "usage: encode_chat --jinja | FOLDER [--max-length N] [--cut] [--bos] <lines\n";
    return 2;
  }
  try {
    return run(argc, argv);
  } catch (const mso::Error& error) {
    std::cerr << "encode_chat: " << error.what() << '\n';
    return static_cast<int>(error.exit_code());
  }
}
