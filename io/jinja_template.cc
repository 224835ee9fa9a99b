#include "io/jinja_template.h"

#include <algorithm>

#include "base/error.h"
#include "io/jinja_ast.h"
#include "io/jinja_functions.h"
#include "io/utf8.h"

namespace mso {

namespace jinja {
namespace {

constexpr int64_t kMostOfRange = 100000;  // MAX_RANGE of jinja2's sandbox

struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> values;

  Value* find_here(const std::string& name) {
    for (auto& [key, value] : values)
      if (key == name) return &value;
    return nullptr;
  }
  void set(const std::string& name, Value value) {
    if (Value* found = find_here(name))
      *found = std::move(value);
    else
      values.emplace_back(name, std::move(value));
  }
};
using ScopePtr = std::shared_ptr<Scope>;

class Renderer {
 public:
  Renderer(Context& context, JinjaTemplate::Rendered& out) : context_(context), out_(out) {}
  // Macros keep their scope, which keeps the macro; namespaces may hold themselves.
  ~Renderer() {
    for (const ScopePtr& scope : captured_) scope->values.clear();
    for (const auto& made : *namespaces_)
      if (auto alive = made.lock()) alive->items.clear();
  }

  void run(const Block& block, const JinjaTemplate::Variables& variables) {
    auto globals = make_flat<Scope>();
    define_functions(*globals);
    for (const auto& [name, value] : variables) globals->set(name, value);
    auto root = make_flat<Scope>();
    root->parent = globals;
    execute(block, root, out_.text);
  }

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  void define_functions(Scope& globals) {
    globals.set("raise_exception", Value::function("raise_exception", [](Context& c, Arguments& a) -> Value {
                  ArgumentReader reader(c, "raise_exception", a);
                  const std::string message = to_text(c, reader.required("message"));
                  c.fail("the chat template refuses the conversation: " + message);
                }));
    globals.set("range", Value::function("range", [](Context& c, Arguments& a) -> Value {
                  ArgumentReader reader(c, "range", a);
                  int64_t start = 0, stop = reader.integer("start", 0), step = 1;
                  if (reader.any()) {
                    start = stop;
                    stop = reader.integer("stop", 0);
                    step = reader.integer("step", 1);
                  }
                  reader.done();
                  if (step == 0) c.fail("range's step is 0");
                  List items;
                  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
                    if (static_cast<int64_t>(items.size()) >= kMostOfRange) c.fail("range is too long", "at most 100000 numbers");
                    items.push_back(i);
                    if (__builtin_add_overflow(i, step, &i)) break;
                  }
                  c.spend(items.size());
                  return Value::list(std::move(items));
                }));
    globals.set("dict", Value::function("dict", [](Context& c, Arguments& a) -> Value {
                  Dict dict;
                  if (!a.positional.empty()) {
                    if (a.positional.size() > 1 || !a.positional[0].dict()) c.fail("dict() takes a dict and named values");
                    dict = *a.positional[0].dict();
                    c.spend(dict.items.size());
                  }
                  for (auto& [name, value] : a.named) jinja::set(c, dict, name, value);
                  return Value::dict(std::move(dict));
                }));
    auto made = namespaces_;
    globals.set("namespace", Value::function("namespace", [made](Context& c, Arguments& a) -> Value {
                  auto space = make_flat<Namespace>();
                  auto add = [&](const std::string& name, Value value) {
                    if (name.starts_with('_')) c.fail("an attribute of a namespace begins with _: " + name);
                    space->items.emplace_back(name, std::move(value));
                  };
                  if (!a.positional.empty()) {
                    if (a.positional.size() > 1 || !a.positional[0].dict()) c.fail("namespace() takes a dict and named values");
                    for (const auto& [key, value] : a.positional[0].dict()->items) add(to_text(c, key), value);
                  }
                  for (auto& [name, value] : a.named) add(name, value);
                  made->push_back(space);
                  return space;
                }));
  }

  Value* find(const std::string& name, Scope* scope) {
    for (; scope; scope = scope->parent.get())
      if (Value* found = scope->find_here(name)) return found;
    return nullptr;
  }

  // ---- expressions ----

  Arguments arguments_of(const Expression& node, const ScopePtr& scope) {
    Arguments arguments;
    for (size_t i = 1; i < node.arguments.size(); ++i) arguments.positional.push_back(evaluate(*node.arguments[i], scope));
    for (const auto& [name, value] : node.named) arguments.named.emplace_back(name, evaluate(*value, scope));
    return arguments;
  }

  Value evaluate(const Expression& node, const ScopePtr& scope) {
    Context::Deeper deeper(context_);
    context_.spend(1);
    context_.line = node.line;
    auto part = [&](size_t i) { return evaluate(*node.arguments[i], scope); };
    switch (node.kind) {
      case Expression::kConstant:
        return node.value;
      case Expression::kName: {
        if (Value* found = find(node.name, scope.get())) return *found;
        return Value::undefined("'" + node.name + "' is undefined");
      }
      case Expression::kList:
      case Expression::kTuple: {
        List items;
        for (size_t i = 0; i < node.arguments.size(); ++i) items.push_back(part(i));
        return Value::list(std::move(items), node.kind == Expression::kTuple ? Sequence::kTuple : Sequence::kList);
      }
      case Expression::kDict: {
        Dict dict;
        for (size_t i = 0; i < node.arguments.size(); i += 2) {
          Value key = part(i);
          jinja::set(context_, dict, std::move(key), part(i + 1));
        }
        return Value::dict(std::move(dict));
      }
      case Expression::kAttribute:
        return attribute(context_, part(0), node.name);
      case Expression::kItem: {
        const Value object = part(0);
        return item(context_, object, part(1));
      }
      case Expression::kSlice: {
        const Value object = part(0);
        Value bounds[3];
        for (size_t i = 0; i < 3; ++i) bounds[i] = node.arguments[i + 1] ? part(i + 1) : Value::none();
        return slice(context_, object, bounds[0], bounds[1], bounds[2]);
      }
      case Expression::kCall: {
        const Expression& callee = *node.arguments[0];
        if (callee.kind == Expression::kAttribute) {  // a method needs no function made of it
          const Value object = evaluate(*callee.arguments[0], scope);
          if (is_method(object, callee.name)) {
            Arguments arguments = arguments_of(node, scope);
            return call_method(context_, object, callee.name, arguments);
          }
          const Value function = attribute(context_, object, callee.name);
          Arguments arguments = arguments_of(node, scope);
          return call(context_, function, arguments);
        }
        const Value function = part(0);
        Arguments arguments = arguments_of(node, scope);
        return call(context_, function, arguments);
      }
      case Expression::kFilter: {
        const Value input = node.arguments[0] ? part(0) : filter_input_;
        Arguments arguments = arguments_of(node, scope);
        return apply_filter(context_, node.name, input, arguments);
      }
      case Expression::kTest: {
        const Value input = part(0);
        Arguments arguments = arguments_of(node, scope);
        return apply_test(context_, node.name, input, arguments);
      }
      case Expression::kNot:
        return !part(0).truthy();
      case Expression::kAnd: {
        Value left = part(0);
        return left.truthy() ? part(1) : left;
      }
      case Expression::kOr: {
        Value left = part(0);
        return left.truthy() ? left : part(1);
      }
      case Expression::kNegative:
        return negative(context_, part(0));
      case Expression::kPositive: {
        const Value value = part(0);
        if (!value.is_number()) context_.fail(std::string("'+' does not take a ") + value.type_name());
        return value;
      }
      case Expression::kBinary: {
        const Value left = part(0);
        return binary(context_, node.name, left, part(1));
      }
      case Expression::kConcatenate: {
        std::string text;
        for (size_t i = 0; i < node.arguments.size(); ++i) {
          text += to_text(context_, part(i));
          context_.check_text_size(text.size());
        }
        return text;
      }
      case Expression::kCompare: {
        Value left = part(0);
        for (size_t i = 0; i < node.operators.size(); ++i) {
          Value right = part(i + 1);
          if (!compare(node.operators[i], left, right)) return false;
          left = std::move(right);
        }
        return true;
      }
      case Expression::kConditional:
        if (part(0).truthy()) return part(1);
        if (node.arguments[2]) return part(2);
        return Value::undefined("the condition of an inline if is false and there is no else");
    }
    return {};
  }

  bool compare(const std::string& op, const Value& a, const Value& b) {
    if (op == "==") return equal(context_, a, b);
    if (op == "!=") return !equal(context_, a, b);
    if (op == "in") return contains(context_, b, a);
    if (op == "not in") return !contains(context_, b, a);
    const int relation = order(context_, a, b);
    return op == "<" ? relation < 0 : op == "<=" ? relation <= 0 : op == ">" ? relation > 0 : relation >= 0;
  }

  // ---- statements ----

  void append(std::string& out, const std::string& text) {
    context_.check_text_size(out.size() + text.size());
    out += text;
  }

  Flow execute(const Block& block, const ScopePtr& scope, std::string& out) {
    Context::Deeper deeper(context_);
    for (const auto& statement : block) {
      const Flow flow = execute(*statement, scope, out);
      if (flow != Flow::kNormal) return flow;
    }
    return Flow::kNormal;
  }

  void bind(const Statement& node, const Value& value, const ScopePtr& scope) {
    if (node.names.size() == 1 && !node.attribute.empty()) {
      Value* target = find(node.names[0], scope.get());
      Namespace* space = target ? target->name_space() : nullptr;
      if (!space) context_.fail("'" + node.names[0] + "' is no namespace: only of those can attributes be set");
      if (node.attribute.starts_with('_')) context_.fail("an attribute of a namespace begins with _: " + node.attribute);
      for (auto& [name, old] : space->items)
        if (name == node.attribute) {
          old = value;
          return;
        }
      space->items.emplace_back(node.attribute, value);
      return;
    }
    if (node.names.size() == 1) return scope->set(node.names[0], value);
    List storage;
    const List& items = iterate(context_, value, storage);
    if (items.size() != node.names.size())
      context_.fail(std::to_string(node.names.size()) + " names are set from " + std::to_string(items.size()) + " values");
    for (size_t i = 0; i < items.size(); ++i) scope->set(node.names[i], items[i]);
  }

  ScopePtr inner(const ScopePtr& parent) {
    context_.spend(1);
    auto scope = make_flat<Scope>();
    scope->parent = parent;
    return scope;
  }

  Value filtered(const Expression& chain, std::string text, const ScopePtr& scope) {
    Value before = std::exchange(filter_input_, Value(std::move(text)));
    Value result = evaluate(chain, scope);
    filter_input_ = std::move(before);
    return result;
  }

  // The function that a macro or the body of a call block is.
  Value function_of(const Statement& node, const ScopePtr& scope) {
    captured_.push_back(scope);
    const std::string name = node.kind == Statement::kMacro ? node.name : "caller";
    return Value::function(name, [this, &node, scope, name](Context& context, Arguments& arguments) -> Value {
      ScopePtr own = inner(scope);
      const size_t given = arguments.positional.size();
      for (size_t i = 0; i < node.parameters.size(); ++i) {
        const Statement::Parameter& parameter = node.parameters[i];
        if (i < given) {
          own->set(parameter.name, arguments.positional[i]);
          continue;
        }
        auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                  [&](const auto& a) { return a.first == parameter.name; });
        if (named != arguments.named.end()) {
          own->set(parameter.name, std::move(named->second));
          arguments.named.erase(named);
        } else {
          own->set(parameter.name, parameter.otherwise
                                       ? evaluate(*parameter.otherwise, own)
                                       : Value::undefined("parameter '" + parameter.name + "' was not provided"));
        }
      }
      List more;
      if (given > node.parameters.size())
        more.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(node.parameters.size()), arguments.positional.end());
      if (!more.empty() && !node.takes_more) context.fail("the macro '" + name + "' takes " + std::to_string(node.parameters.size()) + " arguments");
      if (node.takes_more) own->set("varargs", Value::list(std::move(more), Sequence::kTuple));
      if (node.takes_caller) {
        auto caller = std::find_if(arguments.named.begin(), arguments.named.end(), [](const auto& a) { return a.first == "caller"; });
        own->set("caller", caller != arguments.named.end() ? caller->second : Value::undefined("no caller defined"));
        if (caller != arguments.named.end()) arguments.named.erase(caller);
      }
      if (node.takes_named) {
        Dict rest;
        for (auto& [key, value] : arguments.named) jinja::set(context, rest, key, value);
        own->set("kwargs", Value::dict(std::move(rest)));
      } else if (!arguments.named.empty()) {
        context.fail("the macro '" + name + "' has no argument '" + arguments.named[0].first + "'");
      }
      std::string text;
      execute(node.body, own, text);
      return text;
    });
  }

  Flow for_loop(const Statement& node, const ScopePtr& scope, std::string& out) {
    const Value values = evaluate(*node.expression, scope);
    List storage;
    const List& found = iterate(context_, values, storage);
    auto items = make_flat<List>();
    for (const Value& value : found) {
      if (node.condition) {
        ScopePtr trial = inner(scope);
        bind(node, value, trial);
        if (!evaluate(*node.condition, trial).truthy()) continue;
      }
      items->push_back(value);
    }
    context_.spend(items->size());
    if (items->empty()) {
      ScopePtr own = inner(scope);
      return execute(node.otherwise, own, out);
    }
    auto loop = make_flat<Loop>();
    loop->items = items;
    Flow flow = Flow::kNormal;
    for (; loop->index < items->size() && flow != Flow::kBreak; ++loop->index) {
      ScopePtr own = inner(scope);
      own->set("loop", loop);
      bind(node, (*items)[loop->index], own);
      flow = execute(node.body, own, out);
    }
    return Flow::kNormal;
  }

  Flow execute(const Statement& node, const ScopePtr& scope, std::string& out) {
    context_.spend(1);
    context_.line = node.line;
    switch (node.kind) {
      case Statement::kText:
        append(out, node.text);
        break;
      case Statement::kPrint:
        append(out, to_text(context_, evaluate(*node.expression, scope)));
        break;
      case Statement::kIf:
        for (const Statement::Branch& branch : node.branches)
          if (!branch.condition || evaluate(*branch.condition, scope).truthy()) return execute(branch.body, scope, out);
        break;
      case Statement::kFor:
        return for_loop(node, scope, out);
      case Statement::kSet:
        bind(node, evaluate(*node.expression, scope), scope);
        break;
      case Statement::kSetBlock: {
        std::string text;
        const Flow flow = execute(node.body, inner(scope), text);
        bind(node, node.expression ? filtered(*node.expression, std::move(text), scope) : Value(std::move(text)), scope);
        return flow;
      }
      case Statement::kMacro:
        scope->set(node.name, function_of(node, scope));
        break;
      case Statement::kCall: {
        const Value caller = function_of(node, scope);
        const Value function = evaluate(*node.expression->arguments[0], scope);
        Arguments arguments = arguments_of(*node.expression, scope);
        arguments.named.emplace_back("caller", caller);
        append(out, to_text(context_, call(context_, function, arguments)));
        break;
      }
      case Statement::kFilter: {
        std::string text;
        const Flow flow = execute(node.body, inner(scope), text);
        append(out, to_text(context_, filtered(*node.expression, std::move(text), scope)));
        return flow;
      }
      case Statement::kGeneration: {
        // Offsets count from what the whole template has written so far, as transformers counts them.
        const size_t start = out_.text.size();
        std::string text;
        const Flow flow = execute(node.body, inner(scope), text);
        out_.generations.emplace_back(start, start + text.size());
        append(out, text);
        return flow;
      }
      case Statement::kWith: {
        ScopePtr own = inner(scope);
        for (size_t i = 0; i < node.names.size(); ++i) own->set(node.names[i], evaluate(*node.values[i], scope));
        return execute(node.body, own, out);
      }
      case Statement::kBreak:
        return Flow::kBreak;
      case Statement::kContinue:
        return Flow::kContinue;
    }
    return Flow::kNormal;
  }

  Context& context_;
  JinjaTemplate::Rendered& out_;
  Value filter_input_;
  std::vector<ScopePtr> captured_;
  std::shared_ptr<std::vector<std::weak_ptr<Namespace>>> namespaces_ =
      std::make_shared<std::vector<std::weak_ptr<Namespace>>>();
};

bool any_generation(const Block& block) {
  for (const auto& node : block) {
    if (node->kind == Statement::kGeneration || any_generation(node->body) || any_generation(node->otherwise)) return true;
    for (const auto& branch : node->branches)
      if (any_generation(branch.body)) return true;
  }
  return false;
}

}  // namespace
}  // namespace jinja

struct JinjaTemplate::Impl {
  std::string name;
  jinja::Block block;
  bool generation = false;
};

namespace {
constexpr size_t kMaxSource = 1 << 20;
}

JinjaTemplate::JinjaTemplate(std::string_view source, std::string name) : impl_(std::make_unique<Impl>()) {
  impl_->name = std::move(name);
  if (source.size() > kMaxSource)
    throw Error("the chat template is too long", impl_->name + ": " + std::to_string(source.size()) + " bytes",
                "at most 1 MiB", ExitCode::kBadUsage);
  std::string storage;
  impl_->block = jinja::parse_template(valid_utf8(source, storage), impl_->name);
  impl_->generation = jinja::any_generation(impl_->block);
}
JinjaTemplate::~JinjaTemplate() = default;
JinjaTemplate::JinjaTemplate(JinjaTemplate&&) noexcept = default;
JinjaTemplate& JinjaTemplate::operator=(JinjaTemplate&&) noexcept = default;

bool JinjaTemplate::has_generation() const { return impl_->generation; }
const std::string& JinjaTemplate::name() const { return impl_->name; }

JinjaTemplate::Rendered JinjaTemplate::render(const Variables& variables, const jinja::Limits& limits) const {
  Rendered rendered;
  jinja::Context context(impl_->name, limits);
  {
    jinja::Renderer renderer(context, rendered);
    renderer.run(impl_->block, variables);
  }
  for (auto& [start, end] : rendered.generations) {
    start = std::min(start, rendered.text.size());
    end = std::min(end, rendered.text.size());
  }
  return rendered;
}

}  // namespace mso
