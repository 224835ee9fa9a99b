// Values of Jinja templates, with the meaning Python gives them: text, truth, equality, order, JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace mso::jinja {

class Context;
class Value;
using List = std::vector<Value>;

// delete, but what the object alone keeps alive is deleted after it, not within it: a value may hold a value a million deep (a template
// that wraps a list in a list for each turn of a loop), and calls nested as deep would overflow the stack.
void delete_flat(void* object, void (*destroy)(void*)) noexcept;

// std::make_shared for everything that values hold.
template <typename T, typename... Arguments>
std::shared_ptr<T> make_flat(Arguments&&... arguments) {
  using Plain = std::remove_const_t<T>;
  return std::shared_ptr<T>(new Plain{std::forward<Arguments>(arguments)...}, [](T* object) {
    delete_flat(const_cast<Plain*>(object), [](void* plain) { delete static_cast<Plain*>(plain); });
  });
}

// `why`: what a use of it as more than an empty text complains about.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
struct None {};

// Lists and tuples never change; a generator can be gone through once.
struct Sequence {
  enum Kind { kList, kTuple, kGenerator } kind = kList;
  List items;
  mutable bool consumed = false;
};

// In the order of insertion, as Python's.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
};

// namespace(): the only thing whose attributes a template may set.
struct Namespace {
  std::vector<std::pair<std::string, Value>> items;
};

// The `loop` of a running for.
struct Loop {
  std::shared_ptr<const List> items;
  size_t index = 0;
  std::vector<List> seen;  // arguments of the last changed()
};

struct Arguments {
  List positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Callable {
  std::string name;
  std::function<Value(Context&, Arguments&)> call;
};

class Value {
 public:
  using Text = std::shared_ptr<const std::string>;
  using Storage = std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<const Sequence>,
                               std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, std::shared_ptr<Loop>,
                               std::shared_ptr<const Callable>>;

  Value() = default;  // undefined
  Value(bool value) : storage_(value) {}
  Value(int64_t value) : storage_(value) {}
  Value(double value) : storage_(value) {}
  Value(std::string text) : storage_(std::make_shared<const std::string>(std::move(text))) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::shared_ptr<Namespace> value) : storage_(std::move(value)) {}
  Value(std::shared_ptr<Loop> value) : storage_(std::move(value)) {}

  static Value none() { return Value(Storage(None{})); }
  static Value undefined(std::string why) {
    return Value(Storage(Undefined{std::make_shared<const std::string>(std::move(why))}));
  }
  static Value list(List items, Sequence::Kind kind = Sequence::kList) {
    return Value(Storage(make_flat<const Sequence>(kind, std::move(items), false)));
  }
  static Value dict(Dict dict) { return Value(Storage(make_flat<const Dict>(std::move(dict)))); }
  static Value function(std::string name, std::function<Value(Context&, Arguments&)> call) {
    return Value(Storage(make_flat<const Callable>(std::move(name), std::move(call))));
  }
  static Value from_json(const nlohmann::ordered_json& json);

  bool is_undefined() const { return std::holds_alternative<Undefined>(storage_); }
  bool is_none() const { return std::holds_alternative<None>(storage_); }
  bool is_bool() const { return std::holds_alternative<bool>(storage_); }
  bool is_int() const { return std::holds_alternative<int64_t>(storage_); }  // bool is none here
  bool is_float() const { return std::holds_alternative<double>(storage_); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_text() const { return std::holds_alternative<Text>(storage_); }
  bool is_callable() const { return std::holds_alternative<std::shared_ptr<const Callable>>(storage_); }

  const std::string& text() const { return *std::get<Text>(storage_); }
  const Sequence* sequence() const {
    auto found = std::get_if<std::shared_ptr<const Sequence>>(&storage_);
    return found ? found->get() : nullptr;
  }
  // A list or tuple; nullptr for a generator.
  const Sequence* indexable() const {
    const Sequence* found = sequence();
    return found && found->kind != Sequence::kGenerator ? found : nullptr;
  }
  const Dict* dict() const {
    auto found = std::get_if<std::shared_ptr<const Dict>>(&storage_);
    return found ? found->get() : nullptr;
  }
  Namespace* name_space() const {
    auto found = std::get_if<std::shared_ptr<Namespace>>(&storage_);
    return found ? found->get() : nullptr;
  }
  Loop* loop() const {
    auto found = std::get_if<std::shared_ptr<Loop>>(&storage_);
    return found ? found->get() : nullptr;
  }
  const Callable* callable() const {
    auto found = std::get_if<std::shared_ptr<const Callable>>(&storage_);
    return found ? found->get() : nullptr;
  }
  const Storage& storage() const { return storage_; }

  bool truthy() const;
  // An int or bool as int64, an int, bool or float as double; only where is_int() or is_bool(), is_number().
  int64_t integer() const { return is_bool() ? std::get<bool>(storage_) : std::get<int64_t>(storage_); }
  double number() const { return is_float() ? std::get<double>(storage_) : static_cast<double>(integer()); }
  // What Python's type(x).__name__ says.
  const char* type_name() const;

 private:
  explicit Value(Storage storage) : storage_(std::move(storage)) {}
  Storage storage_;
};

struct Limits {
  size_t steps = 4'000'000;         // nodes evaluated and bytes or items made, about
  size_t output_bytes = 16 << 20;   // of the rendered text and of any one text
  int depth = 400;                  // of nested expressions, statements and macro calls
};

// What one rendering has used so far, and where it is.
class Context {
 public:
  Context(const std::string& name, Limits limits) : name_(name), limits_(limits), steps_left_(limits.steps) {}

  // Error naming template and line.
  [[noreturn]] void fail(const std::string& what, const std::string& hint = "") const;
  void spend(size_t steps);
  void check_text_size(size_t bytes);  // also spends
  int line = 1;

  struct Deeper {
    explicit Deeper(Context& context) : context_(context) {
      if (++context_.depth_ > context_.limits_.depth) context_.fail_depth();
    }
    ~Deeper() { --context_.depth_; }
    Context& context_;
  };
  const Limits& limits() const { return limits_; }

 private:
  [[noreturn]] void fail_depth();
  const std::string& name_;
  Limits limits_;
  size_t steps_left_;
  int depth_ = 0;
};

// str() and repr() of Python.
std::string to_text(Context& context, const Value& value);
void append_repr(Context& context, std::string& out, const Value& value);
std::string float_text(double value);

struct JsonStyle {
  int indent = -1;  // -1: on one line
  std::string item_separator = ", ", key_separator = ": ";
  bool ensure_ascii = false, sort_keys = false;
};
// json.dumps().
std::string to_json(Context& context, const Value& value, const JsonStyle& style);

bool equal(Context& context, const Value& a, const Value& b);
// < 0, 0, > 0; fails for what Python does not order.
int order(Context& context, const Value& a, const Value& b);
bool contains(Context& context, const Value& container, const Value& item);
const Value* find(Context& context, const Dict& dict, const Value& key);
void set(Context& context, Dict& dict, Value key, Value value);

// The items that a for goes through: of a sequence, characters of a text, keys of a dict, nothing of undefined. The
// result may be a reference into `value` or `storage`.
const List& iterate(Context& context, const Value& value, List& storage);
// len(); -1 for what has none.
int64_t length(const Value& value);

// Start of each character of a valid UTF-8 text, and its end.
std::vector<size_t> character_starts(std::string_view text);

}  // namespace mso::jinja
