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
#include <utility>

#include <nlohmann/json.hpp>

#include <rlalgo/os/outside.hpp>
#include <rlalgo/text/detail/jinja_engine.hpp>
#include <rlalgo/text/special_tokens.hpp>

namespace rlalgo::text {

struct JinjaOptions {
  // Operations, and pieces of the text and lists that are walked through or made: bounds time and memory
  // (jinja_meter.hpp). A long chat needs some ten thousand.
  std::size_t step_limit = 20'000'000;
  std::time_t now = 0;  // what strftime_now calls the time; 0 = RLALGO_START_TIME, else the clock
};

class JinjaTemplate {
 public:
  // name: what error messages call the template, for example its file.
  explicit JinjaTemplate(std::string source, std::string name = "chat template")
      : source_(std::move(source)), name_(std::move(name)), parsed_(detail::JinjaEngine<void>::parse(source_, name_)) {}

  // variables: an object, name → value.
  [[nodiscard]] std::string render(const Json& variables, const JinjaOptions& options = {}) const {
    const std::time_t now = options.now != 0 ? options.now : os::start_time();
    return detail::JinjaEngine<void>::render(*parsed_, variables, options.step_limit, now, name_);
  }

  [[nodiscard]] const std::string& source() const noexcept { return source_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  std::string source_, name_;
  std::shared_ptr<const detail::ParsedTemplate> parsed_;
};

}  // namespace rlalgo::text
