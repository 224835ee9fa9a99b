#include "io/jinja_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "io/utf8.h"

namespace mso::jinja {

void delete_flat(void* object, void (*destroy)(void*)) noexcept {
  struct Waiting {
    void* object;
    void (*destroy)(void*);
  };
  thread_local std::vector<Waiting>* open = nullptr;  // of the call further out that deletes
  if (open) {
    open->push_back({object, destroy});
    return;
  }
  std::vector<Waiting> waiting;
  open = &waiting;
  destroy(object);
  while (!waiting.empty()) {
    const Waiting next = waiting.back();
    waiting.pop_back();
    next.destroy(next.object);
  }
  open = nullptr;
}

void Context::fail(const std::string& what, const std::string& hint) const {
  throw Error(what, name_ + " line " + std::to_string(line), hint, ExitCode::kBadData);
}

void Context::fail_depth() {
  --depth_;  // the caller's destructor does not run
  fail("the template nests too deeply", "at most " + std::to_string(limits_.depth) + " levels, macro calls included");
}

void Context::spend(size_t steps) {
  if (steps > steps_left_) fail("the template does too much work", "it goes on for ever, or the conversation is very long");
  steps_left_ -= steps;
}

void Context::check_text_size(size_t bytes) {
  if (bytes > limits_.output_bytes)
    fail("the template makes a text of more than " + std::to_string(limits_.output_bytes >> 20) + " MiB");
  spend(bytes / 64 + 1);
}

Value Value::from_json(const nlohmann::ordered_json& json) {
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return json.get<bool>();
    case nlohmann::ordered_json::value_t::number_integer:
      return json.get<int64_t>();
    case nlohmann::ordered_json::value_t::number_unsigned: {
      const uint64_t number = json.get<uint64_t>();
      return number <= INT64_MAX ? Value(static_cast<int64_t>(number)) : Value(static_cast<double>(number));
    }
    case nlohmann::ordered_json::value_t::number_float:
      return json.get<double>();
    case nlohmann::ordered_json::value_t::string: {
      std::string storage;
      return std::string(valid_utf8(json.get_ref<const std::string&>(), storage));
    }
    case nlohmann::ordered_json::value_t::array: {
      List items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(item));
      return list(std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      Dict dict;
      dict.items.reserve(json.size());
      for (const auto& [key, item] : json.items()) {
        std::string storage;
        dict.items.emplace_back(std::string(valid_utf8(key, storage)), from_json(item));
      }
      return Value::dict(std::move(dict));
    }
    default:
      return none();
  }
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0;
  if (is_text()) return !text().empty();
  if (const Sequence* found = sequence()) return found->kind == Sequence::kGenerator || !found->items.empty();
  if (const Dict* found = dict()) return !found->items.empty();
  return true;
}

const char* Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_float()) return "float";
  if (is_text()) return "str";
  if (const Sequence* found = sequence())
    return found->kind == Sequence::kList ? "list" : found->kind == Sequence::kTuple ? "tuple" : "generator";
  if (dict()) return "dict";
  if (name_space()) return "Namespace";
  if (loop()) return "LoopContext";
  return "function";
}

// repr(float): the shortest digits that read back equal, as 1e-05 below 1e-4 and 1e+16 from 1e16 on.
std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[400];
  const double size = std::fabs(value);
  const bool scientific = size != 0 && (size < 1e-4 || size >= 1e16);
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value,
                           scientific ? std::chars_format::scientific : std::chars_format::fixed)
                 .ptr;
  std::string text(buffer, end);
  if (!scientific && text.find('.') == std::string::npos) text += ".0";
  return text;
}

namespace {

void append_text_repr(std::string& out, const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  out += quote;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const uint32_t c = next_code_point(text, at);
    char escape[16];
    if (c == static_cast<uint32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c < 0x20 || (c >= 0x7f && c < 0xa1) || c == 0xad) {
      std::snprintf(escape, sizeof escape, "\\x%02x", c);
      out += escape;
    } else if (c != ' ' && is_white_space(c)) {  // what else is not printable stays as it is
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out.append(text, start, at - start);
    }
  }
  out += quote;
}

void append_json_text(std::string& out, const std::string& text, bool ensure_ascii) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    uint32_t c = next_code_point(text, at);
    char escape[16];
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (c < 0x20 || (ensure_ascii && c > 0x7e && c < 0x10000)) {
          std::snprintf(escape, sizeof escape, "\\u%04x", c);
          out += escape;
        } else if (ensure_ascii && c >= 0x10000) {
          c -= 0x10000;
          std::snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xd800 + (c >> 10), 0xdc00 + (c & 0x3ff));
          out += escape;
        } else {
          out.append(text, start, at - start);
        }
    }
  }
  out += '"';
}

void append_json(Context& context, std::string& out, const Value& value, const JsonStyle& style, int level) {
  Context::Deeper deeper(context);
  context.spend(1);
  auto line_break = [&](int at) {
    if (style.indent < 0) return;
    const size_t spaces = static_cast<size_t>(style.indent) * static_cast<size_t>(at);
    context.check_text_size(out.size() + spaces);
    out += '\n';
    out.append(spaces, ' ');
  };
  if (value.is_none()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.truthy() ? "true" : "false";
  } else if (value.is_int()) {
    out += std::to_string(value.integer());
  } else if (value.is_float()) {
    const double number = value.number();
    out += std::isnan(number) ? "NaN" : std::isinf(number) ? (number < 0 ? "-Infinity" : "Infinity") : float_text(number);
  } else if (value.is_text()) {
    context.check_text_size(out.size() + value.text().size());
    append_json_text(out, value.text(), style.ensure_ascii);
  } else if (const Sequence* sequence = value.indexable()) {
    out += '[';
    for (size_t i = 0; i < sequence->items.size(); ++i) {
      if (i > 0) out += style.item_separator;
      line_break(level + 1);
      append_json(context, out, sequence->items[i], style, level + 1);
    }
    if (!sequence->items.empty()) line_break(level);
    out += ']';
  } else if (const Dict* dict = value.dict()) {
    std::vector<const std::pair<Value, Value>*> members;
    for (const auto& member : dict->items) members.push_back(&member);
    if (style.sort_keys)
      std::stable_sort(members.begin(), members.end(),
                       [&](const auto* a, const auto* b) { return order(context, a->first, b->first) < 0; });
    out += '{';
    for (size_t i = 0; i < members.size(); ++i) {
      if (i > 0) out += style.item_separator;
      line_break(level + 1);
      const Value& key = members[i]->first;
      if (key.is_text()) {
        append_json_text(out, key.text(), style.ensure_ascii);
      } else if (key.is_number() || key.is_none()) {
        std::string text;
        append_json(context, text, key, style, level);
        append_json_text(out, text, style.ensure_ascii);
      } else {
        context.fail(std::string("a ") + key.type_name() + " cannot be a key of JSON");
      }
      out += style.key_separator;
      append_json(context, out, members[i]->second, style, level + 1);
    }
    if (!members.empty()) line_break(level);
    out += '}';
  } else {
    context.fail(std::string("a value of type ") + value.type_name() + " cannot be written as JSON");
  }
}

}  // namespace

std::string to_json(Context& context, const Value& value, const JsonStyle& style) {
  std::string out;
  append_json(context, out, value, style, 0);
  context.check_text_size(out.size());
  return out;
}

void append_repr(Context& context, std::string& out, const Value& value) {
  Context::Deeper deeper(context);
  context.spend(1);
  if (value.is_undefined()) {
    out += "Undefined";
  } else if (value.is_text()) {
    context.check_text_size(out.size() + value.text().size());
    append_text_repr(out, value.text());
  } else if (const Sequence* sequence = value.indexable()) {
    const bool tuple = sequence->kind == Sequence::kTuple;
    out += tuple ? '(' : '[';
    for (size_t i = 0; i < sequence->items.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(context, out, sequence->items[i]);
    }
    if (tuple && sequence->items.size() == 1) out += ',';
    out += tuple ? ')' : ']';
  } else if (const Dict* dict = value.dict()) {
    out += '{';
    for (size_t i = 0; i < dict->items.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(context, out, dict->items[i].first);
      out += ": ";
      append_repr(context, out, dict->items[i].second);
    }
    out += '}';
  } else {
    out += to_text(context, value);
  }
}

std::string to_text(Context& context, const Value& value) {
  if (value.is_text()) return value.text();
  if (value.is_undefined()) return {};
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.truthy() ? "True" : "False";
  if (value.is_int()) return std::to_string(value.integer());
  if (value.is_float()) return float_text(value.number());
  if (value.indexable() || value.dict()) {
    std::string out;
    append_repr(context, out, value);
    context.check_text_size(out.size());
    return out;
  }
  context.fail(std::string("a value of type ") + value.type_name() + " has no text worth printing");
}

bool equal(Context& context, const Value& a, const Value& b) {
  Context::Deeper deeper(context);
  context.spend(1);
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_number() && b.is_number()) {
    if (!a.is_float() && !b.is_float()) return a.integer() == b.integer();
    return a.number() == b.number();
  }
  if (a.is_text() && b.is_text()) {
    context.spend(std::min(a.text().size(), b.text().size()) / 64);
    return a.text() == b.text();
  }
  if (const Sequence *x = a.indexable(), *y = b.indexable(); x && y) {
    if (x->kind != y->kind || x->items.size() != y->items.size()) return false;
    for (size_t i = 0; i < x->items.size(); ++i)
      if (!equal(context, x->items[i], y->items[i])) return false;
    return true;
  }
  if (const Dict *x = a.dict(), *y = b.dict(); x && y) {
    if (x->items.size() != y->items.size()) return false;
    for (const auto& [key, value] : x->items) {
      const Value* other = find(context, *y, key);
      if (!other || !equal(context, value, *other)) return false;
    }
    return true;
  }
  if (a.sequence() && a.sequence() == b.sequence()) return true;
  if (a.name_space() || b.name_space()) return a.name_space() == b.name_space();
  if (a.callable() || b.callable()) return a.callable() == b.callable();
  return false;
}

int order(Context& context, const Value& a, const Value& b) {
  Context::Deeper deeper(context);
  context.spend(1);
  if (a.is_number() && b.is_number()) {
    if (!a.is_float() && !b.is_float()) return a.integer() < b.integer() ? -1 : a.integer() > b.integer();
    const double x = a.number(), y = b.number();
    return x < y ? -1 : x > y;
  }
  if (a.is_text() && b.is_text()) {
    context.spend(std::min(a.text().size(), b.text().size()) / 64);
    return a.text().compare(b.text());  // UTF-8 sorts as code points do
  }
  if (const Sequence *x = a.indexable(), *y = b.indexable(); x && y && x->kind == y->kind) {
    for (size_t i = 0; i < x->items.size() && i < y->items.size(); ++i)
      if (!equal(context, x->items[i], y->items[i])) return order(context, x->items[i], y->items[i]);
    return x->items.size() < y->items.size() ? -1 : x->items.size() > y->items.size();
  }
  for (const Value* value : {&a, &b})
    if (auto undefined = std::get_if<Undefined>(&value->storage()))
      context.fail(undefined->why ? *undefined->why : "a value is undefined");
  context.fail(std::string("a ") + a.type_name() + " and a " + b.type_name() + " have no order");
}

bool contains(Context& context, const Value& container, const Value& item) {
  if (container.is_text()) {
    if (!item.is_text()) context.fail(std::string("'in' a text wants a text, not a ") + item.type_name());
    context.spend(container.text().size() / 64 + 1);
    return container.text().find(item.text()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) return find(context, *dict, item) != nullptr;
  List storage;
  for (const Value& value : iterate(context, container, storage))
    if (equal(context, value, item)) return true;
  return false;
}

const Value* find(Context& context, const Dict& dict, const Value& key) {
  if (key.is_text()) {  // the usual case, quicker
    context.spend(dict.items.size() / 16 + 1);
    for (const auto& [name, value] : dict.items)
      if (name.is_text() && name.text() == key.text()) return &value;
    return nullptr;
  }
  if (key.sequence() || key.dict()) {
    if (!key.indexable() || key.indexable()->kind != Sequence::kTuple)
      context.fail(std::string("a ") + key.type_name() + " cannot be a key");
  }
  for (const auto& [name, value] : dict.items)
    if (equal(context, name, key)) return &value;
  return nullptr;
}

void set(Context& context, Dict& dict, Value key, Value value) {
  if (const Value* found = find(context, dict, key))
    *const_cast<Value*>(found) = std::move(value);
  else
    dict.items.emplace_back(std::move(key), std::move(value));
}

const List& iterate(Context& context, const Value& value, List& storage) {
  if (const Sequence* sequence = value.sequence()) {
    context.spend(sequence->items.size() / 8);
    if (sequence->kind == Sequence::kGenerator) {
      if (sequence->consumed) return storage;
      sequence->consumed = true;
    }
    return sequence->items;
  }
  if (const Dict* dict = value.dict()) {
    context.spend(dict->items.size());
    for (const auto& [key, item] : dict->items) storage.push_back(key);
    return storage;
  }
  if (value.is_text()) {
    const std::string& text = value.text();
    context.spend(text.size());
    for (size_t at = 0; at < text.size(); at += utf8_length(text[at]))
      storage.push_back(text.substr(at, utf8_length(text[at])));
    return storage;
  }
  if (value.is_undefined()) return storage;
  context.fail(std::string("a value of type ") + value.type_name() + " cannot be gone through");
}

int64_t length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_text()) return static_cast<int64_t>(count_code_points(value.text()));
  if (const Sequence* sequence = value.indexable()) return static_cast<int64_t>(sequence->items.size());
  if (const Dict* dict = value.dict()) return static_cast<int64_t>(dict->items.size());
  if (Loop* loop = value.loop()) return static_cast<int64_t>(loop->items->size());
  return -1;
}

std::vector<size_t> character_starts(std::string_view text) {
  std::vector<size_t> starts;
  starts.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) starts.push_back(at);
  starts.push_back(text.size());
  return starts;
}

}  // namespace mso::jinja
