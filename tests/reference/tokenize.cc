// Reads lines (of raw bytes, "\n" and "\\" written as backslash escapes) on standard input and prints the ids
// that a tokenizer gives them, one line each; then, behind a tab, the text decoded from the ids, escaped the
// same way. Usage: tokenize TOKENIZER [--special] [--skip-special] [--time] [--dump]
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>

#include "base/error.h"
#include "io/tokenizer.h"

namespace {
std::string unescape(const std::string& line) {
  std::string text;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\' || i + 1 == line.size()) {
      text += line[i];
    } else {
      char c = line[++i];
      text += c == 'n' ? '\n' : c == 'r' ? '\r' : c == '0' ? '\0' : c;
    }
  }
  return text;
}

std::string escape(const std::string& text) {
  std::string line;
  for (char c : text) {
    if (c == '\n')
      line += "\\n";
    else if (c == '\r')
      line += "\\r";
    else if (c == '\0')
      line += "\\0";
    else if (c == '\\')
      line += "\\\\";
    else
      line += c;
  }
  return line;
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int run(int argc, char** argv) {
  bool special = false, skip_special = false, time = false, dump = false;
  for (int i = 2; i < argc; ++i) {
    std::string option = argv[i];
    if (option == "--special")
      special = true;
    else if (option == "--skip-special")
      skip_special = true;
    else if (option == "--time")
      time = true;
    else if (option == "--dump")
      dump = true;
    else
      argc = 0;
  }
  if (argc < 2) {
    std::cerr << "usage: tokenize TOKENIZER [--special] [--skip-special] [--time] [--dump] <lines\n";
    return 2;
  }
  auto tokenizer = mso::load_tokenizer(argv[1]);
  if (dump) {  // the texts that exports write
    std::cout << tokenizer->source_text() << '\0' << tokenizer->config_text();
    return 0;
  }
  std::vector<std::string> texts;
  size_t bytes = 0;
  for (std::string line; std::getline(std::cin, line);) {
    texts.push_back(unescape(line));
    bytes += texts.back().size();
  }
  std::vector<std::vector<int64_t>> ids(texts.size());
  double start = seconds();
  for (size_t i = 0; i < texts.size(); ++i) ids[i] = tokenizer->encode(texts[i], special);
  double taken = seconds() - start;
  if (time) {
    std::printf("%.6f\n", taken);
    std::cerr << bytes << " bytes\n";
    return 0;
  }
  std::string out;
  for (const auto& line : ids) {
    for (int64_t id : line) (out += std::to_string(id)) += ' ';
    (out += '\t') += escape(tokenizer->decode(line, skip_special)) + '\n';
  }
  std::cout << out;
  return 0;
}
}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  try {
    return run(argc, argv);
  } catch (const mso::Error& error) {
    std::cerr << "tokenize: " << error.what() << '\n';
    return static_cast<int>(error.exit_code());
  }
}
