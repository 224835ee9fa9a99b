// The parsed form of a Jinja template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/jinja_value.h"

namespace mso::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Block = std::vector<std::unique_ptr<Statement>>;

struct Expression {
  enum Kind {
    kConstant,     // value
    kName,         // name
    kList,         // arguments
    kTuple,        // arguments
    kDict,         // arguments: key, value, key, value …
    kAttribute,    // arguments[0].name
    kItem,         // arguments[0][arguments[1]]
    kSlice,        // arguments[0][arguments[1]:arguments[2]:arguments[3]], each but the first may be null
    kCall,         // arguments[0](arguments[1…], named)
    kFilter,       // arguments[0] | name(arguments[1…], named); arguments[0] is null in a filter block
    kTest,         // arguments[0] is name(arguments[1…], named)
    kNot,          // arguments[0]
    kAnd,          // arguments[0], arguments[1]
    kOr,           //
    kNegative,     // -arguments[0]
    kPositive,     //
    kBinary,       // arguments[0] name arguments[1]: + - * / // % **
    kConcatenate,  // arguments joined by ~
    kCompare,      // arguments[0] operators[0] arguments[1] operators[1] …: == != < <= > >= in, not in
    kConditional,  // arguments[1] if arguments[0] else arguments[2], which may be null
  };
  Kind kind = kConstant;
  int line = 1, depth = 1;
  std::string name;
  Value value;
  std::vector<ExpressionPtr> arguments;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> operators;
};

struct Statement {
  enum Kind {
    kText,        // text
    kPrint,       // expression
    kIf,          // branches in order; the last may have a null condition (else)
    kFor,         // names in expression, condition may be null; body, otherwise
    kSet,         // names (or one target "name.attribute") = expression
    kSetBlock,    // names = body, run through expression (a chain of filters) where there is one
    kMacro,       // name(parameters) body
    kCall,        // expression (a kCall) with body as caller(parameters)
    kFilter,      // body through expression
    kGeneration,  // body: what the assistant says
    kWith,        // names[i] = values[i] within body
    kBreak,
    kContinue,
  };
  struct Branch {
    ExpressionPtr condition;
    Block body;
  };
  struct Parameter {
    std::string name;
    ExpressionPtr otherwise;
  };
  Kind kind = kText;
  int line = 1;
  std::string text, name;
  std::vector<std::string> names;
  std::string attribute;  // of the namespace names[0]; empty: a plain name
  ExpressionPtr expression, condition;
  std::vector<ExpressionPtr> values;
  std::vector<Parameter> parameters;
  bool takes_more = false, takes_named = false, takes_caller = false;  // a macro that reads varargs, kwargs, caller
  std::vector<Branch> branches;
  Block body, otherwise;
};

// Error (kBadUsage) naming `name` and the line for what is no Jinja or not supported.
Block parse_template(std::string_view source, const std::string& name);

}  // namespace mso::jinja
