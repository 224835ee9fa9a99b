// A small, strict interpreter of Jinja templates as Hugging Face's chat templates use them: the language of jinja2 with
// trim_blocks, lstrip_blocks, loopcontrols and {% generation %}, in its immutable sandbox, within limits of work.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/jinja_value.h"

namespace mso {

// Immutable; render() may be called from several threads at once.
class JinjaTemplate {
 public:
  // `name` stands for the template in messages. Error (kBadUsage) with the line for what is no Jinja and for what is not
  // supported: inheritance, include, import, recursive loops, `*` and `**` in calls, escape filters.
  JinjaTemplate(std::string_view source, std::string name);
  ~JinjaTemplate();
  JinjaTemplate(JinjaTemplate&&) noexcept;
  JinjaTemplate& operator=(JinjaTemplate&&) noexcept;

  struct Rendered {
    std::string text;
    // What stood within {% generation %}, as [start, end) in bytes of the text, in order.
    std::vector<std::pair<size_t, size_t>> generations;
  };
  using Variables = std::vector<std::pair<std::string, jinja::Value>>;

  // Error (kBadData) with the line for raise_exception(), operations on undefined or ill-fitting values, and for more
  // work, depth or text than `limits`.
  Rendered render(const Variables& variables, const jinja::Limits& limits = {}) const;

  bool has_generation() const;
  const std::string& name() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mso
