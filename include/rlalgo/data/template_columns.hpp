// What a row says about how its messages are rendered: the columns that TRL gives to the chat template.
//
//   tools                 JSON schemas of what the model may call: a list, or the same as a JSON text
//   chat_template_kwargs  variables of the template, `documents` among them; they win over those of the run
//
// Null and absent are the same, and so is an empty mapping. An empty list of tools is handed on: a template may tell it
// from none.
// Source: TRL 1.16, DPOTrainer and KTOTrainer `tokenize_fn`, `apply_chat_template`.
// Errors: [rlalgo.data.32] a column that is neither; [rlalgo.data.33] a row that is texts has such a column, which
// nothing renders.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include <rlalgo/core/error.hpp>
#include <rlalgo/data/rollout.hpp>

namespace rlalgo::data {

struct TemplateColumns {
  Json tools = nullptr;   // a list of objects
  Json kwargs = nullptr;  // an object

  [[nodiscard]] bool empty() const {
    return (tools.is_null() || tools.empty()) && (kwargs.is_null() || kwargs.empty());
  }
};

// Those of a row; `where` names it, `tools` the column of the tools.
[[nodiscard]] TemplateColumns template_columns(const Json& row, const std::string& where,
                                               const std::string& tools = "tools");

// For a row that is texts alone.
void require_no_template_columns(const TemplateColumns& columns, const std::string& where);

// The run's variables and a row's, which win; null: there are none.
[[nodiscard]] Json merged_kwargs(const Json& run, const Json& row);

// Messages → text by the model's chat template. Made of a function of messages and generation prompt, or of these and
// the row's columns; the first kind raises data.33 for a row that has some.
class Render {
 public:
  Render() = default;
  template <class F>
  requires std::is_invocable_r_v<std::string, F&, const Json&, bool, const TemplateColumns&> Render(F f)
      : render_(std::move(f)) {}  // NOLINT: a function is one
  template <class F>
  requires(std::is_invocable_r_v<std::string, F&, const Json&, bool> &&
           !std::is_invocable_r_v<std::string, F&, const Json&, bool, const TemplateColumns&>)
      Render(F f)  // NOLINT: a function is one
      : render_([f = std::move(f)](const Json& messages, bool prompt, const TemplateColumns& columns) {
          require_no_template_columns(columns, "");
          return f(messages, prompt);
        }) {}

  std::string operator()(const Json& messages, bool add_generation_prompt, const TemplateColumns& columns = {}) const {
    return render_(messages, add_generation_prompt, columns);
  }
  explicit operator bool() const noexcept { return static_cast<bool>(render_); }

 private:
  std::function<std::string(const Json&, bool, const TemplateColumns&)> render_;
};

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/template_columns_impl.hpp>
#endif
