// The two functions of jinja_engine.hpp: the whole interpreter.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/text/detail/jinja_engine.hpp>
#include <rlalgo/text/detail/jinja_evaluator.hpp>
#include <rlalgo/text/detail/jinja_json.hpp>
#include <rlalgo/text/detail/jinja_parser.hpp>

namespace rlalgo::text::detail {

struct ParsedTemplate {
  std::vector<NodePtr> body;
};

// Where in a template something failed.
[[nodiscard, gnu::cold]] inline std::string template_place(const std::string& name, int line, const std::string& tag) {
  return name + ", line " + std::to_string(line) + (tag.empty() ? "" : ": " + tag);
}

template <class Unit>
std::shared_ptr<const ParsedTemplate> JinjaEngine<Unit>::parse(const std::string& source, const std::string& name) {
  try {
    return std::make_shared<const ParsedTemplate>(
        ParsedTemplate{TemplateParser(is_valid_utf8(source) ? source : to_valid_utf8(source)).run()});
  } catch (const TemplateSyntaxError& error) {
    core::raise("text", 6,
                {.what = "the chat template has a syntax error",
                 .found = error.message,
                 .where = template_place(name, error.line, error.tag)});
  }
}

template <class Unit>
std::string JinjaEngine<Unit>::render(const ParsedTemplate& parsed, const nlohmann::ordered_json& variables,
                                      std::size_t step_limit, std::time_t now, const std::string& name) {
  Evaluator evaluator(step_limit, now);
  try {
    std::vector<std::pair<std::string, Value>> values;
    for (const auto& [key, value] : variables.items()) values.emplace_back(key, from_json(value));
    return evaluator.render(parsed.body, std::move(values));
  } catch (const TemplateFailure& failure) {
    const Node* at = evaluator.at();
    const std::string where = at == nullptr ? name : template_place(name, at->line, at->tag ? *at->tag : "");
    if (failure.raised_by_template()) {
      core::raise(
          "text", 8,
          {.what = std::string("the chat template refuses the conversation: ") + failure.what(), .where = where});
    }
    core::raise("text", 7, {.what = "the chat template failed", .found = failure.what(), .where = where});
  }
}

}  // namespace rlalgo::text::detail
