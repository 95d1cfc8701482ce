// `datasets[].type`: what turns a dataset's rows into rows with a `prompt`.
//
//   no type                         the rows have a `prompt` column already
//   rewards.oai_gsm8k_transform     question → one user message; answer → the text after the last "####", trimmed,
//                                   commas removed; `question` is dropped
//   rewards.prompt_transform        the same, but an answer without "####" stays as it is (numbers become their text);
//                                   problem → one user message where the columns are problem and solution
//   a mapping                       the columns are named in the configuration:
//     field_prompt: question          column with the prompt: a text or a list of messages (required)
//     field_answer: answer            column copied to `answer`
//     answer_after: "####"            keep of it what follows the last such marker, trimmed, commas removed
//     system: You are …               system message put first
//     field_system: system            column with the row's own system text; wins over `system` where it is not empty
//     prompt_format: "{prompt}\n…"    text around the prompt; only for text prompts
//     plain: true                     the prompt stays a text, no chat template; excludes system and field_system
//     remove_columns: [question]      columns that the rewards do not get
//
// The names are those of axolotl's GRPO examples, whose transforms are Python functions `module.function(cfg)`
// (remote/python_transform.hpp); a built-in stands for the one of its name where the user has none.
//
// Errors: [rlalgo.data.9] the type is not known; [rlalgo.data.10] a row lacks a field, or the field has another type;
// [rlalgo.data.12] the mapping itself is wrong.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/nearest.hpp>
#include <rlalgo/data/prompt.hpp>
#include <rlalgo/data/table.hpp>

namespace rlalgo::data {

// Rewrites one row in place; `where` names it in errors.
using RowTransform = std::function<void(Json& row, const std::string& where)>;

// What follows the last `marker`, trimmed, commas removed; the whole text when the marker is absent.
[[nodiscard]] std::string text_after_last(std::string_view text, std::string_view marker);

namespace detail {

Json message(const std::string& role, const std::string& content);

[[noreturn]] void raise_field(const Json& row, const std::string& field, const std::string& expected,
                              const std::string& where);

const std::string& text_field(const Json& row, const std::string& field, const std::string& where);

// A number or boolean as its text; a text as it is.
std::string scalar_text(const Json& row, const std::string& field, const std::string& where);

bool is_problem_row(const Json& row);

void problem_row(Json& row, const std::string& where);

void gsm8k_row(Json& row, const std::string& where, bool always_extract);

// The declared mapping, checked when it is made.
class DeclaredTransform {
 public:
  DeclaredTransform(const Json& type, const std::string& where);

  void operator()(Json& row, const std::string& where) const {
    const auto cell = row.find(field_prompt_);
    if (cell == row.end() || !(cell->is_string() || cell->is_array()))
      raise_field(row, field_prompt_, "a text or a list of messages", where);
    Json prompt = *cell;
    if (prompt.is_array() && (plain_ || !prompt_format_.empty()))
      raise_field(row, field_prompt_, "a text, because type sets plain or prompt_format", where);
    if (prompt.is_string()) {
      const std::string text = formatted(prompt.get<std::string>());
      prompt = plain_ ? Json(text) : Json::array({message("user", text)});
    }
    std::string system = system_;
    if (!field_system_.empty()) {
      const auto own = row.find(field_system_);
      if (own == row.end() || !(own->is_string() || own->is_null()))
        raise_field(row, field_system_, "a text or null", where);
      if (own->is_string() && !own->get_ref<const std::string&>().empty()) system = own->get<std::string>();
    }
    if (!system.empty()) prompt.insert(prompt.begin(), message("system", system));
    if (!field_answer_.empty()) {
      const std::string answer = scalar_text(row, field_answer_, where);
      row["answer"] = answer_after_.empty() ? answer : text_after_last(answer, answer_after_);
    }
    row["prompt"] = std::move(prompt);
    for (const std::string& column : remove_columns_)
      if (column != "prompt") row.erase(column);
  }

 private:
  std::string* member(const std::string& key);
  [[noreturn]] static void wrong(const std::string& key, const Json& found, const std::string& expected,
                                 const std::string& where);
  [[nodiscard]] std::string formatted(const std::string& prompt) const;

  std::string field_prompt_, field_answer_, answer_after_, system_, field_system_, prompt_format_;
  std::vector<std::string> remove_columns_;
  bool plain_ = false;
};

}  // namespace detail

// Names that `type: <text>` may have.
[[nodiscard]] std::vector<std::string> transform_names();

// The transform that `type` (null, text or mapping) declares. `where` names the entry in the configuration.
[[nodiscard]] RowTransform make_transform(const Json& type, const std::string& where = "datasets[].type");

// Applies the transform to every row.
void transform_rows(const RowTransform& transform, Table& table);

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/transform_impl.hpp>
#endif
