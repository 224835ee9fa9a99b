// What the interpreter refuses and where it stops; its results are compared with jinja2 in tests/reference.
#include <gtest/gtest.h>

#include "base/error.h"
#include "io/jinja_template.h"

namespace mso {
namespace {

using jinja::Value;

std::string render(const std::string& source, const nlohmann::ordered_json& variables = nlohmann::ordered_json::object(),
                   const jinja::Limits& limits = {}) {
  JinjaTemplate::Variables values;
  for (const auto& [name, value] : variables.items()) values.emplace_back(name, Value::from_json(value));
  return JinjaTemplate(source, "t.jinja").render(values, limits).text;
}

std::string failure(const std::string& source, const nlohmann::ordered_json& variables = nlohmann::ordered_json::object(),
                    const jinja::Limits& limits = {}) {
  try {
    return "no error, but: " + render(source, variables, limits);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Jinja, RendersAsJinja2) {
  EXPECT_EQ(render("  {% if x %}\n  yes\n  {% endif %}\nend\n", {{"x", 1}}), "  yes\nend");
  EXPECT_EQ(render("a {{- x -}} b {%- set y = x ~ '!' %} {{ y }}", {{"x", "é"}}), "aéb é!");
  EXPECT_EQ(render("{{ m[1:]|map(attribute='r')|join(',') }}", {{"m", {{{"r", "a"}}, {{"r", "b"}}, {{"r", "c"}}}}}), "b,c");
  EXPECT_EQ(render("{{ x }} {{ 1.0 }} {{ 1e16 }} {{ [none, true, 'a\\'b'] }}", {{"x", nullptr}}), "None 1.0 1e+16 [None, True, \"a'b\"]");
}

TEST(Jinja, MarksGenerationsInBytes) {
  const JinjaTemplate jinja("é{% for x in [1, 2] %}<{% generation %}ü{{ x }}{% endgeneration %}>{% endfor %}", "t");
  EXPECT_TRUE(jinja.has_generation());
  const auto rendered = jinja.render({});
  EXPECT_EQ(rendered.text, "é<ü1><ü2>");
  EXPECT_EQ(rendered.generations, (std::vector<std::pair<size_t, size_t>>{{3, 6}, {8, 11}}));
  EXPECT_FALSE(JinjaTemplate("x", "t").has_generation());
}

TEST(Jinja, NamesTemplateAndLine) {
  for (const char* source : {"\n\n{% if x %}", "\n\n{{ 1 + }}", "\n\n{% include 'a' %}", "\n\n{% extends 'a' %}", "\n\n{{ a.b.c }}",
                             "\n\n{{ raise_exception('no') }}", "\n\n{{ 1|nosuch }}", "\n\n{{ 1 is nosuch }}", "\n\n{{ f(*x) }}",
                             "\n\n{% for x in y recursive %}{% endfor %}", "\n\n{{ 'a }}", "\n\n{{ ')' ) }}", "\n\n{{ 'x'.encode() }}"})
    EXPECT_NE(failure(source).find("t.jinja line 3"), std::string::npos) << source << ": " << failure(source);
  EXPECT_NE(failure("{{ raise_exception('roles must alternate') }}").find("roles must alternate"), std::string::npos);
  EXPECT_NE(failure("{{ nothing.x }}").find("'nothing' is undefined"), std::string::npos);
}

TEST(Jinja, KeepsTheSandbox) {
  EXPECT_NE(failure("{{ [].append(1) }}").find("may not be used"), std::string::npos);
  EXPECT_NE(failure("{{ {}.update(1) }}").find("may not be used"), std::string::npos);
  EXPECT_NE(failure("{{ ''.__class__.__mro__ }}").find("may not be used"), std::string::npos);
  EXPECT_NE(failure("{% set ns = namespace(_a=1) %}").find("begins with _"), std::string::npos);
  EXPECT_NE(failure("{% set d = {} %}{% set d.x = 1 %}").find("no namespace"), std::string::npos);
}

TEST(Jinja, StopsWhatNeverEnds) {
  for (const char* source : {"{% for x in range(99999) %}{% for y in range(99999) %}{% endfor %}{% endfor %}",
                             "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{{ 'x' * 10000000000 }}", "{{ [0] * 100000000 * 100000000 }}",
                             "{% set ns = namespace(t='x') %}{% for i in range(99) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}",
                             "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
                             "{{ range(100000000)|length }}", "{{ 'x'|indent(100000000000) }}", "{{ 'x'.center(1000000000000) }}",
                             "{{ 'a'|batch(99999, 'x')|list|tojson(indent=1000)|length * '%0900000000d' % 1 }}",
                             "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}"})
    EXPECT_NE(failure(source).find("t.jinja line"), std::string::npos) << source;
  std::string deep = "x";
  for (int i = 0; i < 10000; ++i) deep = "(" + deep + ")";
  EXPECT_NE(failure("{{ " + deep + " }}").find("nested too deeply"), std::string::npos);
  std::string chain = "1";
  for (int i = 0; i < 10000; ++i) chain += "+1";
  EXPECT_NE(failure("{{ " + chain + " }}").find("too long"), std::string::npos);
  std::string blocks;
  for (int i = 0; i < 10000; ++i) blocks += "{% if 1 %}";
  EXPECT_NE(failure(blocks).find("nested too deeply"), std::string::npos);
  EXPECT_NE(failure("{{ 'x' * 1000 }}", {}, {.steps = 1000, .output_bytes = 999, .depth = 10}).find("makes a text"), std::string::npos);
}

// Values held a million deep are freed without a million nested calls.
TEST(Jinja, DeepValuesAreFreed) {
  const std::string begin = "{% set ns = namespace(x=1, y=1) %}{% for i in range(400) %}{% for j in range(400) %}",
                    end = "{% endfor %}{% endfor %}{% set ns.x = none %}freed";
  for (const char* wrap : {"{% set ns.x = [ns.x] %}", "{% set ns.x = (ns.x,) %}", "{% set ns.x = {'a': ns.x} %}", "{% set ns.x = namespace(x=ns.x) %}",
                           "{% set ns.x = dict(a=ns.x) %}", "{% set ns.x = [ns.x] | list %}", "{% set ns.x = [ns.x] | map('string') if false else [ns.x] %}",
                           "{% set loop_value = ns.x %}{% set ns.x = [loop, loop_value] %}"})
    EXPECT_EQ(render(begin + wrap + end), "freed") << wrap;
  // A function that keeps its scope, which keeps the one before.
  EXPECT_EQ(render("{% set ns = namespace(m=none) %}{% for i in range(200) %}{% for j in range(200) %}{% set old = ns.m %}{% macro m() %}{{ old }}{% endmacro %}"
                   "{% set ns.m = m %}{% endfor %}{% endfor %}{% set ns.m = none %}freed"), "freed");
}

TEST(Jinja, NamespacesThatHoldThemselvesAreFreed) {  // LeakSanitizer says so
  EXPECT_EQ(render("{% set a = namespace() %}{% set a.a = a %}{% macro m() %}{{ m }}{% endmacro %}{% set a.m = m %}x"), "x");
}

}  // namespace
}  // namespace mso
