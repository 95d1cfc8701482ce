// A conversation between a language model and who answers it, as token ids: how a prompt opens it, what the model said, what an
// observation adds.
//
// Tokens between two turns: the chat template renders a small conversation with the observation in it, and what stands
// after the end token of the model's turn is taken, so that nothing the model wrote is tokenized again.
//
// Errors (usage): [rlalgo.config.26] a chat template that cannot be continued.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/environment/tool_calls.hpp>
#include <rlalgo/inference/multi_turn.hpp>
#include <rlalgo/text/chat_template.hpp>

namespace rlalgo::assembly {

namespace detail {

// The tokens that follow the end of the model's turn up to where it speaks again.
class Continuation {
 public:
  Continuation(const LanguageModel& model, data::Json kwargs,
               std::shared_ptr<const text::ChatTemplate> chat_template = nullptr)
      : model_(model), kwargs_(std::move(kwargs)), chat_template_(std::move(chat_template)) {}

  // Templates may show earlier turns in another way (without their reasoning), so the end of the model's turn is found,
  // not compared: by words that stand in its content, and in the arguments of its call when a tool answers.
  [[nodiscard]] std::vector<data::TokenId> operator()(const data::Json& observation) const {
    static const std::string words = "rlalgo-model-turn";
    data::Json turn = {{"role", "assistant"}, {"content", words}};
    data::Json messages = data::Json::array({{{"role", "user"}, {"content", "dummy"}}});
    if (observation.is_string()) {
      messages.push_back(std::move(turn));
      messages.push_back({{"role", "user"}, {"content", observation}});
    } else {
      if (!observation.empty() && observation.front().value("role", "") == "tool")
        turn["tool_calls"] = data::Json::array(
            {{{"type", "function"},
              {"function", {{"name", observation.front().at("name")}, {"arguments", {{"argument", words}}}}}}});
      messages.push_back(std::move(turn));
      for (const data::Json& message : observation) messages.push_back(message);
    }
    const std::string text = model_.render(messages, true, kwargs_, nullptr, chat_template_.get());
    const std::size_t at = text.rfind(words);
    if (at == std::string::npos)
      core::raise_usage("config", 26,
                        {.what = "the chat template cannot be continued turn by turn",
                         .found = "the model's words are not in what it renders",
                         .remedy = "use a template that renders every turn, such as chatml"});
    std::vector<data::TokenId> ids = model_.tokenizer.encode(text.substr(at + words.size()), false);
    const auto end = std::find_if(ids.begin(), ids.end(), [&](data::TokenId id) {
      return std::find(model_.stop_ids.begin(), model_.stop_ids.end(), id) != model_.stop_ids.end();
    });
    if (end != ids.end()) ids.erase(ids.begin(), end + 1);
    return ids;
  }

 private:
  const LanguageModel& model_;
  data::Json kwargs_;
  std::shared_ptr<const text::ChatTemplate> chat_template_;
};

}  // namespace detail

// What a template is given for tools: nothing for an empty list, for which some show the frame of one.
[[nodiscard]] inline data::Json shown(const data::Json& tools) { return tools.empty() ? data::Json() : tools; }

struct DialogueConfig {
  data::Json kwargs = nullptr;  // variables of the template
  data::Json tools = nullptr;   // null: no calls are read from what the model says
  bool messages = true;         // prompts are chat messages; else observations follow as plain text
  std::shared_ptr<const text::ChatTemplate> chat_template = {};  // null: the model's
};

// `model` must outlive it.
[[nodiscard]] inline inference::Dialogue dialogue(const LanguageModel& model, const DialogueConfig& config = {}) {
  inference::Dialogue out;
  out.open = [&model, config](const data::Json& prompt) {
    return model.encode(prompt, config.kwargs, shown(config.tools), config.chat_template.get());
  };
  out.read = [&model, called = !config.tools.is_null()](std::span<const data::TokenId> ids) {
    while (!ids.empty() && std::find(model.stop_ids.begin(), model.stop_ids.end(), ids.back()) != model.stop_ids.end())
      ids = ids.first(ids.size() - 1);
    const std::string text = model.tokenizer.decode(ids);
    return called ? environment::assistant_message(text) : data::Json{{"role", "assistant"}, {"content", text}};
  };
  if (config.messages)
    out.reply = detail::Continuation(model, config.kwargs, config.chat_template);
  else
    out.reply = [&model](const data::Json& observation) {
      std::string text;
      if (observation.is_string()) return model.tokenizer.encode(observation.get_ref<const std::string&>(), false);
      for (const data::Json& message : observation) text += message.at("content").get<std::string>();
      return model.tokenizer.encode(text, false);
    };
  return out;
}

}  // namespace rlalgo::assembly
