// The grammar of jinja2/parser.py, without template inheritance, includes and recursive loops.
#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "io/jinja_ast.h"
#include "io/jinja_lexer.h"

namespace mso::jinja {
namespace {

constexpr int kMaxDepth = 120;   // of nested statements and expressions
constexpr int kMaxChain = 250;   // of one expression's tree: a + b + c … is deep as well

using E = Expression;
using S = Statement;

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& name) : tokens_(std::move(tokens)), name_(name) {}

  Block run() {
    Block block = statements({});
    return block;
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& hint = "") const {
    throw Error("the chat template is not valid Jinja, or uses what is not supported",
                name_ + " line " + std::to_string(current().line) + ": " + what,
                hint.empty() ? "supported: if, for, set, macro, call, filter, with, generation, break, continue" : hint,
                ExitCode::kBadUsage);
  }

  // ---- tokens ----
  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool is(Token::Kind kind, std::string_view text = {}) const {
    return current().kind == kind && (text.empty() || current().text == text);
  }
  bool skip(Token::Kind kind, std::string_view text = {}) {
    if (!is(kind, text)) return false;
    take();
    return true;
  }
  bool skip_operator(std::string_view text) { return skip(Token::kOperator, text); }
  bool skip_name(std::string_view text) { return skip(Token::kName, text); }
  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) fail("'" + std::string(text) + "' is missing before '" + shown() + "'");
  }
  std::string expect_name() {
    if (!is(Token::kName)) fail("a name is missing before '" + shown() + "'");
    return take().text;
  }
  std::string shown() const {
    switch (current().kind) {
      case Token::kEnd:
        return "the end of the template";
      case Token::kBlockEnd:
        return "%}";
      case Token::kVariableEnd:
        return "}}";
      default:
        return current().text.substr(0, 60);
    }
  }

  // Counts nesting while the parser calls itself.
  struct Deeper {
    explicit Deeper(Parser& parser) : parser_(parser) {
      if (parser_.depth_ >= kMaxDepth) parser_.fail("nested too deeply", "split the expression, or nest less");
      ++parser_.depth_;
    }
    ~Deeper() { --parser_.depth_; }
    Parser& parser_;
  };

  // ---- expressions ----
  ExpressionPtr make(E::Kind kind, int line) {
    auto node = std::make_unique<E>();
    node->kind = kind;
    node->line = line;
    return node;
  }
  // Long chains (a + b + c …) make deep trees without deep parsing.
  ExpressionPtr finish(ExpressionPtr node) {
    auto look = [&](const ExpressionPtr& child) {
      if (child) node->depth = std::max(node->depth, child->depth + 1);
    };
    for (const ExpressionPtr& child : node->arguments) look(child);
    for (const auto& [name, child] : node->named) look(child);
    if (node->depth > kMaxChain) fail("an expression is too long", "split it with set");
    return node;
  }
  ExpressionPtr unary(E::Kind kind, int line, ExpressionPtr a) {
    ExpressionPtr node = make(kind, line);
    node->arguments.push_back(std::move(a));
    return finish(std::move(node));
  }
  ExpressionPtr binary(E::Kind kind, int line, ExpressionPtr a, ExpressionPtr b, std::string name = {}) {
    ExpressionPtr node = make(kind, line);
    node->name = std::move(name);
    node->arguments.push_back(std::move(a));
    node->arguments.push_back(std::move(b));
    return finish(std::move(node));
  }

  ExpressionPtr expression() {
    Deeper deeper(*this);
    const int line = current().line;
    ExpressionPtr node = or_expression();
    while (skip_name("if")) {
      ExpressionPtr conditional = make(E::kConditional, line);
      conditional->arguments.push_back(or_expression());
      conditional->arguments.push_back(std::move(node));
      conditional->arguments.push_back(skip_name("else") ? expression() : nullptr);
      node = finish(std::move(conditional));
    }
    return node;
  }

  ExpressionPtr or_expression() {
    ExpressionPtr left = and_expression();
    while (is(Token::kName, "or")) {
      const int line = take().line;
      left = binary(E::kOr, line, std::move(left), and_expression());
    }
    return left;
  }
  ExpressionPtr and_expression() {
    ExpressionPtr left = not_expression();
    while (is(Token::kName, "and")) {
      const int line = take().line;
      left = binary(E::kAnd, line, std::move(left), not_expression());
    }
    return left;
  }
  ExpressionPtr not_expression() {
    if (is(Token::kName, "not")) {
      Deeper deeper(*this);
      const int line = take().line;
      return unary(E::kNot, line, not_expression());
    }
    return comparison();
  }
  ExpressionPtr comparison() {
    const int line = current().line;
    ExpressionPtr left = sum();
    ExpressionPtr node;
    for (;;) {
      std::string op;
      if (current().kind == Token::kOperator && (current().text == "==" || current().text == "!=" ||
                                                 current().text == "<" || current().text == "<=" ||
                                                 current().text == ">" || current().text == ">=")) {
        op = take().text;
      } else if (is(Token::kName, "in")) {
        op = take().text;
      } else if (is(Token::kName, "not") && ahead().kind == Token::kName && ahead().text == "in") {
        take();
        take();
        op = "not in";
      } else {
        break;
      }
      if (!node) {
        node = make(E::kCompare, line);
        node->arguments.push_back(std::move(left));
      }
      node->operators.push_back(std::move(op));
      node->arguments.push_back(sum());
    }
    return node ? finish(std::move(node)) : std::move(left);
  }
  ExpressionPtr sum() {
    ExpressionPtr left = concatenation();
    while (is(Token::kOperator, "+") || is(Token::kOperator, "-")) {
      const Token& op = take();
      left = binary(E::kBinary, op.line, std::move(left), concatenation(), op.text);
    }
    return left;
  }
  ExpressionPtr concatenation() {
    const int line = current().line;
    ExpressionPtr first = product();
    if (!is(Token::kOperator, "~")) return first;
    ExpressionPtr node = make(E::kConcatenate, line);
    node->arguments.push_back(std::move(first));
    while (skip_operator("~")) node->arguments.push_back(product());
    return finish(std::move(node));
  }
  ExpressionPtr product() {
    ExpressionPtr left = power();
    while (is(Token::kOperator, "*") || is(Token::kOperator, "/") || is(Token::kOperator, "//") ||
           is(Token::kOperator, "%")) {
      const Token& op = take();
      left = binary(E::kBinary, op.line, std::move(left), power(), op.text);
    }
    return left;
  }
  ExpressionPtr power() {
    ExpressionPtr left = sign(true);
    while (is(Token::kOperator, "**")) {
      const int line = take().line;
      left = binary(E::kBinary, line, std::move(left), sign(true), "**");
    }
    return left;
  }
  ExpressionPtr sign(bool with_filter) {
    Deeper deeper(*this);
    const int line = current().line;
    ExpressionPtr node;
    if (skip_operator("-"))
      node = unary(E::kNegative, line, sign(false));
    else if (skip_operator("+"))
      node = unary(E::kPositive, line, sign(false));
    else
      node = primary();
    node = postfix(std::move(node));
    return with_filter ? filters(std::move(node)) : std::move(node);
  }

  ExpressionPtr constant(Value value, int line) {
    ExpressionPtr node = make(E::kConstant, line);
    node->value = std::move(value);
    return node;
  }
  ExpressionPtr name_expression(std::string name, int line) {
    ExpressionPtr node = make(E::kName, line);
    note_name(name);
    node->name = std::move(name);
    return node;
  }

  ExpressionPtr primary() {
    const Token& token = current();
    const int line = token.line;
    switch (token.kind) {
      case Token::kName: {
        std::string name = take().text;
        if (name == "true" || name == "True") return constant(true, line);
        if (name == "false" || name == "False") return constant(false, line);
        if (name == "none" || name == "None") return constant(Value::none(), line);
        return name_expression(std::move(name), line);
      }
      case Token::kString: {
        std::string text = take().text;
        while (is(Token::kString)) text += take().text;
        return constant(std::move(text), line);
      }
      case Token::kInteger: {
        const std::string& digits = take().text;
        int64_t number = 0;
        const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number);
        if (read.ec != std::errc()) fail("a number does not fit into 64 bits");
        return constant(number, line);
      }
      case Token::kFloat:
        return constant(std::strtod(take().text.c_str(), nullptr), line);
      case Token::kOperator:
        if (skip_operator("(")) {
          ExpressionPtr node = tuple(true, true);
          expect_operator(")");
          return node;
        }
        if (skip_operator("[")) {
          ExpressionPtr node = make(E::kList, line);
          while (!is(Token::kOperator, "]")) {
            if (!node->arguments.empty()) expect_operator(",");
            if (is(Token::kOperator, "]")) break;
            node->arguments.push_back(expression());
          }
          take();
          return finish(std::move(node));
        }
        if (skip_operator("{")) {
          ExpressionPtr node = make(E::kDict, line);
          while (!is(Token::kOperator, "}")) {
            if (!node->arguments.empty()) expect_operator(",");
            if (is(Token::kOperator, "}")) break;
            node->arguments.push_back(expression());
            expect_operator(":");
            node->arguments.push_back(expression());
          }
          take();
          return finish(std::move(node));
        }
        [[fallthrough]];
      default:
        fail("unexpected '" + shown() + "'");
    }
  }

  // One expression, or several with commas between.
  ExpressionPtr tuple(bool with_conditional, bool may_be_empty = false) {
    const int line = current().line;
    std::vector<ExpressionPtr> items;
    bool comma = false;
    auto ends = [&] {
      return current().kind == Token::kVariableEnd || current().kind == Token::kBlockEnd || is(Token::kOperator, ")") ||
             is(Token::kName, "recursive") || (!with_conditional && is(Token::kName, "if"));
    };
    while (!ends()) {
      items.push_back(with_conditional ? expression() : or_expression());
      if (!skip_operator(",")) break;
      comma = true;
    }
    if (items.empty() && !may_be_empty) fail("an expression is missing before '" + shown() + "'");
    if (items.size() == 1 && !comma) return std::move(items[0]);
    ExpressionPtr node = make(E::kTuple, line);
    node->arguments = std::move(items);
    return finish(std::move(node));
  }

  ExpressionPtr postfix(ExpressionPtr node) {
    for (;;) {
      const int line = current().line;
      if (skip_operator(".")) {
        if (is(Token::kInteger)) {
          ExpressionPtr index = primary();
          node = binary(E::kItem, line, std::move(node), std::move(index));
          continue;
        }
        std::string name = expect_name();
        ExpressionPtr attribute = unary(E::kAttribute, line, std::move(node));
        attribute->name = std::move(name);
        node = std::move(attribute);
      } else if (skip_operator("[")) {
        node = subscript(std::move(node), line);
      } else if (is(Token::kOperator, "(")) {
        node = call(std::move(node));
      } else {
        return node;
      }
    }
  }

  ExpressionPtr subscript(ExpressionPtr of, int line) {
    ExpressionPtr parts[3];
    bool slice = false;
    size_t part = 0;
    for (;;) {
      if (is(Token::kOperator, "]")) break;
      if (skip_operator(":")) {
        slice = true;
        if (++part > 2) fail("a slice has too many parts");
        continue;
      }
      if (parts[part]) fail("unexpected '" + shown() + "' within [ ]", "subscripts with commas are not supported");
      parts[part] = expression();
    }
    take();
    if (!slice) {
      if (!parts[0]) fail("nothing stands within [ ]");
      return binary(E::kItem, line, std::move(of), std::move(parts[0]));
    }
    ExpressionPtr node = make(E::kSlice, line);
    node->arguments.push_back(std::move(of));
    for (ExpressionPtr& p : parts) node->arguments.push_back(std::move(p));
    return finish(std::move(node));
  }

  void call_arguments(E& node) {
    expect_operator("(");
    while (!is(Token::kOperator, ")")) {
      if (is(Token::kOperator, "*") || is(Token::kOperator, "**"))
        fail("* and ** in calls are not supported", "write the arguments out");
      if (is(Token::kName) && ahead().kind == Token::kOperator && ahead().text == "=") {
        std::string name = take().text;
        take();
        node.named.emplace_back(std::move(name), expression());
      } else {
        if (!node.named.empty()) fail("an argument without a name follows one with a name");
        node.arguments.push_back(expression());
      }
      if (!is(Token::kOperator, ")")) expect_operator(",");
    }
    take();
  }
  ExpressionPtr call(ExpressionPtr callee) {
    ExpressionPtr node = make(E::kCall, current().line);
    node->arguments.push_back(std::move(callee));
    call_arguments(*node);
    return finish(std::move(node));
  }

  std::string dotted_name() {
    std::string name = expect_name();
    while (skip_operator(".")) name += "." + expect_name();
    return name;
  }

  ExpressionPtr filter(ExpressionPtr input) {
    ExpressionPtr node = make(E::kFilter, current().line);
    node->name = dotted_name();
    node->arguments.push_back(std::move(input));
    if (is(Token::kOperator, "(")) call_arguments(*node);
    return finish(std::move(node));
  }

  ExpressionPtr filters(ExpressionPtr node) {
    for (;;) {
      if (skip_operator("|")) {
        node = filter(std::move(node));
      } else if (is(Token::kName, "is")) {
        node = test(std::move(node));
      } else if (is(Token::kOperator, "(")) {
        node = call(std::move(node));
      } else {
        return node;
      }
    }
  }

  ExpressionPtr test(ExpressionPtr input) {
    const int line = take().line;
    const bool negated = skip_name("not");
    ExpressionPtr node = make(E::kTest, line);
    node->name = dotted_name();
    node->arguments.push_back(std::move(input));
    const Token& next = current();
    if (is(Token::kOperator, "(")) {
      call_arguments(*node);
    } else if (next.kind == Token::kString || next.kind == Token::kInteger || next.kind == Token::kFloat ||
               is(Token::kOperator, "[") || is(Token::kOperator, "{") ||
               (next.kind == Token::kName && next.text != "else" && next.text != "or" && next.text != "and")) {
      if (next.text == "is" && next.kind == Token::kName) fail("tests cannot be chained with is");
      // "x is defined if y" and "x is none in z" do not occur in jinja2 either: the next word is an argument.
      node->arguments.push_back(postfix(primary()));
    }
    node = finish(std::move(node));
    return negated ? unary(E::kNot, line, std::move(node)) : std::move(node);
  }

  // ---- statements ----
  std::unique_ptr<S> make_statement(S::Kind kind, int line) {
    auto node = std::make_unique<S>();
    node->kind = kind;
    node->line = line;
    return node;
  }

  void end_tag() {
    if (!skip(Token::kBlockEnd)) fail("unexpected '" + shown() + "' in a tag");
  }

  // Up to a tag that begins with one of `ends`, whose name is taken; {}: to the end of the template.
  Block statements(const std::vector<std::string_view>& ends) {
    Deeper deeper(*this);
    const int start = current().line;
    Block block;
    for (;;) {
      if (current().kind == Token::kEnd) {
        if (ends.empty()) return block;
        fail("'" + std::string(ends.back()) + "' is missing for what begins in line " + std::to_string(start));
      }
      const int line = current().line;
      if (is(Token::kData)) {
        auto text = make_statement(S::kText, line);
        text->text = take().text;
        block.push_back(std::move(text));
      } else if (skip(Token::kVariableBegin)) {
        auto print = make_statement(S::kPrint, line);
        print->expression = tuple(true);
        if (!skip(Token::kVariableEnd)) fail("unexpected '" + shown() + "' in a {{ }}");
        block.push_back(std::move(print));
      } else {
        take();  // {%
        if (!is(Token::kName)) fail("a tag begins with '" + shown() + "' instead of a name");
        for (std::string_view end : ends)
          if (current().text == end) {
            end_ = take().text;
            return block;
          }
        if (auto made = statement()) block.push_back(std::move(made));
      }
    }
  }
  Block body(std::string_view end) {
    end_tag();
    Block block = statements({end});
    end_tag();
    return block;
  }

  std::unique_ptr<S> statement() {
    const int line = current().line;
    const std::string word = take().text;
    if (word == "if") return if_statement(line);
    if (word == "for") return for_statement(line);
    if (word == "set") return set_statement(line);
    if (word == "macro") return macro_statement(line);
    if (word == "call") return call_statement(line);
    if (word == "with") return with_statement(line);
    if (word == "filter") {
      auto node = make_statement(S::kFilter, line);
      node->expression = filter(nullptr);
      while (skip_operator("|")) node->expression = filter(std::move(node->expression));
      node->body = body("endfilter");
      return node;
    }
    if (word == "generation") {
      auto node = make_statement(S::kGeneration, line);
      node->body = body("endgeneration");
      return node;
    }
    if (word == "break" || word == "continue") {
      if (loops_ == 0) fail("'" + word + "' outside of a loop");
      auto node = make_statement(word == "break" ? S::kBreak : S::kContinue, line);
      end_tag();
      return node;
    }
    --at_;  // the message shows the word's line
    fail("the tag '" + word + "' is not supported or not expected here");
  }

  std::unique_ptr<S> if_statement(int line) {
    auto node = make_statement(S::kIf, line);
    ExpressionPtr condition = tuple(true);
    for (;;) {
      end_tag();
      Block block = statements({"elif", "else", "endif"});
      const bool was_else = !condition;
      node->branches.push_back({std::move(condition), std::move(block)});
      if (end_ == "endif") break;
      if (was_else) fail("'" + end_ + "' behind else");
      condition = end_ == "elif" ? tuple(true) : nullptr;
    }
    end_tag();
    return node;
  }

  std::vector<std::string> targets() {
    std::vector<std::string> names;
    const bool bracket = skip_operator("(");
    do {
      if (!names.empty() && !is(Token::kName)) break;
      names.push_back(expect_name());
      static constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None", "loop"};
      if (std::find(std::begin(kReserved), std::end(kReserved), names.back()) != std::end(kReserved))
        fail("'" + names.back() + "' cannot be set");
    } while (skip_operator(","));
    if (bracket) expect_operator(")");
    return names;
  }

  std::unique_ptr<S> for_statement(int line) {
    auto node = make_statement(S::kFor, line);
    node->names = targets();
    if (!skip_name("in")) fail("'in' is missing in a for");
    node->expression = tuple(false);
    if (skip_name("if")) node->condition = expression();
    if (is(Token::kName, "recursive")) fail("recursive loops are not supported", "use a macro that calls itself");
    end_tag();
    ++loops_;
    node->body = statements({"endfor", "else"});
    --loops_;
    if (end_ == "else") {
      end_tag();
      node->otherwise = statements({"endfor"});
    }
    end_tag();
    return node;
  }

  std::unique_ptr<S> set_statement(int line) {
    auto node = make_statement(S::kSet, line);
    if (is(Token::kName) && ahead().kind == Token::kOperator && ahead().text == ".") {
      const int name_line = current().line;
      node->expression = nullptr;
      node->names.push_back(take().text);
      note_name(node->names[0]);
      (void)name_line;
      take();
      node->attribute = expect_name();
    } else {
      node->names = targets();
    }
    if (skip_operator("=")) {
      node->expression = tuple(true);
      end_tag();
      return node;
    }
    node->kind = S::kSetBlock;
    if (node->names.size() != 1) fail("a set block has one target");
    while (skip_operator("|")) node->expression = filter(std::move(node->expression));
    node->body = body("endset");
    return node;
  }

  std::vector<S::Parameter> parameters() {
    std::vector<S::Parameter> list;
    expect_operator("(");
    while (!is(Token::kOperator, ")")) {
      S::Parameter parameter;
      parameter.name = expect_name();
      if (skip_operator("="))
        parameter.otherwise = expression();
      else if (!list.empty() && list.back().otherwise)
        fail("a parameter without default follows one with a default");
      list.push_back(std::move(parameter));
      if (!is(Token::kOperator, ")")) expect_operator(",");
    }
    take();
    return list;
  }

  // The body of a macro or caller: loops outside do not count, and it is noted which special names it reads.
  void function_body(S& node, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    S* outer = std::exchange(function_, &node);
    node.body = body(end);
    function_ = outer;
    loops_ = loops;
  }
  void note_name(const std::string& name) {
    if (!function_) return;
    if (name == "varargs") function_->takes_more = true;
    if (name == "kwargs") function_->takes_named = true;
    if (name == "caller") function_->takes_caller = true;
  }

  std::unique_ptr<S> macro_statement(int line) {
    auto node = make_statement(S::kMacro, line);
    node->name = expect_name();
    node->parameters = parameters();
    function_body(*node, "endmacro");
    return node;
  }

  std::unique_ptr<S> call_statement(int line) {
    auto node = make_statement(S::kCall, line);
    if (is(Token::kOperator, "(")) node->parameters = parameters();
    node->expression = expression();
    if (node->expression->kind != E::kCall) fail("call needs a macro with ( )");
    function_body(*node, "endcall");
    return node;
  }

  std::unique_ptr<S> with_statement(int line) {
    auto node = make_statement(S::kWith, line);
    while (!is(Token::kBlockEnd)) {
      if (!node->names.empty()) expect_operator(",");
      node->names.push_back(expect_name());
      expect_operator("=");
      node->values.push_back(expression());
    }
    node->body = body("endwith");
    return node;
  }

  std::vector<Token> tokens_;
  const std::string& name_;
  size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
  S* function_ = nullptr;
  std::string end_;  // the word that ended the last statements()
};

}  // namespace

Block parse_template(std::string_view source, const std::string& name) {
  return Parser(tokenize_template(source, name), name).run();
}

}  // namespace mso::jinja
