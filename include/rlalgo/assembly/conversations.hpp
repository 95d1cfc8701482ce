// How each row's prompt is shown and goes on: with the tools of the environment that plays it, through the chat template of its
// data set or of the run, as messages or as text. Rows that are alike in these share one dialogue.
//
// Errors (usage): [rlalgo.config.25] tools with a prompt that is a text; those of environment/several.hpp, with the row's place.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/dialogue.hpp>
#include <rlalgo/assembly/environments.hpp>
#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/data/dataset.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/environment/concept.hpp>
#include <rlalgo/environment/several.hpp>
#include <rlalgo/inference/multi_turn.hpp>
#include <rlalgo/text/chat_template.hpp>

namespace rlalgo::assembly {

class Conversations {
 public:
  // `kwargs`: variables of the run's templates. `environments`: null where nobody answers the model. `tools_where`: the place that
  // named tools or environment. What is given must outlive this and its dialogues.
  explicit Conversations(const LanguageModel& model, data::Json kwargs = nullptr,
                         const environment::Environments* environments = nullptr, std::string tools_where = {})
      : model_(model),
        kwargs_(std::move(kwargs)),
        tools_where_(std::move(tools_where)),
        environments_(environments),
        several_(dynamic_cast<const environment::Several*>(environments)) {}

  // Which dialogue a row goes on in, and with it the row's tools and template. `entry`: the data set that names a template of its
  // own; null: none. `where`: the row's place.
  std::size_t enter(const data::TokenizedPrompt& prompt, const data::Dataset* entry, const std::string& where) {
    Kind kind{.environment = several_ != nullptr ? several_->index_of(prompt.columns, where) : 0,
              .entry = entry,
              .messages = prompt.prompt->is_array()};
    const auto alike = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& one) {
      return one.environment == kind.environment && one.entry == kind.entry && one.messages == kind.messages;
    });
    if (alike != kinds_.end()) {
      if (!alike->tools.is_null()) require_messages(prompt, tools_where_);
      return static_cast<std::size_t>(alike - kinds_.begin());
    }
    if (environments_ != nullptr) kind.tools = environments_->tools_of(prompt.columns);
    if (!kind.tools.is_null()) require_messages(prompt, tools_where_);
    if (entry != nullptr) kind.chat_template = model_.template_of(*entry);
    kinds_.push_back(std::move(kind));
    return kinds_.size() - 1;
  }

  // What the template is given; null: no tools.
  [[nodiscard]] data::Json tools(std::size_t dialogue) const { return shown(kinds_.at(dialogue).tools); }
  // Null: the run's.
  [[nodiscard]] const text::ChatTemplate* chat_template(std::size_t dialogue) const {
    return kinds_.at(dialogue).chat_template.get();
  }

  // All that rows have entered, by their numbers.
  [[nodiscard]] std::vector<inference::Dialogue> dialogues() const {
    std::vector<inference::Dialogue> out;
    for (const Kind& kind : kinds_)
      out.push_back(dialogue(
          model_,
          {.kwargs = kwargs_, .tools = kind.tools, .messages = kind.messages, .chat_template = kind.chat_template}));
    return out;
  }

 private:
  struct Kind {
    std::size_t environment = 0;
    const data::Dataset* entry = nullptr;
    bool messages = true;
    data::Json tools = nullptr;
    std::shared_ptr<const text::ChatTemplate> chat_template = nullptr;
  };

  const LanguageModel& model_;
  data::Json kwargs_;
  std::string tools_where_;
  const environment::Environments* environments_;
  const environment::Several* several_;
  std::vector<Kind> kinds_;
};

}  // namespace rlalgo::assembly
