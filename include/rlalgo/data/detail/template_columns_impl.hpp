// Definitions of template_columns.hpp.
#pragma once

#include <string>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/prompt.hpp>
#include <rlalgo/data/template_columns.hpp>

namespace rlalgo::data {

RLALGO_INLINE TemplateColumns template_columns(const Json& row, const std::string& where, const std::string& tools) {
  const auto wrong = [&](const std::string& column, const Json& found, const std::string& expected) {
    core::raise("data", 32,
                {.what = "the column \"" + column + "\" is not what a chat template is given",
                 .found = detail::excerpt(found),
                 .expected = expected,
                 .where = where,
                 .remedy = "rename the column if it is something else"});
  };
  constexpr const char* schemas =
      "a list of JSON schemas, {\"type\": \"function\", \"function\": …}, or that as a JSON text";
  TemplateColumns out;
  if (const auto cell = row.find(tools); cell != row.end() && !cell->is_null()) {
    out.tools = *cell;
    if (cell->is_string()) {
      auto [value, problem] = core::read_json<Json>(cell->get_ref<const std::string&>());
      if (!problem.text.empty()) wrong(tools, *cell, schemas);
      out.tools = std::move(value);
    }
    if (!out.tools.is_null() && !out.tools.is_array()) wrong(tools, *cell, schemas);
    for (const Json& tool : out.tools)
      if (!tool.is_object()) wrong(tools, tool, schemas);
  }
  if (const auto cell = row.find("chat_template_kwargs"); cell != row.end() && !cell->is_null()) {
    if (!cell->is_object()) wrong("chat_template_kwargs", *cell, "an object, variable → value");
    out.kwargs = *cell;
    // As in Python's dict of arguments: what the second names replaces the column.
    if (const auto own = out.kwargs.find("tools"); own != out.kwargs.end()) {
      out.tools = *own;
      out.kwargs.erase("tools");
    }
    if (out.kwargs.empty()) out.kwargs = nullptr;
  }
  return out;
}

RLALGO_INLINE void require_no_template_columns(const TemplateColumns& columns, const std::string& where) {
  if (columns.empty()) return;
  core::raise(
      "data", 33,
      {.what = "the row has tools or chat_template_kwargs, and nothing in it is rendered by a chat template",
       .found = detail::excerpt(columns.tools.is_null() || columns.tools.empty() ? columns.kwargs : columns.tools),
       .expected = "prompt and answers as messages",
       .where = where,
       .remedy = "write {role, content} messages, or choose a type that keeps them (chat_template.default), or "
                 "remove the column"});
}

RLALGO_INLINE Json merged_kwargs(const Json& run, const Json& row) {
  if (!row.is_object()) return run;
  if (!run.is_object()) return row;
  Json out = run;
  out.update(row);
  return out;
}

}  // namespace rlalgo::data
