// Prompts of online methods as token ids: each through the chat template of its data set or of the run, with the row's
// own tools and variables.
//
// Rows that somebody plays (an environment, tools, a rollout function, a NeMo Gym's agents) are rendered with the run's
// tools and variables alone: their columns are data for whom they are handed to.
//
// Errors: [rlalgo.config.27] a prompt leaves no room for a completion; (usage) [rlalgo.config.8] a data set with a chat
// template of its own where completions are played or matched by features; those of data/template_columns.hpp and of
// the chat template, with the file and line of the row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/conversations.hpp>
#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/assembly/prompts.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/located.hpp>
#include <rlalgo/data/gym_row.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/data/template_columns.hpp>
#include <rlalgo/os/interruption.hpp>

namespace rlalgo::assembly {

// Whose the columns `tools` and `chat_template_kwargs` of a row are.
enum class RowColumns {
  prompts,  // the prompt's, which is rendered with them
  players,  // data like any other for who plays the row
  gym       // a row of a NeMo Gym, with tools of its own
};

struct PromptTokensConfig {
  data::Json kwargs = nullptr;  // variables of the run's templates
  RowColumns columns = RowColumns::prompts;
  std::string without_templates = {};  // what a dataset's own chat template does not go with; empty: it does
  bool drop_too_long = false;          // prompts that leave no room for a completion
};

// What a row's prompt is rendered with.
struct RowTemplate {
  data::Json tools, kwargs;
  RowTemplate(const data::Json& columns, const data::Json& run) {
    const data::TemplateColumns own = data::template_columns(columns, "");
    if (!own.tools.empty()) tools = own.tools;
    kwargs = data::merged_kwargs(run, own.kwargs);
  }
};

inline data::TemplateColumns shown_with(const data::TokenizedPrompt& prompt, RowColumns columns,
                                        const data::Json& tools, const std::string& where) {
  if (columns == RowColumns::gym) return {.tools = data::gym_tools(prompt.columns), .kwargs = nullptr};
  if (columns == RowColumns::players) return {.tools = tools, .kwargs = nullptr};
  data::TemplateColumns out = data::template_columns(prompt.columns, where);
  if (out.tools.empty()) out.tools = nullptr;
  if (!prompt.prompt->is_array()) data::require_no_template_columns(out, where);
  return out;
}

// Each prompt enters one of `conversations`. Prompts that leave no room are dropped where the configuration says so, with a note;
// the others are numbered anew.
inline void tokenize_prompts(std::vector<data::TokenizedPrompt>& prompts, const PromptRows& rows,
                             const LanguageModel& model, const PromptTokensConfig& config, Conversations& conversations,
                             const std::function<void(const std::string&)>& note = {}) {
  constexpr std::int64_t shown_places = 5;
  const std::int64_t limit = model.max_positions;
  std::int64_t too_long = 0;
  std::string first, places;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    os::stop_if_interrupted();
    data::TokenizedPrompt& prompt = prompts[i];
    const std::string where = rows.where(i, prompt.row);
    const data::Dataset* const entry = rows.templates.empty() ? nullptr : rows.templates[i];
    if (entry != nullptr && !config.without_templates.empty())
      core::raise_usage(
          "config", 8,
          {.what = "a data set with a chat template of its own does not go with " + config.without_templates,
           .where = entry->where,
           .remedy = "set the run's chat_template"});
    core::located(where, [&] {
      prompt.dialogue = conversations.enter(prompt, entry, where);
      const data::TemplateColumns shown =
          shown_with(prompt, config.columns, conversations.tools(prompt.dialogue), where);
      const data::Json kwargs = data::merged_kwargs(config.kwargs, shown.kwargs);
      prompt.ids = model.encode(prompt.prompt, kwargs, shown.tools, conversations.chat_template(prompt.dialogue));
    });
    if (static_cast<std::int64_t>(prompt.ids.size()) < limit) continue;
    if (++too_long == 1) first = std::to_string(prompt.ids.size()) + " tokens";
    if (too_long <= shown_places) places += (places.empty() ? "" : ", ") + where;
    prompt.ids.clear();
  }
  if (too_long == 0) return;
  if (too_long > shown_places) places += " and " + std::to_string(too_long - shown_places) + " more";
  const bool drop = config.drop_too_long;
  if (!drop || too_long == static_cast<std::int64_t>(prompts.size()))
    core::raise("config", 27,
                {.what = "a prompt leaves no room for a completion",
                 .found = first + (too_long == 1 ? "" : ", the first of " + std::to_string(too_long) + " such prompts"),
                 .expected = "fewer than max_position_embeddings = " + std::to_string(limit) +
                             ", the model's maximum context length",
                 .where = places,
                 .remedy = drop ? "no prompt is left; shorten the rows"
                                : "shorten the rows, or set excess_length_strategy: drop"});
  std::erase_if(prompts, [](const data::TokenizedPrompt& prompt) { return prompt.ids.empty(); });
  for (std::size_t i = 0; i < prompts.size(); ++i) prompts[i].row = static_cast<std::int64_t>(i);
  if (note)
    note(std::to_string(too_long) + " of " + std::to_string(too_long + static_cast<std::int64_t>(prompts.size())) +
         " prompts leave no room for a completion and are dropped (excess_length_strategy): " + places);
}
inline void tokenize_prompts(Prompts& prompts, const LanguageModel& model, const PromptTokensConfig& config,
                             Conversations& conversations, const std::function<void(const std::string&)>& note = {}) {
  tokenize_prompts(prompts.train, prompts.train_rows, model, config, conversations, note);
  tokenize_prompts(prompts.evaluation, prompts.evaluation_rows, model, config, conversations, note);
}

}  // namespace rlalgo::assembly
