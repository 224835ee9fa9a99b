#include "base/config_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <charconv>
#include <cmath>
#include <sstream>

namespace mso {

using nlohmann::json;

namespace {

constexpr int kMaxDepth = 32;
constexpr size_t kMaxNodes = 100000;

struct TooLarge {};

struct SecondDocument {
  int line;
};

// Reads the events of a text to see that it is one document of bounded size, before a tree of it is built: yaml-cpp
// takes a closing bracket without an opening one for another empty document, and another, without end.
class OneDocument : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) throw SecondDocument{mark.line + 1};
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override { value(); }
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override { value(); }
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override { value(); }
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    open();
  }
  void OnSequenceEnd() override { --depth_; }
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    open();
  }
  void OnMapEnd() override { --depth_; }

  int documents() const { return documents_; }

 private:
  void value() {
    if (++values_ > kMaxNodes) throw TooLarge();
  }
  void open() {
    value();
    if (++depth_ > kMaxDepth) throw TooLarge();
  }

  int documents_ = 0, depth_ = 0;
  size_t values_ = 0;
};

class Converter {
 public:
  Converter(const std::string& name, std::vector<ConfigMistake>& mistakes)
      : name_(name), mistakes_(mistakes) {}

  ConfigNode convert(const YAML::Node& node, int depth) {
    // Aliases share nodes, so a small text can stand for an endless or huge tree.
    if (depth > kMaxDepth || ++count_ > kMaxNodes) throw TooLarge();
    ConfigNode result;
    result.line = node.Mark().line + 1;
    switch (node.Type()) {
      case YAML::NodeType::Map:
        result.kind = ConfigNode::Kind::kMap;
        for (const auto& pair : node) {
          const int line = pair.first.Mark().line + 1;
          if (!pair.first.IsScalar() || !is_clean_utf8(pair.first.Scalar())) {
            mistake(line, "a key must be plain text");
            continue;
          }
          result.map.push_back({pair.first.Scalar(), line, convert(pair.second, depth + 1)});
        }
        break;
      case YAML::NodeType::Sequence:
        result.kind = ConfigNode::Kind::kList;
        for (const auto& item : node) result.list.push_back(convert(item, depth + 1));
        break;
      case YAML::NodeType::Scalar:
        result.text = node.Scalar();
        if (!is_clean_utf8(result.text)) {
          mistake(result.line, "the text is not UTF-8, or holds a NUL character");
          result.text.clear();
        }
        result.quoted = !node.Tag().empty() && node.Tag() != "?";
        result.value = result.quoted ? json(result.text) : resolve_plain_scalar(result.text);
        break;
      case YAML::NodeType::Null:
      case YAML::NodeType::Undefined:
        break;
    }
    return result;
  }

 private:
  void mistake(int line, const std::string& message) {
    mistakes_.push_back({name_ + ":" + std::to_string(line), "", message});
  }

  const std::string& name_;
  std::vector<ConfigMistake>& mistakes_;
  size_t count_ = 0;
};

// One past the well-formed UTF-8 sequence at `i`, or 0 (table 3-7 of the Unicode standard).
size_t utf8_sequence_end(std::string_view text, size_t i) {
  auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
  auto follows = [&](size_t at, unsigned low, unsigned high) { return byte(at) >= low && byte(at) <= high; };
  const unsigned lead = byte(i);
  if (lead < 0x80) return i + 1;
  if (lead >= 0xc2 && lead <= 0xdf) return follows(i + 1, 0x80, 0xbf) ? i + 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const unsigned low = lead == 0xe0 ? 0xa0 : 0x80, high = lead == 0xed ? 0x9f : 0xbf;
    return follows(i + 1, low, high) && follows(i + 2, 0x80, 0xbf) ? i + 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const unsigned low = lead == 0xf0 ? 0x90 : 0x80, high = lead == 0xf4 ? 0x8f : 0xbf;
    return follows(i + 1, low, high) && follows(i + 2, 0x80, 0xbf) && follows(i + 3, 0x80, 0xbf) ? i + 4 : 0;
  }
  return 0;
}

}  // namespace

bool is_clean_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '\0') return false;
    i = utf8_sequence_end(text, i);
    if (i == 0) return false;
  }
  return true;
}

json resolve_plain_scalar(const std::string& text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return json();
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  const char* begin = text.data() + (text[0] == '+' ? 1 : 0);
  const char* end = text.data() + text.size();
  // What follows a sign must be a number, or from_chars would take "+-1", "inf" and "nan".
  const char* digits = begin + (begin < end && *begin == '-' && text[0] != '+' ? 1 : 0);
  if (digits == end || !((*digits >= '0' && *digits <= '9') || *digits == '.')) return text;
  int64_t integer = 0;
  const bool based = end - begin > 2 && begin[0] == '0' && (begin[1] == 'x' || begin[1] == 'o');
  auto [integer_end, integer_error] = based
                                          ? std::from_chars(begin + 2, end, integer, begin[1] == 'x' ? 16 : 8)
                                          : std::from_chars(begin, end, integer);
  if (integer_error == std::errc() && integer_end == end && !(based && integer < 0)) return integer;
  double number = 0;
  auto [number_end, number_error] = std::from_chars(begin, end, number);
  if (!based && number_error == std::errc() && number_end == end && std::isfinite(number)) return number;
  return text;
}

ConfigNode parse_yaml_tree(std::string_view text, const std::string& name,
                           std::vector<ConfigMistake>& mistakes) {
  ConfigNode empty;
  empty.kind = ConfigNode::Kind::kMap;
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    OneDocument check;
    while (parser.HandleNextDocument(check)) {
    }
    if (check.documents() == 0) return empty;
    return Converter(name, mistakes).convert(YAML::Load(std::string(text)), 0);
  } catch (const YAML::Exception& error) {
    const std::string where = error.mark.is_null() ? name : name + ":" + std::to_string(error.mark.line + 1);
    mistakes.push_back({where, "", "not valid YAML: " + error.msg});
  } catch (const SecondDocument& second) {
    mistakes.push_back({name + ":" + std::to_string(second.line), "",
                        "a second YAML document begins here, or a bracket closes that none opened"});
  } catch (const TooLarge&) {
    mistakes.push_back({name, "", "nested too deeply, or far too many values"});
  }
  return empty;
}

static ConfigNode json_to_tree(const json& value, int depth) {
  if (depth > kMaxDepth) throw Error("configuration refused", "nested too deeply", "", ExitCode::kBadUsage);
  ConfigNode node;
  if (value.is_object()) {
    node.kind = ConfigNode::Kind::kMap;
    for (const auto& [name, inner] : value.items())
      node.map.push_back({name, 0, json_to_tree(inner, depth + 1)});
  } else if (value.is_array()) {
    node.kind = ConfigNode::Kind::kList;
    for (const json& item : value) node.list.push_back(json_to_tree(item, depth + 1));
  } else {
    node.value = value;
    node.quoted = value.is_string();
    if (value.is_string())
      node.text = value.get<std::string>();
    else if (!value.is_null())
      node.text = value.dump();
  }
  return node;
}

ConfigNode json_to_tree(const json& value) {
  return json_to_tree(value, 0);
}

}  // namespace mso
