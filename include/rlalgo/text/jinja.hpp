// Jinja templates, as far as chat templates go: an interpreter over JSON values with the environment of transformers.
//
// Language: text, {{ }}, {% if/elif/else, for (unpacking, filter, else, recursive), set (also blocks and namespace
// attributes), macro, call, filter, with, break, continue, generation, print, raw %}, {# #}; all expressions of
// Jinja2 3.1; its filters and tests except random, pprint, striptags, wordwrap, urlize, xmlattr and filesizeformat;
// Python's methods of str, dict and list that change nothing. Not: include, import, extends, block. Environment:
// trim_blocks, lstrip_blocks, no autoescape, lenient undefined values; tojson without HTML escaping; raise_exception
// and strftime_now; integers have 64 bits. A template is parsed once; render is const and safe to call from many
// threads at once.
//
// Errors: [rlalgo.text.6] the template does not parse. [rlalgo.text.7] it fails while it runs, or does too much.
// [rlalgo.text.8] it called raise_exception, with its message. Each names the line and shows the tag.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/text/detail/jinja_evaluator.hpp>
#include <rlalgo/text/detail/jinja_json.hpp>
#include <rlalgo/text/detail/jinja_parser.hpp>
#include <rlalgo/text/special_tokens.hpp>

namespace rlalgo::text {

struct JinjaOptions {
  // Operations, and 16-byte pieces of the text and lists that are made: bounds time and memory (jinja_meter.hpp). A
  // long chat needs some ten thousand.
  std::size_t step_limit = 20'000'000;
  std::time_t now = 0;  // what strftime_now calls the time; 0 = the clock
};

class JinjaTemplate {
 public:
  // name: what error messages call the template, for example its file.
  explicit JinjaTemplate(std::string source, std::string name = "chat template")
      : source_(std::move(source)), name_(std::move(name)) {
    try {
      body_ = std::make_shared<const std::vector<detail::NodePtr>>(
          detail::TemplateParser(detail::is_valid_utf8(source_) ? source_ : detail::to_valid_utf8(source_)).run());
    } catch (const detail::TemplateSyntaxError& error) {
      core::raise("text", 6,
                  {.what = "the chat template has a syntax error",
                   .found = error.message,
                   .where = place(error.line, error.tag)});
    }
  }

  // variables: an object, name → value.
  [[nodiscard]] std::string render(const Json& variables, const JinjaOptions& options = {}) const {
    detail::Evaluator evaluator(options.step_limit, options.now != 0 ? options.now : std::time(nullptr));
    try {
      std::vector<std::pair<std::string, detail::Value>> values;
      for (const auto& [name, value] : variables.items()) values.emplace_back(name, detail::from_json(value));
      return evaluator.render(*body_, std::move(values));
    } catch (const detail::TemplateFailure& failure) {
      if (failure.raised_by_template()) {
        core::raise("text", 8,
                    {.what = std::string("the chat template refuses the conversation: ") + failure.what(),
                     .where = place(evaluator.at())});
      }
      core::raise("text", 7,
                  {.what = "the chat template failed", .found = failure.what(), .where = place(evaluator.at())});
    }
  }

  [[nodiscard]] const std::string& source() const noexcept { return source_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  [[nodiscard]] std::string place(int line, const std::string& tag) const {
    return name_ + ", line " + std::to_string(line) + (tag.empty() ? "" : ": " + tag);
  }
  [[nodiscard]] std::string place(const detail::Node* node) const {
    return node == nullptr ? name_ : place(node->line, node->tag ? *node->tag : "");
  }

  std::string source_, name_;
  std::shared_ptr<const std::vector<detail::NodePtr>> body_;
};

}  // namespace rlalgo::text
