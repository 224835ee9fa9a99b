#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>

#include "io/jinja_functions.h"
#include "io/utf8.h"

namespace mso::jinja {
namespace {

bool is_space(uint32_t c) { return is_white_space(c) || (c >= 0x1c && c <= 0x1f); }

List items_of(Context& context, const Value& value) {
  List storage;
  const List& found = iterate(context, value, storage);
  return &found == &storage ? std::move(storage) : found;
}

Value generator(List items) { return Value::list(std::move(items), Sequence::kGenerator); }

// "a.b.0" of map(attribute=…) and its like: each part an attribute or item.
Value path_of(Context& context, Value value, const Value& path, const Value& otherwise) {
  auto step = [&](const Value& part) {
    value = item(context, value, part);
    if (value.is_undefined() && !otherwise.is_undefined()) value = otherwise;
  };
  if (path.is_int()) {
    step(path);
    return value;
  }
  if (!path.is_text()) context.fail(std::string("an attribute is named by a text, not by a ") + path.type_name());
  const std::string& text = path.text();
  for (size_t start = 0;;) {
    const size_t dot = std::min(text.find('.', start), text.size());
    const std::string part = text.substr(start, dot - start);
    int64_t number = 0;
    if (!part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos) {
      std::from_chars(part.data(), part.data() + part.size(), number);
      step(number);
    } else {
      step(part);
    }
    if (dot == text.size()) return value;
    start = dot + 1;
  }
}

// Sort keys: texts in lower case unless case counts.
Value sort_key(const Value& value, bool case_sensitive) {
  return !case_sensitive && value.is_text() ? Value(lower_text(value.text())) : value;
}

// std::sort must not see an order that fails half way or is none, so this is a merge sort of our own.
void stable_sort(Context& context, std::vector<std::pair<Value, Value>>& items, bool reverse) {
  std::vector<std::pair<Value, Value>> other(items.size());
  for (size_t width = 1; width < items.size(); width *= 2) {
    for (size_t start = 0; start < items.size(); start += 2 * width) {
      const size_t middle = std::min(start + width, items.size()), end = std::min(start + 2 * width, items.size());
      size_t left = start, right = middle;
      for (size_t at = start; at < end; ++at) {
        bool take_right = left == middle;
        if (!take_right && right < end) {
          const int relation = order(context, items[right].first, items[left].first);
          take_right = reverse ? relation > 0 : relation < 0;
        }
        other[at] = std::move(items[take_right ? right++ : left++]);
      }
    }
    items.swap(other);
  }
}

List sorted(Context& context, const List& items, const Value& attribute, bool case_sensitive, bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& value : items) {
    Value key;
    if (attribute.is_text() && attribute.text().find(',') != std::string::npos) {
      List parts;
      const std::string& names = attribute.text();
      for (size_t start = 0; start <= names.size();) {
        const size_t end = std::min(names.find(',', start), names.size());
        parts.push_back(sort_key(path_of(context, value, names.substr(start, end - start), Value()), case_sensitive));
        start = end + 1;
      }
      key = Value::list(std::move(parts));
    } else {
      key = sort_key(attribute.is_none() ? value : path_of(context, value, attribute, Value()), case_sensitive);
    }
    keyed.emplace_back(std::move(key), value);
  }
  stable_sort(context, keyed, reverse);
  List out;
  for (auto& [key, value] : keyed) out.push_back(std::move(value));
  return out;
}

Value extreme(Context& context, const Value& input, ArgumentReader& reader, bool largest) {
  const bool case_sensitive = reader.truth("case_sensitive", false);
  const Value attribute = reader.optional("attribute", Value::none());
  reader.done();
  const List items = items_of(context, input);
  if (items.empty()) return Value::undefined("no aggregated item, the sequence was empty");
  auto key = [&](const Value& value) {
    return sort_key(attribute.is_none() ? value : path_of(context, value, attribute, Value()), case_sensitive);
  };
  const Value* best = &items[0];
  for (const Value& value : items) {
    const int relation = order(context, key(value), key(*best));
    if (largest ? relation > 0 : relation < 0) best = &value;
  }
  return *best;
}

// map, select, reject, selectattr, rejectattr.
Value mapped(Context& context, const Value& input, Arguments& arguments) {
  List out;
  if (arguments.positional.empty()) {
    ArgumentReader reader(context, "map", arguments);
    const Value attribute = reader.required("attribute"), otherwise = reader.optional("default", Value());
    reader.done();
    for (const Value& value : items_of(context, input)) out.push_back(path_of(context, value, attribute, otherwise));
    return generator(std::move(out));
  }
  const Value name = arguments.positional[0];
  if (!name.is_text()) context.fail("map wants the name of a filter");
  for (const Value& value : items_of(context, input)) {
    Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
    out.push_back(apply_filter(context, name.text(), value, rest));
  }
  return generator(std::move(out));
}

Value selected(Context& context, const Value& input, Arguments& arguments, bool by_attribute, bool keep) {
  size_t used = 0;
  Value attribute;
  if (by_attribute) {
    if (arguments.positional.empty()) context.fail("selectattr and rejectattr want the name of an attribute");
    attribute = arguments.positional[used++];
  }
  std::string test;
  if (used < arguments.positional.size()) {
    const Value& name = arguments.positional[used++];
    if (!name.is_text()) context.fail("a test is named by a text");
    test = name.text();
  }
  List out;
  for (const Value& value : items_of(context, input)) {
    const Value tested = by_attribute ? path_of(context, value, attribute, Value()) : value;
    bool holds;
    if (test.empty()) {
      holds = tested.truthy();
    } else {
      Arguments rest{{arguments.positional.begin() + static_cast<std::ptrdiff_t>(used), arguments.positional.end()}, arguments.named};
      holds = apply_test(context, test, tested, rest);
    }
    if (holds == keep) out.push_back(value);
  }
  return generator(std::move(out));
}

Value joined(Context& context, const Value& input, ArgumentReader& reader) {
  const std::string between = to_text(context, reader.optional("d", ""));
  const Value attribute = reader.optional("attribute", Value::none());
  reader.done();
  std::string out;
  bool first = true;
  for (const Value& value : items_of(context, input)) {
    if (!first) out += between;
    first = false;
    out += to_text(context, attribute.is_none() ? value : path_of(context, value, attribute, Value()));
    context.check_text_size(out.size());
  }
  return out;
}

// int(x): a text may have white space, a sign and underscores between digits.
Value to_int(Context& context, const Value& input, ArgumentReader& reader) {
  const Value otherwise = reader.optional("default", int64_t{0});
  const int64_t base = reader.integer("base", 10);
  reader.done();
  if (input.is_int() || input.is_bool()) return input.integer();
  if (input.is_float()) {
    if (!(std::fabs(input.number()) < 9.2e18)) return otherwise;
    return static_cast<int64_t>(input.number());
  }
  if (!input.is_text()) return otherwise;
  std::string digits = stripped_text(input.text(), nullptr, true, true);
  bool minus = false;
  if (digits.starts_with('-') || digits.starts_with('+')) minus = digits[0] == '-', digits.erase(0, 1);
  if (base == 16 && (digits.starts_with("0x") || digits.starts_with("0X"))) digits.erase(0, 2);
  if (base == 8 && (digits.starts_with("0o") || digits.starts_with("0O"))) digits.erase(0, 2);
  if (base == 2 && (digits.starts_with("0b") || digits.starts_with("0B"))) digits.erase(0, 2);
  if (base < 2 || base > 36) context.fail("the base of int is not supported");
  for (size_t i = 1; i + 1 < digits.size();)
    if (digits[i] == '_' && digits[i - 1] != '_' && digits[i + 1] != '_')
      digits.erase(i, 1);
    else
      ++i;
  int64_t number = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number, static_cast<int>(base));
  if (!digits.empty() && digits[0] != '-' && read.ec == std::errc() && read.ptr == digits.data() + digits.size())
    return minus ? -number : number;
  // As jinja2: "3.7" is 3.
  const char* start = digits.c_str();
  char* end = nullptr;
  if (digits.empty() || digits.find_first_not_of("0123456789.eE+-") != std::string::npos) return otherwise;
  const double real = std::strtod(start, &end);
  if (*end != '\0' || !(std::fabs(real) < 9.2e18)) return otherwise;
  return static_cast<int64_t>(minus ? -real : real);
}

Value to_float(const Value& input, ArgumentReader& reader) {
  const Value otherwise = reader.optional("default", 0.0);
  reader.done();
  if (input.is_number()) return input.number();
  if (!input.is_text()) return otherwise;
  const std::string digits = stripped_text(input.text(), nullptr, true, true);
  char* end = nullptr;
  if (digits.empty() || digits.find_first_of("xXpP") != std::string::npos) return otherwise;
  const double real = std::strtod(digits.c_str(), &end);
  return *end == '\0' ? Value(real) : otherwise;
}

Value rounded(Context& context, const Value& input, ArgumentReader& reader) {
  const int64_t digits = reader.integer("precision", 0);
  const std::string method = reader.text("method", "common");
  reader.done();
  if (!input.is_number()) context.fail(std::string("round does not take a ") + input.type_name());
  if (method != "common" && method != "ceil" && method != "floor") context.fail("round's method is common, ceil or floor");
  if (digits < -300 || digits > 300) context.fail("round's precision is out of range");
  const double number = input.number();
  if (method != "common") {
    const double scale = std::pow(10.0, static_cast<double>(digits));
    return (method == "ceil" ? std::ceil(number * scale) : std::floor(number * scale)) / scale;
  }
  if (digits < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(number / scale) * scale;
  }
  char buffer[700];  // printf rounds the exact binary value, halves to even, as Python does
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(digits), number);
  const double result = std::strtod(buffer, nullptr);
  // round() of an int gives an int.
  return input.is_float() ? Value(result) : Value(input.integer());
}

std::string indented(Context& context, const std::string& text, ArgumentReader& reader) {
  const Value width = reader.optional("width", int64_t{4});
  const bool first = reader.truth("first", false), blank = reader.truth("blank", false);
  reader.done();
  std::string indent;
  if (width.is_text()) {
    indent = width.text();
  } else if (width.is_int() && width.integer() <= 10000) {
    indent.assign(static_cast<size_t>(std::max<int64_t>(0, width.integer())), ' ');
  } else {
    context.fail("indent wants a width of at most 10000 or a text");
  }
  // Lines are those of splitlines() of the text with a line break behind it.
  const Value source = text + "\n";
  Arguments none;
  List lines = items_of(context, call_method(context, source, "splitlines", none));
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 ? blank || !lines[i].text().empty() : first) out += indent;
    out += lines[i].text();
    context.check_text_size(out.size());
  }
  return out;
}

std::string truncated(Context& context, const std::string& text, ArgumentReader& reader) {
  const int64_t size = reader.integer("length", 255);
  const bool kill_words = reader.truth("killwords", false);
  const std::string end = reader.text("end", "...");
  const Value leeway_value = reader.optional("leeway", Value::none());
  reader.done();
  const int64_t leeway = leeway_value.is_int() ? leeway_value.integer() : 5, end_size = length(Value(end));
  if (size < end_size || leeway < 0) context.fail("truncate's length is less than that of its end");
  if (size > INT64_MAX / 2 || leeway > INT64_MAX / 2 || length(Value(text)) <= size + leeway) return text;
  const auto starts = character_starts(text);
  std::string cut = text.substr(0, starts[static_cast<size_t>(size - end_size)]);
  if (!kill_words)
    if (const size_t space = cut.rfind(' '); space != std::string::npos) cut.resize(space);
  return cut + end;
}

// jinja2's title: each word begins with a capital, the rest is small.
std::string titled(const std::string& text) {
  std::string out, word;
  auto flush = [&] {
    if (word.empty()) return;
    const size_t first = utf8_length(word[0]);
    out += upper_text(word.substr(0, first)) + lower_text(word.substr(first));
    word.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const uint32_t c = next_code_point(text, at);
    if (is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<') {
      flush();
      out.append(text, start, at - start);
    } else {
      word.append(text, start, at - start);
    }
  }
  flush();
  return out;
}

using Filter = Value (*)(Context&, const Value&, ArgumentReader&, Arguments&);

// What takes no argument and works on the text of its input.
template <std::string (*change)(const std::string&)>
Value text_filter(Context& context, const Value& input, ArgumentReader& reader, Arguments&) {
  reader.done();
  const std::string text = to_text(context, input);
  context.check_text_size(text.size());
  return change(text);
}

Value first_filter(Context& context, const Value& input, ArgumentReader& reader, Arguments&) {
  reader.done();
  List items = items_of(context, input);
  return items.empty() ? Value::undefined("no first item, the sequence was empty") : items.front();
}

Value last_filter(Context& context, const Value& input, ArgumentReader& reader, Arguments&) {
  reader.done();
  if (input.sequence() && !input.indexable()) context.fail("last does not take a generator", "put list before it");
  List items = items_of(context, input);
  return items.empty() ? Value::undefined("no last item, the sequence was empty") : items.back();
}

Value length_filter(Context& context, const Value& input, ArgumentReader& reader, Arguments&) {
  reader.done();
  const int64_t size = length(input);
  if (size < 0) context.fail(std::string("a value of type ") + input.type_name() + " has no length");
  return size;
}

Value default_filter(Context&, const Value& input, ArgumentReader& reader, Arguments&) {
  const Value otherwise = reader.optional("default_value", "");
  const bool boolean = reader.truth("boolean", false);
  reader.done();
  return input.is_undefined() || (boolean && !input.truthy()) ? otherwise : input;
}

Value json_filter(Context& context, const Value& input, ArgumentReader& reader, Arguments&) {
  JsonStyle style;
  style.ensure_ascii = reader.truth("ensure_ascii", false);
  const Value indent = reader.optional("indent", Value::none()), separators = reader.optional("separators", Value::none());
  style.sort_keys = reader.truth("sort_keys", false);
  reader.done();
  if (!indent.is_none()) {
    if (!indent.is_int() || indent.integer() > 1000) context.fail("tojson's indent is an int of at most 1000");
    style.indent = static_cast<int>(std::max<int64_t>(0, indent.integer()));
    style.item_separator = ",";
  }
  if (const Sequence* both = separators.indexable()) {
    if (both->items.size() != 2 || !both->items[0].is_text() || !both->items[1].is_text()) context.fail("tojson's separators are two texts");
    style.item_separator = both->items[0].text();
    style.key_separator = both->items[1].text();
  }
  return to_json(context, input, style);
}

Value dictsort_filter(Context& context, const Value& input, ArgumentReader& reader, Arguments&) {
  const bool case_sensitive = reader.truth("case_sensitive", false);
  const std::string by = reader.text("by", "key");
  const bool reverse = reader.truth("reverse", false);
  reader.done();
  const Dict* dict = input.dict();
  if (!dict || (by != "key" && by != "value")) context.fail("dictsort takes a dict, by key or value");
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : dict->items)
    keyed.emplace_back(sort_key(by == "key" ? key : value, case_sensitive), Value::list({key, value}, Sequence::kTuple));
  stable_sort(context, keyed, reverse);
  List out;
  for (auto& [key, pair] : keyed) out.push_back(std::move(pair));
  return Value::list(std::move(out));
}

Value groupby_filter(Context& context, const Value& input, ArgumentReader& reader, Arguments&) {
  const Value attribute = reader.required("attribute"), otherwise = reader.optional("default", Value());
  const bool case_sensitive = reader.truth("case_sensitive", false);
  reader.done();
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& value : items_of(context, input))
    keyed.emplace_back(sort_key(path_of(context, value, attribute, otherwise), case_sensitive), value);
  stable_sort(context, keyed, false);
  List groups;
  for (size_t i = 0; i < keyed.size();) {
    List members;
    const size_t start = i;
    for (; i < keyed.size() && equal(context, keyed[i].first, keyed[start].first); ++i) members.push_back(keyed[i].second);
    const Value shown = path_of(context, members[0], attribute, otherwise);
    groups.push_back(Value::list({shown, Value::list(std::move(members))}, Sequence::kTuple));
  }
  return Value::list(std::move(groups));
}

Value unique_filter(Context& context, const Value& input, ArgumentReader& reader, Arguments&) {
  const bool case_sensitive = reader.truth("case_sensitive", false);
  const Value attribute = reader.optional("attribute", Value::none());
  reader.done();
  List seen, out;
  for (const Value& value : items_of(context, input)) {
    Value key = sort_key(attribute.is_none() ? value : path_of(context, value, attribute, Value()), case_sensitive);
    if (contains(context, Value::list(seen), key)) continue;
    context.spend(seen.size());
    seen.push_back(std::move(key));
    out.push_back(value);
  }
  return generator(std::move(out));
}

Value batch_filter(Context& context, const Value& input, ArgumentReader& reader, Arguments&) {
  const int64_t size = reader.integer("linecount", 0);
  const Value fill = reader.optional("fill_with", Value::none());
  reader.done();
  if (size < 1 || size > 100000) context.fail("batch's size is out of range");
  List rows, row;
  for (const Value& value : items_of(context, input)) {
    if (static_cast<int64_t>(row.size()) == size) rows.push_back(Value::list(std::exchange(row, {})));
    row.push_back(value);
  }
  if (!row.empty()) {
    while (!fill.is_none() && static_cast<int64_t>(row.size()) < size) row.push_back(fill), context.spend(1);
    rows.push_back(Value::list(std::move(row)));
  }
  return generator(std::move(rows));
}

Value sum_filter(Context& context, const Value& input, ArgumentReader& reader, Arguments&) {
  const Value attribute = reader.optional("attribute", Value::none());
  Value total = reader.optional("start", int64_t{0});
  reader.done();
  for (const Value& value : items_of(context, input))
    total = binary(context, "+", total, attribute.is_none() ? value : path_of(context, value, attribute, Value()));
  return total;
}

Value reverse_filter(Context& context, const Value& input, ArgumentReader& reader, Arguments&) {
  reader.done();
  List items = items_of(context, input);
  std::reverse(items.begin(), items.end());
  if (!input.is_text()) return generator(std::move(items));
  std::string out;
  for (const Value& c : items) out += c.text();
  return out;
}

Value items_filter(Context& context, const Value& input, ArgumentReader& reader, Arguments&) {
  reader.done();
  if (input.is_undefined()) return generator({});
  if (!input.dict()) context.fail(std::string("items takes a dict, not a ") + input.type_name());
  Arguments none;
  return generator(items_of(context, call_method(context, input, "items", none)));
}

const std::map<std::string, Filter, std::less<>>& filters() {
  static const auto& table = *new std::map<std::string, Filter, std::less<>>{
      {"abs",
       [](Context& c, const Value& v, ArgumentReader& r, Arguments&) -> Value {
         r.done();
         return v.number() < 0 ? negative(c, v) : v;
       }},
      {"attr",
       [](Context& c, const Value& v, ArgumentReader& r, Arguments&) -> Value {
         const std::string name = r.text("name", "");
         r.done();
         return v.dict() ? Value::undefined("a dict has no attribute '" + name + "'") : attribute(c, v, name);
       }},
      {"batch", batch_filter},
      {"capitalize", text_filter<capitalized_text>},
      {"center",
       [](Context& c, const Value& v, ArgumentReader& r, Arguments&) -> Value {
         Arguments width{{r.integer("width", 80)}, {}};
         r.done();
         return call_method(c, to_text(c, v), "center", width);
       }},
      {"count", length_filter},
      {"d", default_filter},
      {"default", default_filter},
      {"dictsort", dictsort_filter},
      {"first", first_filter},
      {"float", [](Context&, const Value& v, ArgumentReader& r, Arguments&) -> Value { return to_float(v, r); }},
      {"groupby", groupby_filter},
      {"indent", [](Context& c, const Value& v, ArgumentReader& r, Arguments&) -> Value { return indented(c, to_text(c, v), r); }},
      {"int", [](Context& c, const Value& v, ArgumentReader& r, Arguments&) -> Value { return to_int(c, v, r); }},
      {"items", items_filter},
      {"join", [](Context& c, const Value& v, ArgumentReader& r, Arguments&) -> Value { return joined(c, v, r); }},
      {"last", last_filter},
      {"length", length_filter},
      {"list",
       [](Context& c, const Value& v, ArgumentReader& r, Arguments&) -> Value {
         r.done();
         return Value::list(items_of(c, v));
       }},
      {"lower", text_filter<lower_text>},
      {"map", [](Context& c, const Value& v, ArgumentReader&, Arguments& a) -> Value { return mapped(c, v, a); }},
      {"max", [](Context& c, const Value& v, ArgumentReader& r, Arguments&) -> Value { return extreme(c, v, r, true); }},
      {"min", [](Context& c, const Value& v, ArgumentReader& r, Arguments&) -> Value { return extreme(c, v, r, false); }},
      {"reject", [](Context& c, const Value& v, ArgumentReader&, Arguments& a) -> Value { return selected(c, v, a, false, false); }},
      {"rejectattr", [](Context& c, const Value& v, ArgumentReader&, Arguments& a) -> Value { return selected(c, v, a, true, false); }},
      {"replace",
       [](Context& c, const Value& v, ArgumentReader& r, Arguments&) -> Value {
         const std::string old = to_text(c, r.required("old")), with = to_text(c, r.required("new"));
         const Value count = r.optional("count", Value::none());
         r.done();
         return replaced_text(c, to_text(c, v), old, with, count.is_int() ? count.integer() : -1);
       }},
      {"reverse", reverse_filter},
      {"round", [](Context& c, const Value& v, ArgumentReader& r, Arguments&) -> Value { return rounded(c, v, r); }},
      {"safe",
       [](Context& c, const Value& v, ArgumentReader& r, Arguments&) -> Value {
         r.done();
         return to_text(c, v);
       }},
      {"select", [](Context& c, const Value& v, ArgumentReader&, Arguments& a) -> Value { return selected(c, v, a, false, true); }},
      {"selectattr", [](Context& c, const Value& v, ArgumentReader&, Arguments& a) -> Value { return selected(c, v, a, true, true); }},
      {"sort",
       [](Context& c, const Value& v, ArgumentReader& r, Arguments&) -> Value {
         const bool reverse = r.truth("reverse", false), case_sensitive = r.truth("case_sensitive", false);
         const Value attribute = r.optional("attribute", Value::none());
         r.done();
         return Value::list(sorted(c, items_of(c, v), attribute, case_sensitive, reverse));
       }},
      {"string",
       [](Context& c, const Value& v, ArgumentReader& r, Arguments&) -> Value {
         r.done();
         return to_text(c, v);
       }},
      {"sum", sum_filter},
      {"title", text_filter<titled>},
      {"tojson", json_filter},
      {"trim",
       [](Context& c, const Value& v, ArgumentReader& r, Arguments&) -> Value {
         const Value characters = r.optional("chars", Value::none());
         r.done();
         return stripped_text(to_text(c, v), characters.is_text() ? &characters.text() : nullptr, true, true);
       }},
      {"truncate", [](Context& c, const Value& v, ArgumentReader& r, Arguments&) -> Value { return truncated(c, to_text(c, v), r); }},
      {"unique", unique_filter},
      {"upper", text_filter<upper_text>},
      {"wordcount",
       [](Context& c, const Value& v, ArgumentReader& r, Arguments&) -> Value {
         r.done();
         int64_t words = 0;
         bool inside = false;
         const std::string text = to_text(c, v);
         for (size_t at = 0; at < text.size();) {
           const bool word = is_word_character(next_code_point(text, at));
           words += word && !inside;
           inside = word;
         }
         return words;
       }},
  };
  return table;
}

using Test = bool (*)(Context&, const Value&, ArgumentReader&);

template <typename Compare>
bool compared(Context& c, const Value& a, ArgumentReader& r, Compare&& compare) {
  return compare(order(c, a, r.required("other")));
}

const std::map<std::string, Test, std::less<>>& tests() {
  static const auto& table = *new std::map<std::string, Test, std::less<>>{
      {"boolean", [](Context&, const Value& v, ArgumentReader&) { return v.is_bool(); }},
      {"callable", [](Context&, const Value& v, ArgumentReader&) { return v.is_callable(); }},
      {"defined", [](Context&, const Value& v, ArgumentReader&) { return !v.is_undefined(); }},
      {"divisibleby",
       [](Context& c, const Value& v, ArgumentReader& r) { return !binary(c, "%", v, r.required("num")).truthy(); }},
      {"even", [](Context& c, const Value& v, ArgumentReader&) { return !binary(c, "%", v, int64_t{2}).truthy(); }},
      {"false", [](Context&, const Value& v, ArgumentReader&) { return v.is_bool() && !v.truthy(); }},
      {"filter", [](Context&, const Value& v, ArgumentReader&) { return v.is_text() && is_filter(v.text()); }},
      {"float", [](Context&, const Value& v, ArgumentReader&) { return v.is_float(); }},
      {"in", [](Context& c, const Value& v, ArgumentReader& r) { return contains(c, r.required("seq"), v); }},
      {"integer", [](Context&, const Value& v, ArgumentReader&) { return v.is_int(); }},
      {"iterable", [](Context&, const Value& v, ArgumentReader&) { return v.is_undefined() || v.is_text() || v.sequence() || v.dict(); }},
      {"lower",
       [](Context& c, const Value& v, ArgumentReader&) {
         Arguments none;
         return call_method(c, to_text(c, v), "islower", none).truthy();
       }},
      {"mapping", [](Context&, const Value& v, ArgumentReader&) { return v.dict() != nullptr; }},
      {"none", [](Context&, const Value& v, ArgumentReader&) { return v.is_none(); }},
      {"number", [](Context&, const Value& v, ArgumentReader&) { return v.is_number(); }},
      {"odd", [](Context& c, const Value& v, ArgumentReader&) { return equal(c, binary(c, "%", v, int64_t{2}), int64_t{1}); }},
      {"sameas",
       [](Context& c, const Value& v, ArgumentReader& r) {
         const Value other = r.required("other");
         if (v.sequence() || v.dict()) return v.sequence() == other.sequence() && v.dict() == other.dict();
         return std::string_view(v.type_name()) == other.type_name() && equal(c, v, other);
       }},
      {"sequence", [](Context&, const Value& v, ArgumentReader&) { return v.is_text() || v.indexable() || v.dict(); }},
      {"string", [](Context&, const Value& v, ArgumentReader&) { return v.is_text(); }},
      {"test", [](Context&, const Value& v, ArgumentReader&) { return v.is_text() && is_test(v.text()); }},
      {"true", [](Context&, const Value& v, ArgumentReader&) { return v.is_bool() && v.truthy(); }},
      {"undefined", [](Context&, const Value& v, ArgumentReader&) { return v.is_undefined(); }},
      {"upper",
       [](Context& c, const Value& v, ArgumentReader&) {
         Arguments none;
         return call_method(c, to_text(c, v), "isupper", none).truthy();
       }},
      {"==", [](Context& c, const Value& v, ArgumentReader& r) { return equal(c, v, r.required("other")); }},
      {"!=", [](Context& c, const Value& v, ArgumentReader& r) { return !equal(c, v, r.required("other")); }},
      {"<", [](Context& c, const Value& v, ArgumentReader& r) { return compared(c, v, r, [](int o) { return o < 0; }); }},
      {"<=", [](Context& c, const Value& v, ArgumentReader& r) { return compared(c, v, r, [](int o) { return o <= 0; }); }},
      {">", [](Context& c, const Value& v, ArgumentReader& r) { return compared(c, v, r, [](int o) { return o > 0; }); }},
      {">=", [](Context& c, const Value& v, ArgumentReader& r) { return compared(c, v, r, [](int o) { return o >= 0; }); }},
  };
  return table;
}

std::string_view other_name(std::string_view test) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"eq", "=="}, {"equalto", "=="}, {"ne", "!="},          {"lt", "<"},  {"lessthan", "<"},
      {"le", "<="}, {"gt", ">"},       {"greaterthan", ">"}, {"ge", ">="}};
  for (const auto& [name, symbol] : kNames)
    if (name == test) return symbol;
  return test;
}

}  // namespace

bool is_filter(const std::string& name) { return filters().contains(name); }
bool is_test(const std::string& name) { return tests().contains(other_name(name)); }

Value apply_filter(Context& context, const std::string& name, const Value& input, Arguments& arguments) {
  auto found = filters().find(name);
  if (found == filters().end()) context.fail("the filter '" + name + "' is not known or not supported");
  Context::Deeper deeper(context);
  context.spend(1);
  if (name == "abs" && !input.is_number()) context.fail(std::string("abs does not take a ") + input.type_name());
  ArgumentReader reader(context, name, arguments);
  return found->second(context, input, reader, arguments);
}

bool apply_test(Context& context, const std::string& name, const Value& input, Arguments& arguments) {
  auto found = tests().find(other_name(name));
  if (found == tests().end()) context.fail("the test '" + name + "' is not known or not supported");
  Context::Deeper deeper(context);
  context.spend(1);
  ArgumentReader reader(context, name, arguments);
  const bool holds = found->second(context, input, reader);
  reader.done();
  return holds;
}

}  // namespace mso::jinja
