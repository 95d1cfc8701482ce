// Parsing and running chat templates behind two functions, so that the interpreter can be compiled apart.
//
// Compiling the interpreter takes most of the time that chat_template.hpp costs; with RLALGO_COMPILED the library
// rlalgo::compiled holds it (core/compiled.hpp).
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

namespace rlalgo::text::detail {

struct ParsedTemplate;

template <class Unit>
struct JinjaEngine {
  // name: what messages call the template. [rlalgo.text.6]
  static std::shared_ptr<const ParsedTemplate> parse(const std::string& source, const std::string& name);
  // variables: an object. [rlalgo.text.7], [rlalgo.text.8]
  static std::string render(const ParsedTemplate& parsed, const nlohmann::ordered_json& variables,
                            std::size_t step_limit, std::time_t now, const std::string& name);
};

}  // namespace rlalgo::text::detail

#ifndef RLALGO_COMPILED
#include <rlalgo/text/detail/jinja_interpreter.hpp>
#endif
