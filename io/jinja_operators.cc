#include <algorithm>
#include <cmath>
#include <cstdio>

#include "io/jinja_functions.h"
#include "io/utf8.h"

namespace mso::jinja {
namespace {

[[noreturn]] void fail_types(Context& context, const std::string& op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b})
    if (auto undefined = std::get_if<Undefined>(&value->storage()))
      context.fail(undefined->why ? *undefined->why : "a value is undefined");
  context.fail("'" + op + "' does not take a " + a.type_name() + " and a " + b.type_name());
}

Value repeated(Context& context, const Value& of, int64_t times) {
  const auto count = static_cast<size_t>(std::max<int64_t>(0, times));
  if (of.is_text()) {
    const size_t size = of.text().size();
    if (size > 0 && count > context.limits().output_bytes / size) context.check_text_size(SIZE_MAX / 2);
    context.check_text_size(size * count);
    std::string out;
    out.reserve(size * count);
    for (size_t i = 0; i < count; ++i) out += of.text();
    return out;
  }
  const Sequence& sequence = *of.indexable();
  if (!sequence.items.empty() && count > context.limits().steps / sequence.items.size()) context.spend(SIZE_MAX);
  context.spend(sequence.items.size() * count);
  List items;
  for (size_t i = 0; i < count; ++i) items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  return Value::list(std::move(items), sequence.kind);
}

Value power(Context& context, const Value& a, const Value& b) {
  if (a.is_float() || b.is_float() || b.integer() < 0) {
    if (a.number() == 0 && b.number() < 0) context.fail("0 to a negative power");
    return std::pow(a.number(), b.number());
  }
  int64_t result = 1, base = a.integer();
  uint64_t rest = static_cast<uint64_t>(b.integer());
  bool overflow = false;
  for (; rest > 0; rest >>= 1) {
    if (rest & 1) overflow |= __builtin_mul_overflow(result, base, &result);
    if (rest > 1) overflow |= __builtin_mul_overflow(base, base, &base) && true;
    if (overflow) context.fail("a number does not fit into 64 bits");
  }
  return result;
}

// "%s is %d" % (a, b): s r d i f x and %%, with width, precision, 0 and -.
std::string formatted(Context& context, const std::string& format, const Value& values) {
  const Sequence* tuple = values.indexable();
  if (tuple && tuple->kind != Sequence::kTuple) tuple = nullptr;
  size_t next = 0;
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    if (++i < format.size() && format[i] == '%') {
      out += '%';
      continue;
    }
    std::string flags;
    int width = 0, precision = -1;
    while (i < format.size() && (format[i] == '-' || format[i] == '0' || format[i] == '+' || format[i] == ' ')) flags += format[i++];
    while (i < format.size() && format[i] >= '0' && format[i] <= '9' && width < 10000) width = width * 10 + (format[i++] - '0');
    if (i < format.size() && format[i] == '.') {
      precision = 0;
      for (++i; i < format.size() && format[i] >= '0' && format[i] <= '9' && precision < 100;) precision = precision * 10 + (format[i++] - '0');
    }
    if (i >= format.size()) context.fail("a format ends behind its %");
    if (tuple ? next >= tuple->items.size() : next >= 1) context.fail("a format asks for more values than there are");
    const Value& value = tuple ? tuple->items[next] : values;
    ++next;
    std::string text;
    const char kind = format[i];
    char number[512];
    if (kind == 's' || kind == 'r') {
      if (kind == 's')
        text = to_text(context, value);
      else
        append_repr(context, text, value);
      if (precision >= 0) {
        const auto starts = character_starts(text);
        if (static_cast<size_t>(precision) + 1 < starts.size()) text.resize(starts[static_cast<size_t>(precision)]);
      }
    } else if ((kind == 'd' || kind == 'i' || kind == 'x' || kind == 'X') && value.is_number()) {
      if (kind == 'x' || kind == 'X') {
        if (value.is_float()) context.fail("%x wants an int");
        const int64_t signed_value = value.integer();
        std::snprintf(number, sizeof number, kind == 'x' ? "%s%llx" : "%s%llX", signed_value < 0 ? "-" : "",
                      static_cast<unsigned long long>(signed_value < 0 ? 0 - static_cast<uint64_t>(signed_value) : static_cast<uint64_t>(signed_value)));
        text = number;
      } else {
        const double whole = value.is_float() ? std::trunc(value.number()) : 0;
        if (!(std::fabs(whole) < 9e18)) context.fail("a number does not fit into 64 bits");
        text = std::to_string(value.is_float() ? static_cast<int64_t>(whole) : value.integer());
      }
    } else if ((kind == 'f' || kind == 'F' || kind == 'e' || kind == 'g') && value.is_number()) {
      const char specifier[] = {'%', '.', '*', kind, '\0'};
      std::snprintf(number, sizeof number, specifier, precision < 0 ? 6 : precision, value.number());
      text = number;
    } else {
      context.fail(std::string("the format %") + kind + " of a " + value.type_name() + " is not supported");
    }
    if (kind != 's' && kind != 'r' && !text.starts_with('-')) {
      if (flags.find('+') != std::string::npos)
        text.insert(0, "+");
      else if (flags.find(' ') != std::string::npos)
        text.insert(0, " ");
    }
    const int64_t missing = width - length(Value(text));
    if (missing > 0) {
      const auto count = static_cast<size_t>(missing);
      if (flags.find('-') != std::string::npos)
        text.append(count, ' ');
      else if (flags.find('0') != std::string::npos && kind != 's' && kind != 'r')
        text.insert(text[0] == '-' || text[0] == '+' || text[0] == ' ' ? 1 : 0, count, '0');
      else
        text.insert(0, count, ' ');
    }
    out += text;
    context.check_text_size(out.size());
  }
  if (tuple && next < tuple->items.size()) context.fail("a format does not use all its values");
  if (!tuple && next == 0 && !values.dict()) context.fail("a format does not use its value");
  return out;
}

}  // namespace

Value binary(Context& context, const std::string& op, const Value& a, const Value& b) {
  context.spend(1);
  const bool numbers = a.is_number() && b.is_number(), integers = numbers && !a.is_float() && !b.is_float();
  switch (op[0]) {
    case '+':
      if (a.is_text() && b.is_text()) {
        context.check_text_size(a.text().size() + b.text().size());
        return a.text() + b.text();
      }
      if (const Sequence *x = a.indexable(), *y = b.indexable(); x && y && x->kind == y->kind) {
        context.spend(x->items.size() + y->items.size());
        List items = x->items;
        items.insert(items.end(), y->items.begin(), y->items.end());
        return Value::list(std::move(items), x->kind);
      }
      break;
    case '*':
      if (op == "**") {
        if (!numbers) break;
        return power(context, a, b);
      }
      if ((a.is_text() || a.indexable()) && (b.is_int() || b.is_bool())) return repeated(context, a, b.integer());
      if ((b.is_text() || b.indexable()) && (a.is_int() || a.is_bool())) return repeated(context, b, a.integer());
      break;
    case '%':
      if (a.is_text()) return formatted(context, a.text(), b);
      break;
    default:
      break;
  }
  if (!numbers) fail_types(context, op, a, b);
  if (integers) {
    const int64_t x = a.integer(), y = b.integer();
    int64_t result = 0;
    bool overflow = false;
    if (op == "+") {
      overflow = __builtin_add_overflow(x, y, &result);
    } else if (op == "-") {
      overflow = __builtin_sub_overflow(x, y, &result);
    } else if (op == "*") {
      overflow = __builtin_mul_overflow(x, y, &result);
    } else {
      if (y == 0) context.fail("division by zero");
      if (op == "/") return static_cast<double>(x) / static_cast<double>(y);
      if (y == -1) {
        if (op == "//") overflow = __builtin_sub_overflow(int64_t{0}, x, &result);
      } else {
        const int64_t quotient = x / y, rest = x % y;
        const bool down = rest != 0 && (rest < 0) != (y < 0);  // Python rounds down
        result = op == "//" ? quotient - down : rest + (down ? y : 0);
      }
    }
    if (overflow) context.fail("a number does not fit into 64 bits");
    return result;
  }
  const double x = a.number(), y = b.number();
  if (op == "+") return x + y;
  if (op == "-") return x - y;
  if (op == "*") return x * y;
  if (y == 0) context.fail("division by zero");
  if (op == "/") return x / y;
  double rest = std::fmod(x, y);
  if (rest != 0 && (rest < 0) != (y < 0)) rest += y;
  if (op == "%") return rest;
  return std::floor((x - rest) / y + 0.5);
}

Value negative(Context& context, const Value& a) {
  if (a.is_float()) return -a.number();
  if (!a.is_number()) fail_types(context, "-", a, a);
  if (a.integer() == INT64_MIN) context.fail("a number does not fit into 64 bits");
  return -a.integer();
}

Value item(Context& context, const Value& object, const Value& key) {
  context.spend(1);
  if (auto undefined = std::get_if<Undefined>(&object.storage()))
    context.fail(undefined->why ? *undefined->why : "a value is undefined");
  if (const Dict* dict = object.dict()) {
    if (const Value* found = find(context, *dict, key)) return *found;
  } else if (key.is_int() || key.is_bool()) {
    int64_t index = key.integer();
    if (const Sequence* sequence = object.indexable()) {
      const auto size = static_cast<int64_t>(sequence->items.size());
      if (index < 0) index += size;
      if (index >= 0 && index < size) return sequence->items[static_cast<size_t>(index)];
    } else if (object.is_text()) {
      const auto starts = character_starts(object.text());
      context.spend(starts.size() / 16);
      const auto size = static_cast<int64_t>(starts.size()) - 1;
      if (index < 0) index += size;
      if (index >= 0 && index < size) {
        const auto i = static_cast<size_t>(index);
        return object.text().substr(starts[i], starts[i + 1] - starts[i]);
      }
    }
  }
  if (key.is_text()) {
    if (!object.dict()) return attribute(context, object, key.text());
    if (is_method(object, key.text())) {
      const std::string name = key.text();
      return Value::function(name, [object, name](Context& c, Arguments& a) { return call_method(c, object, name, a); });
    }
  }
  std::string shown;
  append_repr(context, shown, key);
  return Value::undefined(std::string("'") + object.type_name() + " object' has no element " + shown.substr(0, 200));
}

Value slice(Context& context, const Value& object, const Value& from, const Value& to, const Value& step_value) {
  if (auto undefined = std::get_if<Undefined>(&object.storage()))
    context.fail(undefined->why ? *undefined->why : "a value is undefined");
  if (!object.is_text() && !object.indexable())
    context.fail(std::string("a value of type ") + object.type_name() + " cannot be sliced");
  auto number = [&](const Value& value, int64_t otherwise) {
    if (value.is_none()) return otherwise;
    if (!value.is_int() && !value.is_bool()) context.fail(std::string("a slice wants ints, not a ") + value.type_name());
    return value.integer();
  };
  std::vector<size_t> starts;
  if (object.is_text()) starts = character_starts(object.text());
  const auto size = static_cast<int64_t>(object.is_text() ? starts.size() - 1 : object.indexable()->items.size());
  const int64_t step = number(step_value, 1);
  if (step == 0) context.fail("a slice's step is 0");
  // PySlice_AdjustIndices
  auto bound = [&](const Value& value, int64_t otherwise) {
    if (value.is_none()) return otherwise;
    int64_t at = number(value, 0);
    if (at < 0) {
      at += size;
      return at < 0 ? (step < 0 ? -1 : int64_t{0}) : at;
    }
    return at >= size ? (step < 0 ? size - 1 : size) : at;
  };
  const int64_t first = bound(from, step < 0 ? size - 1 : 0), last = bound(to, step < 0 ? -1 : size);
  context.spend(static_cast<size_t>(size) / 8 + 1);
  if (object.is_text()) {
    if (step == 1) {
      if (first >= last) return std::string();
      const size_t begin = starts[static_cast<size_t>(first)];
      return object.text().substr(begin, starts[static_cast<size_t>(last)] - begin);
    }
    std::string out;
    for (int64_t i = first; step > 0 ? i < last : i > last;) {
      const auto k = static_cast<size_t>(i);
      out.append(object.text(), starts[k], starts[k + 1] - starts[k]);
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    return out;
  }
  const Sequence& sequence = *object.indexable();
  List items;
  for (int64_t i = first; step > 0 ? i < last : i > last;) {
    items.push_back(sequence.items[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::list(std::move(items), sequence.kind);
}

}  // namespace mso::jinja
