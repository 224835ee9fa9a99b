#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "io/jinja_functions.h"
#include "io/utf8.h"

namespace mso::jinja {

const Value* ArgumentReader::look_up(const std::string& name) {
  if (next_ < arguments_.positional.size()) return &arguments_.positional[next_++];
  for (size_t i = 0; i < arguments_.named.size(); ++i)
    if (arguments_.named[i].first == name) {
      taken_ = std::move(arguments_.named[i].second);
      arguments_.named.erase(arguments_.named.begin() + static_cast<std::ptrdiff_t>(i));
      return &taken_;
    }
  return nullptr;
}
Value ArgumentReader::optional(const std::string& name, Value otherwise) {
  const Value* found = look_up(name);
  return found ? *found : std::move(otherwise);
}
Value ArgumentReader::required(const std::string& name) {
  const Value* found = look_up(name);
  if (!found) context_.fail("the argument '" + name + "' of '" + function_ + "' is missing");
  return *found;
}
int64_t ArgumentReader::integer(const std::string& name, int64_t otherwise) {
  const Value value = optional(name, otherwise);
  if (!value.is_int() && !value.is_bool())
    context_.fail("the argument '" + name + "' of '" + function_ + "' is a " + value.type_name() + ", not an int");
  return value.integer();
}
std::string ArgumentReader::text(const std::string& name, std::string otherwise) {
  const Value value = optional(name, std::move(otherwise));
  if (!value.is_text())
    context_.fail("the argument '" + name + "' of '" + function_ + "' is a " + value.type_name() + ", not a text");
  return value.text();
}
bool ArgumentReader::truth(const std::string& name, bool otherwise) { return optional(name, otherwise).truthy(); }
void ArgumentReader::done() {
  if (next_ < arguments_.positional.size()) context_.fail("'" + function_ + "' has too many arguments");
  if (!arguments_.named.empty())
    context_.fail("'" + function_ + "' has no argument '" + arguments_.named[0].first + "'");
}

namespace {

bool is_space(uint32_t c) { return is_white_space(c) || (c >= 0x1c && c <= 0x1f); }
utf8proc_category_t category(uint32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }
bool is_cased_letter(uint32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT;
}
bool is_letter(uint32_t c) {
  const auto kind = category(c);
  return is_cased_letter(c) || kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_LO;
}

template <typename Change>
std::string each_character(const std::string& text, Change&& change) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) change(next_code_point(text, at), out);
  return out;
}
void append_upper(uint32_t c, std::string& out) {
  if (c == 0xdf)
    out += "SS";
  else
    append_utf8(out, static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}
void append_lower(uint32_t c, std::string& out) {
  if (c == 0x130)
    out += "i\u0307";
  else
    append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}
void append_title(uint32_t c, std::string& out) {
  if (c == 0xdf)
    out += "Ss";
  else
    append_utf8(out, static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

std::string titled_text(const std::string& text) {
  bool inside = false;
  return each_character(text, [&](uint32_t c, std::string& out) {
    const bool cased = is_cased_letter(c);
    if (cased && !inside)
      append_title(c, out);
    else if (cased)
      append_lower(c, out);
    else
      append_utf8(out, c);
    inside = cased;
  });
}

template <typename Test>
bool all_characters(const std::string& text, Test&& test) {
  for (size_t at = 0; at < text.size();)
    if (!test(next_code_point(text, at))) return false;
  return !text.empty();
}

// isupper() and islower(): at least one cased letter, and none of the other case.
bool has_case(const std::string& text, bool upper) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const auto kind = category(next_code_point(text, at));
    if (kind == UTF8PROC_CATEGORY_LT || kind == (upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU)) return false;
    any |= kind == (upper ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL);
  }
  return any;
}

List split_text(Context& context, const std::string& text, const Value& separator, int64_t most, bool from_right) {
  List parts;
  context.spend(text.size() / 8 + 1);
  size_t left = most < 0 ? SIZE_MAX : static_cast<size_t>(most);
  if (separator.is_none()) {
    // Words between white space; what is left over keeps its inner white space.
    struct Word {
      size_t start, end;
    };
    std::vector<Word> words;
    bool inside = false;
    for (size_t at = 0; at < text.size();) {
      const size_t start = at;
      if (is_space(next_code_point(text, at))) {
        inside = false;
      } else {
        if (!inside) words.push_back({start, at});
        words.back().end = at;
        inside = true;
      }
    }
    if (left != SIZE_MAX && words.size() > left) {
      if (from_right) {
        words.erase(words.begin(), words.end() - static_cast<std::ptrdiff_t>(left) - 1);
        words.front().start = 0;
      } else {
        words.resize(left + 1);
        words.back().end = text.size();
      }
    }
    for (const Word& word : words) parts.push_back(text.substr(word.start, word.end - word.start));
    return parts;
  }
  if (!separator.is_text()) context.fail(std::string("a separator is a text, not a ") + separator.type_name());
  const std::string& mark = separator.text();
  if (mark.empty()) context.fail("a separator is empty");
  if (from_right) {
    size_t end = text.size();
    while (left-- > 0) {
      const size_t at = end < mark.size() ? std::string::npos : text.rfind(mark, end - mark.size());
      if (at == std::string::npos) break;
      parts.push_back(text.substr(at + mark.size(), end - at - mark.size()));
      context.spend(1);
      end = at;
    }
    parts.push_back(text.substr(0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  size_t start = 0;
  while (left-- > 0) {
    const size_t at = text.find(mark, start);
    if (at == std::string::npos) break;
    parts.push_back(text.substr(start, at - start));
    context.spend(1);
    start = at + mark.size();
  }
  parts.push_back(text.substr(start));
  return parts;
}

List split_lines(const std::string& text, bool keep) {
  List lines;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t c = next_code_point(text, at);
    if (!((c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(start, (keep ? at : begin) - start));
    start = at;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

// Place of a byte in characters.
int64_t character_at(const std::string& text, size_t byte) { return length(Value(text.substr(0, byte))); }

// find() and rfind() within characters [start, end); npos for nothing.
size_t find_text(Context& context, const std::string& text, ArgumentReader& reader, bool from_right) {
  const std::string wanted = reader.text("sub", "");
  const auto starts = character_starts(text);
  const auto size = static_cast<int64_t>(starts.size()) - 1;
  auto bound = [&](const char* name, int64_t otherwise) {
    const Value value = reader.optional(name, Value::none());
    if (value.is_none()) return otherwise;
    if (!value.is_int()) context.fail("a place in a text is an int");
    return value.integer() < 0 ? std::max<int64_t>(0, value.integer() + size) : value.integer();
  };
  const int64_t from = bound("start", 0), to = std::min(bound("end", size), size);
  reader.done();
  context.spend(text.size() / 16 + 1);
  if (from > to) return std::string::npos;
  const size_t begin = starts[static_cast<size_t>(from)], end = starts[static_cast<size_t>(to)];
  const std::string_view part = std::string_view(text).substr(begin, end - begin);
  const size_t at = from_right ? part.rfind(wanted) : part.find(wanted);
  return at == std::string::npos ? at : at + begin;
}

bool starts_or_ends(Context& context, const std::string& text, const Value& with, bool starts) {
  if (with.is_text()) return starts ? text.starts_with(with.text()) : text.ends_with(with.text());
  const Sequence* options = with.indexable();
  if (!options || options->kind != Sequence::kTuple)
    context.fail(std::string("a text or a tuple of texts is wanted, not a ") + with.type_name());
  for (const Value& option : options->items)
    if (starts_or_ends(context, text, option, starts)) return true;
  return false;
}

// str.format(): {} {0} {name}, without format specifications.
std::string format_text(Context& context, const std::string& format, Arguments& arguments) {
  std::string out;
  size_t next = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    if ((c == '{' || c == '}') && i + 1 < format.size() && format[i + 1] == c) {
      out += c;
      ++i;
    } else if (c == '{') {
      const size_t end = format.find('}', i);
      if (end == std::string::npos) context.fail("a format's { does not end");
      const std::string name = format.substr(i + 1, end - i - 1);
      i = end;
      const Value* value = nullptr;
      if (name.find_first_not_of("0123456789") == std::string::npos && name.size() < 9) {
        const size_t index = name.empty() ? next++ : std::stoul(name);
        if (index < arguments.positional.size()) value = &arguments.positional[index];
      } else {
        for (const auto& [given, named] : arguments.named)
          if (given == name) value = &named;
      }
      if (!value) context.fail("the format field {" + name + "} has no value, or is not supported");
      out += to_text(context, *value);
      context.check_text_size(out.size());
    } else if (c == '}') {
      context.fail("a format has a } without {");
    } else {
      out += c;
    }
  }
  return out;
}

std::string padded(Context& context, const std::string& text, int64_t width, const std::string& fill, int side) {
  if (width <= 0) return text;
  const int64_t missing = width - length(Value(text));
  if (missing <= 0) return text;
  if (length(Value(fill)) != 1) context.fail("the filling is not one character");
  if (static_cast<uint64_t>(missing) > context.limits().output_bytes) context.check_text_size(SIZE_MAX / 2);
  // str.center() puts the odd one left where the width is odd.
  const int64_t left = side < 0 ? missing : side > 0 ? 0 : missing / 2 + (missing & width & 1);
  context.check_text_size(text.size() + static_cast<size_t>(missing) * fill.size());
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

constexpr std::array<std::string_view, 39> kTextMethods = {
    "strip",      "lstrip",   "rstrip",  "split",      "rsplit",     "splitlines",   "upper",        "lower",
    "title",      "capitalize", "swapcase", "casefold", "replace",   "startswith",   "endswith",     "find",
    "rfind",      "index",    "rindex",  "count",      "join",       "format",       "isdigit",      "isdecimal",
    "isnumeric",  "isalpha",  "isalnum", "isspace",    "isupper",    "islower",      "removeprefix", "removesuffix",
    "partition",  "rpartition", "ljust", "rjust",      "center",     "zfill",        "isascii"};
constexpr std::array<std::string_view, 4> kOtherTextMethods = {"encode", "expandtabs", "translate", "format_map"};
constexpr std::array<std::string_view, 2> kListMethods = {"index", "count"};
constexpr std::array<std::string_view, 5> kDictMethods = {"get", "items", "keys", "values", "copy"};
// jinja2's immutable sandbox refuses them.
constexpr std::array<std::string_view, 13> kChanging = {"append", "extend", "insert", "pop",     "remove",    "reverse", "sort",
                                                        "clear",  "update", "setdefault", "popitem", "fromkeys", "__class__"};

template <typename Names>
bool among(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value text_method(Context& context, const std::string& text, const std::string& name, Arguments& arguments) {
  if (name == "format") return format_text(context, text, arguments);
  context.check_text_size(text.size());
  ArgumentReader reader(context, name, arguments);
  auto finish = [&](Value value) {
    reader.done();
    return value;
  };
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const Value characters = reader.optional("chars", Value::none());
    if (!characters.is_none() && !characters.is_text()) context.fail("strip wants a text");
    return finish(stripped_text(text, characters.is_text() ? &characters.text() : nullptr, name != "rstrip", name != "lstrip"));
  }
  if (name == "split" || name == "rsplit") {
    const Value separator = reader.optional("sep", Value::none());
    const int64_t most = reader.integer("maxsplit", -1);
    return finish(Value::list(split_text(context, text, separator, most, name == "rsplit")));
  }
  if (name == "splitlines") return finish(Value::list(split_lines(text, reader.truth("keepends", false))));
  if (name == "upper") return finish(upper_text(text));
  if (name == "lower" || name == "casefold") return finish(lower_text(text));
  if (name == "title") return finish(titled_text(text));
  if (name == "capitalize") return finish(capitalized_text(text));
  if (name == "swapcase")
    return finish(each_character(text, [](uint32_t c, std::string& out) {
      category(c) == UTF8PROC_CATEGORY_LU ? append_lower(c, out) : append_upper(c, out);
    }));
  if (name == "replace") {
    const Value old = reader.required("old"), with = reader.required("new");
    if (!old.is_text() || !with.is_text()) context.fail("replace wants texts");
    const int64_t count = reader.integer("count", -1);
    return finish(replaced_text(context, text, old.text(), with.text(), count));
  }
  if (name == "startswith" || name == "endswith") {
    const bool starts = name == "startswith";
    return finish(starts_or_ends(context, text, reader.required("prefix"), starts));
  }
  if (name == "find" || name == "rfind" || name == "index" || name == "rindex") {
    const size_t at = find_text(context, text, reader, name[0] == 'r');
    if (at != std::string::npos) return character_at(text, at);
    if (name.ends_with("index")) context.fail("the text looked for is not there");
    return int64_t{-1};
  }
  if (name == "count") {
    const std::string wanted = reader.text("sub", "");
    if (wanted.empty()) return finish(length(Value(text)) + 1);
    int64_t count = 0;
    for (size_t at = 0; (at = text.find(wanted, at)) != std::string::npos; at += wanted.size()) ++count;
    return finish(count);
  }
  if (name == "join") {
    List storage;
    std::string out;
    const Value values = reader.required("iterable");
    bool first = true;
    for (const Value& value : iterate(context, values, storage)) {
      if (!value.is_text()) context.fail(std::string("join wants texts, not a ") + value.type_name());
      if (!first) out += text;
      first = false;
      out += value.text();
      context.check_text_size(out.size());
    }
    return finish(out);
  }
  if (name == "isdigit" || name == "isdecimal" || name == "isnumeric")
    return finish(all_characters(text, [&](uint32_t c) {
      const auto kind = category(c);
      return kind == UTF8PROC_CATEGORY_ND || (name == "isnumeric" && (kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO)) ||
             (name == "isdigit" && (c == 0xb2 || c == 0xb3 || c == 0xb9 || (c >= 0x2070 && c <= 0x2089)));
    }));
  if (name == "isalpha") return finish(all_characters(text, is_letter));
  if (name == "isalnum")
    return finish(all_characters(text, [](uint32_t c) {
      const auto kind = category(c);
      return is_letter(c) || kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
    }));
  if (name == "isspace") return finish(all_characters(text, is_space));
  if (name == "isascii") return finish(std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; }));
  if (name == "isupper") return finish(has_case(text, true));
  if (name == "islower") return finish(has_case(text, false));
  if (name == "removeprefix" || name == "removesuffix") {
    const std::string part = reader.text("prefix", "");
    if (name == "removeprefix") return finish(text.starts_with(part) ? text.substr(part.size()) : text);
    return finish(text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text);
  }
  if (name == "partition" || name == "rpartition") {
    const std::string mark = reader.text("sep", "");
    if (mark.empty()) context.fail("a separator is empty");
    const size_t at = name[0] == 'r' ? text.rfind(mark) : text.find(mark);
    List parts = at == std::string::npos ? (name[0] == 'r' ? List{"", "", text} : List{text, "", ""})
                                         : List{text.substr(0, at), mark, text.substr(at + mark.size())};
    return finish(Value::list(std::move(parts), Sequence::kTuple));
  }
  if (name == "zfill") {
    const int64_t width = reader.integer("width", 0);
    const bool sign = text.starts_with('-') || text.starts_with('+');
    return finish((sign ? text.substr(0, 1) : "") + padded(context, text.substr(sign), width > 0 ? width - sign : 0, "0", -1));
  }
  const int64_t width = reader.integer("width", 0);
  const std::string fill = reader.text("fillchar", " ");
  return finish(padded(context, text, width, fill, name == "rjust" ? -1 : name == "ljust" ? 1 : 0));
}

Value list_method(Context& context, const Sequence& sequence, const std::string& name, Arguments& arguments) {
  ArgumentReader reader(context, name, arguments);
  const Value wanted = reader.required("value");
  reader.done();
  int64_t count = 0;
  for (size_t i = 0; i < sequence.items.size(); ++i) {
    if (!equal(context, sequence.items[i], wanted)) continue;
    if (name == "index") return static_cast<int64_t>(i);
    ++count;
  }
  if (name == "index") context.fail("the value looked for is not in the list");
  return count;
}

Value dict_method(Context& context, const Value& object, const std::string& name, Arguments& arguments) {
  const Dict& dict = *object.dict();
  ArgumentReader reader(context, name, arguments);
  if (name == "get") {
    const Value key = reader.required("key"), otherwise = reader.optional("default", Value::none());
    reader.done();
    const Value* found = find(context, dict, key);
    return found ? *found : otherwise;
  }
  reader.done();
  if (name == "copy") return object;
  List items;
  context.spend(dict.items.size());
  for (const auto& [key, value] : dict.items)
    items.push_back(name == "keys" ? key : name == "values" ? value : Value::list({key, value}, Sequence::kTuple));
  return Value::list(std::move(items));
}

// loop.cycle and loop.changed.
Value loop_method(Context& context, Loop& loop, const std::string& name, Arguments& arguments) {
  if (name == "cycle") {
    if (arguments.positional.empty()) context.fail("cycle has no values");
    return arguments.positional[loop.index % arguments.positional.size()];
  }
  bool same = loop.seen.size() == 1 && loop.seen[0].size() == arguments.positional.size();
  for (size_t i = 0; same && i < arguments.positional.size(); ++i)
    same = equal(context, loop.seen[0][i], arguments.positional[i]);
  if (same) return false;
  loop.seen = {arguments.positional};
  return true;
}

Value loop_attribute(const Loop& loop, const std::string& name) {
  const auto index = static_cast<int64_t>(loop.index), size = static_cast<int64_t>(loop.items->size());
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return size - index;
  if (name == "revindex0") return size - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == size;
  if (name == "length") return size;
  if (name == "depth") return int64_t{1};  // of recursive loops, which are not supported
  if (name == "depth0") return int64_t{0};
  if (name == "previtem") return index > 0 ? (*loop.items)[loop.index - 1] : Value::undefined("there is no previous item");
  if (name == "nextitem") return index + 1 < size ? (*loop.items)[loop.index + 1] : Value::undefined("there is no next item");
  return Value::undefined("'loop' has no attribute '" + name + "'");
}

}  // namespace

std::string upper_text(const std::string& text) { return each_character(text, append_upper); }

std::string lower_text(const std::string& text) {
  // A capital sigma at the end of a word becomes the final one.
  std::string out;
  bool letter_before = false;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = next_code_point(text, at);
    if (c == 0x3a3) {
      size_t next = at;
      const bool letter_behind = at < text.size() && is_cased_letter(next_code_point(text, next));
      append_utf8(out, letter_before && !letter_behind ? 0x3c2 : 0x3c3);
    } else {
      append_lower(c, out);
    }
    letter_before = is_cased_letter(c);
  }
  return out;
}

std::string capitalized_text(const std::string& text) {
  if (text.empty()) return {};
  size_t at = 0;
  std::string out;
  append_title(next_code_point(text, at), out);
  return out + lower_text(text.substr(at));
}

std::string stripped_text(const std::string& text, const std::string* characters, bool left, bool right) {
  auto goes = [&](size_t start, size_t end) {
    if (characters) return characters->find(text.substr(start, end - start)) != std::string::npos;
    size_t at = start;
    return is_space(next_code_point(text, at));
  };
  size_t begin = 0, end = text.size();
  while (left && begin < end && goes(begin, begin + utf8_length(text[begin]))) begin += utf8_length(text[begin]);
  while (right && end > begin) {
    size_t start = end - 1;
    while ((static_cast<uint8_t>(text[start]) & 0xc0) == 0x80) --start;
    if (!goes(start, end)) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

std::string replaced_text(Context& context, const std::string& text, const std::string& old, const std::string& with,
                          int64_t count) {
  std::string out;
  size_t left = count < 0 ? SIZE_MAX : static_cast<size_t>(count);
  if (old.empty()) {  // between all characters
    for (size_t at = 0; left-- > 0;) {
      out += with;
      context.check_text_size(out.size());
      if (at >= text.size()) return out;
      out.append(text, at, utf8_length(text[at]));
      at += utf8_length(text[at]);
      if (left == 0) return out + text.substr(at);
    }
    return text;
  }
  size_t done = 0;
  while (left-- > 0) {
    const size_t at = text.find(old, done);
    if (at == std::string::npos) break;
    out.append(text, done, at - done);
    out += with;
    context.check_text_size(out.size());
    done = at + old.size();
  }
  return out + text.substr(done);
}

bool is_method(const Value& object, const std::string& name) {
  if (object.is_text()) return among(kTextMethods, name);
  if (object.indexable()) return among(kListMethods, name);
  if (object.dict()) return among(kDictMethods, name);
  if (object.loop()) return name == "cycle" || name == "changed";
  return false;
}

Value call_method(Context& context, const Value& object, const std::string& name, Arguments& arguments) {
  context.spend(1);
  if (object.is_text()) return text_method(context, object.text(), name, arguments);
  if (const Sequence* sequence = object.indexable()) return list_method(context, *sequence, name, arguments);
  if (object.dict()) return dict_method(context, object, name, arguments);
  return loop_method(context, *object.loop(), name, arguments);
}

Value attribute(Context& context, const Value& object, const std::string& name) {
  context.spend(1);
  if (auto undefined = std::get_if<Undefined>(&object.storage()))
    context.fail(undefined->why ? *undefined->why : "a value is undefined");
  if (const Namespace* found = object.name_space()) {
    for (const auto& [key, value] : found->items)
      if (key == name) return value;
    return Value::undefined("the namespace has no attribute '" + name + "'");
  }
  if (is_method(object, name))
    return Value::function(name, [object, name](Context& c, Arguments& a) { return call_method(c, object, name, a); });
  if (const Loop* loop = object.loop()) return loop_attribute(*loop, name);
  if (name.starts_with('_') || ((object.indexable() || object.dict()) && among(kChanging, name))) {
    const Value* found = object.dict() && name.starts_with('_') ? find(context, *object.dict(), name) : nullptr;
    return found ? *found : Value::undefined("'" + name + "' of a " + object.type_name() + " may not be used in a template");
  }
  if (object.is_text() && among(kOtherTextMethods, name)) context.fail("the method '" + name + "' of texts is not supported");
  if (const Dict* dict = object.dict())
    if (const Value* found = find(context, *dict, name)) return *found;
  return Value::undefined(std::string("'") + object.type_name() + " object' has no attribute '" + name + "'");
}

Value call(Context& context, const Value& callee, Arguments& arguments) {
  if (auto undefined = std::get_if<Undefined>(&callee.storage()))
    context.fail(undefined->why ? *undefined->why : "a value is undefined");
  const Callable* function = callee.callable();
  if (!function) context.fail(std::string("a value of type ") + callee.type_name() + " cannot be called");
  Context::Deeper deeper(context);
  context.spend(1);
  return function->call(context, arguments);
}

}  // namespace mso::jinja
