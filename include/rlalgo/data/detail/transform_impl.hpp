// Definitions of transform.hpp.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/nearest.hpp>
#include <rlalgo/data/prompt.hpp>
#include <rlalgo/data/table.hpp>
#include <rlalgo/data/transform.hpp>

namespace rlalgo::data {

RLALGO_INLINE std::string text_after_last(std::string_view text, std::string_view marker) {
  if (const std::size_t at = text.rfind(marker); at != std::string_view::npos) text.remove_prefix(at + marker.size());
  constexpr std::string_view space = " \t\r\n\f\v";
  const std::size_t begin = text.find_first_not_of(space);
  if (begin == std::string_view::npos) return {};
  text = text.substr(begin, text.find_last_not_of(space) - begin + 1);
  std::string out;
  for (const char c : text)
    if (c != ',') out += c;
  return out;
}

namespace detail {

RLALGO_INLINE Json message(const std::string& role, const std::string& content) {
  return Json{{"role", role}, {"content", content}};
}

RLALGO_INLINE void raise_field(const Json& row, const std::string& field, const std::string& expected,
                               const std::string& where) {
  std::string columns;
  std::vector<std::string> names;
  for (const auto& [name, value] : row.items()) {
    columns += (columns.empty() ? "" : ", ") + name;
    names.push_back(name);
  }
  const auto cell = row.find(field);
  const std::string nearest = core::nearest_name(field, names);
  if (cell == row.end())
    core::raise("data", 10,
                {.what = "the row lacks the column \"" + field + "\"",
                 .found = "columns " + columns,
                 .expected = expected,
                 .where = where,
                 .remedy = nearest.empty() ? "" : "did you mean " + nearest + "?"});
  core::raise("data", 10,
              {.what = "the column \"" + field + "\" has the wrong type",
               .found = excerpt(*cell),
               .expected = expected,
               .where = where});
}

RLALGO_INLINE const std::string& text_field(const Json& row, const std::string& field, const std::string& where) {
  const auto cell = row.find(field);
  if (cell == row.end() || !cell->is_string()) raise_field(row, field, "a text", where);
  return cell->get_ref<const std::string&>();
}

RLALGO_INLINE std::string scalar_text(const Json& row, const std::string& field, const std::string& where) {
  const auto cell = row.find(field);
  if (cell == row.end() || cell->is_null() || cell->is_structured())
    raise_field(row, field, "a text or a number", where);
  return cell->is_string() ? cell->get<std::string>() : cell->dump();
}

// Rows of problem and solution (NuminaMath): the solution is what accuracy_reward reads, and stays.
RLALGO_INLINE bool is_problem_row(const Json& row) {
  const auto has = [&](const char* name) { return row.contains(name) && !row.at(name).is_null(); };
  return has("problem") && has("solution") && !has("question") && !has("answer");
}

RLALGO_INLINE void problem_row(Json& row, const std::string& where) {
  row["prompt"] = Json::array({message("user", text_field(row, "problem", where))});
  row.erase("problem");
}

RLALGO_INLINE void gsm8k_row(Json& row, const std::string& where, bool always_extract) {
  const std::string question = text_field(row, "question", where);
  const std::string answer = scalar_text(row, "answer", where);
  const bool extract = always_extract || answer.find("####") != std::string::npos;
  row["prompt"] = Json::array({message("user", question)});
  row["answer"] = extract ? text_after_last(answer, "####") : answer;
  row.erase("question");
}

RLALGO_INLINE DeclaredTransform::DeclaredTransform(const Json& type, const std::string& where) {
  static const std::vector<std::string> keys = {"field_prompt", "field_answer",  "answer_after", "system",
                                                "field_system", "prompt_format", "plain",        "remove_columns"};
  for (const auto& [key, value] : type.items()) {
    if (value.is_null()) continue;
    if (key == "plain") {
      if (!value.is_boolean()) wrong(key, value, "true or false", where);
      plain_ = value.get<bool>();
    } else if (key == "remove_columns") {
      if (!value.is_array()) wrong(key, value, "a list of column names", where);
      for (const Json& column : value) {
        if (!column.is_string()) wrong(key, column, "a column name", where);
        remove_columns_.push_back(column.get<std::string>());
      }
    } else if (std::string* text = member(key); text != nullptr) {
      if (!value.is_string()) wrong(key, value, "a text", where);
      *text = value.get<std::string>();
    } else {
      const std::string nearest = core::nearest_name(key, keys);
      std::string all;
      for (const std::string& name : keys) all += (all.empty() ? "" : ", ") + name;
      core::raise_usage("data", 12,
                        {.what = "unknown key in datasets[].type",
                         .found = key,
                         .expected = all,
                         .where = where,
                         .remedy = nearest.empty() ? "" : "did you mean " + nearest + "?"});
    }
  }
  if (field_prompt_.empty())
    core::raise_usage(
        "data", 12,
        {.what = "datasets[].type names no prompt column", .expected = "field_prompt: <column>", .where = where});
  if (plain_ && !(system_.empty() && field_system_.empty()))
    core::raise_usage("data", 12,
                      {.what = "datasets[].type: a plain prompt has no system message",
                       .found = "plain: true with " + std::string(system_.empty() ? "field_system" : "system"),
                       .where = where,
                       .remedy = "put the text into prompt_format, or remove plain"});
  if (!prompt_format_.empty() && prompt_format_.find("{prompt}") == std::string::npos)
    core::raise_usage(
        "data", 12,
        {.what = "datasets[].type: prompt_format does not hold {prompt}", .found = prompt_format_, .where = where});
}

RLALGO_INLINE std::string* DeclaredTransform::member(const std::string& key) {
  if (key == "field_prompt") return &field_prompt_;
  if (key == "field_answer") return &field_answer_;
  if (key == "answer_after") return &answer_after_;
  if (key == "system") return &system_;
  if (key == "field_system") return &field_system_;
  if (key == "prompt_format") return &prompt_format_;
  return nullptr;
}

RLALGO_INLINE void DeclaredTransform::wrong(const std::string& key, const Json& found, const std::string& expected,
                                            const std::string& where) {
  core::raise_usage("data", 12,
                    {.what = "datasets[].type: " + key + " has the wrong type",
                     .found = excerpt(found),
                     .expected = expected,
                     .where = where});
}

RLALGO_INLINE std::string DeclaredTransform::formatted(const std::string& prompt) const {
  if (prompt_format_.empty()) return prompt;
  std::string out = prompt_format_;
  const std::string_view hole = "{prompt}";
  for (std::size_t at = out.find(hole); at != std::string::npos; at = out.find(hole, at + prompt.size()))
    out.replace(at, hole.size(), prompt);
  return out;
}

}  // namespace detail

RLALGO_INLINE std::vector<std::string> transform_names() {
  return {"rewards.oai_gsm8k_transform", "rewards.prompt_transform"};
}

RLALGO_INLINE RowTransform make_transform(const Json& type, const std::string& where) {
  if (type.is_null() || (type.is_object() && type.empty()) ||
      (type.is_string() && type.get_ref<const std::string&>().empty()))
    return [](Json&, const std::string&) {};
  if (type.is_object()) return detail::DeclaredTransform(type, where);
  if (type.is_string()) {
    const std::string& name = type.get_ref<const std::string&>();
    if (name == "rewards.oai_gsm8k_transform")
      return [](Json& row, const std::string& at) { detail::gsm8k_row(row, at, true); };
    if (name == "rewards.prompt_transform")
      return [](Json& row, const std::string& at) {
        if (detail::is_problem_row(row)) return detail::problem_row(row, at);
        detail::gsm8k_row(row, at, false);
      };
  }
  std::string all;
  for (const std::string& name : transform_names()) all += name + ", ";
  core::raise_usage("data", 9,
                    {.what = "Failed to load dataset transform function for type " + detail::excerpt(type),
                     .expected = all + "a mapping, or no type",
                     .where = where,
                     .remedy = "name the columns, type: {field_prompt: question, field_answer: answer}, or a function "
                               "module.function of a Python file beside the configuration"});
}

RLALGO_INLINE void transform_rows(const RowTransform& transform, Table& table) {
  for (std::size_t i = 0; i < table.size(); ++i) transform(table.row(i), table.where(i));
}

}  // namespace rlalgo::data
