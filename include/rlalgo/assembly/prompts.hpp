// Prompts of a run, with or without files.
//
//   prompts(model, {"Ada has 3 pears.", "Ben finds 5 coins."})
//   prompts(model, {{{"prompt", "Guess a number from 1 to 9:"}, {"hidden", 4}}})      // columns for rewards and environments
//
// Errors: [rlalgo.data.10] a row without a prompt; those of data/prompt.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/data/dataset.hpp>
#include <rlalgo/data/prompt.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/data/table.hpp>

namespace rlalgo::assembly {

// Where prompts come from, one of each for every prompt; empty: from no file.
struct PromptRows {
  std::vector<data::Origin> origins = {};
  std::vector<const data::Dataset*> templates = {};  // the entry that names a chat template of its own; null: none

  // Of prompt `i`, which is row `row` of its list.
  [[nodiscard]] std::string where(std::size_t i, std::int64_t row) const {
    return origins.empty() ? "dataset row " + std::to_string(row) : origins[i].text();
  }
};

struct Prompts {
  std::vector<data::TokenizedPrompt> train = {};       // `ids` still empty; `row` counts from 0 in each list
  std::vector<data::TokenizedPrompt> evaluation = {};  // empty: no evaluation data
  std::vector<std::string> notes = {};                 // for the user: what was read and what was dropped
  PromptRows train_rows = {}, evaluation_rows = {};
  std::shared_ptr<const void> datasets = {};  // what PromptRows::templates points into
};

// `rows`: an array of texts, and of objects as a dataset's rows are: `prompt`, a text or messages, and other columns.
[[nodiscard]] inline std::vector<data::TokenizedPrompt> prompts(const LanguageModel& model, const data::Json& rows) {
  data::Table table;
  for (const data::Json& row : rows)
    table.append(row.is_object() ? row : data::Json{{"prompt", row}},
                 {.file = nullptr, .line = 0, .item = static_cast<std::int64_t>(table.size())});
  std::vector<data::TokenizedPrompt> out = data::prompts_of(table);
  for (data::TokenizedPrompt& prompt : out) prompt.ids = model.encode(prompt.prompt);
  return out;
}

}  // namespace rlalgo::assembly
