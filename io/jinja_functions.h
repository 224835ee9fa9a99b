// What Jinja templates can call: operators, methods of Python's texts, lists and dicts, filters and tests.
#pragma once

#include <string>

#include "io/jinja_value.h"

namespace mso::jinja {

// Hands out the arguments of a call in order, or by name.
class ArgumentReader {
 public:
  ArgumentReader(Context& context, std::string function, Arguments& arguments)
      : context_(context), function_(std::move(function)), arguments_(arguments) {}
  bool any() const { return next_ < arguments_.positional.size() || !arguments_.named.empty(); }
  Value optional(const std::string& name, Value otherwise);
  Value required(const std::string& name);
  int64_t integer(const std::string& name, int64_t otherwise);
  std::string text(const std::string& name, std::string otherwise);
  bool truth(const std::string& name, bool otherwise);
  // Fails for arguments that nobody asked for.
  void done();

 private:
  const Value* look_up(const std::string& name);
  Context& context_;
  std::string function_;
  Arguments& arguments_;
  size_t next_ = 0;
  Value taken_;
};

// + - * / // % **; % of a text formats it.
Value binary(Context& context, const std::string& op, const Value& a, const Value& b);
Value negative(Context& context, const Value& a);

// object.name, as jinja2's sandbox allows: an attribute or method, else the item of that name, else undefined.
Value attribute(Context& context, const Value& object, const std::string& name);
// object[key]; out of range or missing: undefined.
Value item(Context& context, const Value& object, const Value& key);
// object[from:to:step]; each part may be none.
Value slice(Context& context, const Value& object, const Value& from, const Value& to, const Value& step);

bool is_method(const Value& object, const std::string& name);
Value call_method(Context& context, const Value& object, const std::string& name, Arguments& arguments);
Value call(Context& context, const Value& callee, Arguments& arguments);

bool is_filter(const std::string& name);
Value apply_filter(Context& context, const std::string& name, const Value& input, Arguments& arguments);
bool is_test(const std::string& name);
bool apply_test(Context& context, const std::string& name, const Value& input, Arguments& arguments);

// Python's str methods that filters share.
std::string upper_text(const std::string& text);
std::string lower_text(const std::string& text);
std::string capitalized_text(const std::string& text);
std::string stripped_text(const std::string& text, const std::string* characters, bool left, bool right);
std::string replaced_text(Context& context, const std::string& text, const std::string& old, const std::string& with,
                          int64_t count);

}  // namespace mso::jinja
