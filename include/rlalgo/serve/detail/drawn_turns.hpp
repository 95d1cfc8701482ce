// Conversations whose answers say which tokens they are: a prompt has those tokens, and not their text tokenized again.
//
//   {"role": "assistant", "content": …, "prompt_token_ids": what the model was shown, "generation_token_ids": what it drew}
//
//   text   of the template   … <assistant> answer <end> what was said since <assistant>
//   ids    prompt_token_ids  generation_token_ids       encode(           since          )
//
// This server hands these fields out (openai_answer.hpp), and agents hand them back with all that was said (NeMo Gym's do). So what a later
// call is shown begins with all ids before it, however a text would be tokenized, and whatever the template makes of a tool call
// that was written otherwise.
//
// An answer's tokens count where its content is what they say, and the conversation before it is, token by token, what it
// says that it was shown. Else somebody has edited it, another template showed it, or the template tells it otherwise by now
// (thoughts of earlier turns): then the answer is text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/serve/detail/json_value.hpp>
#include <rlalgo/serve/fields.hpp>
#include <rlalgo/serve/refusal.hpp>
#include <rlalgo/serve/served_model.hpp>

namespace rlalgo::serve::detail {

// An answer among messages, with its tokens.
struct DrawnTurn {
  std::size_t message = 0;
  std::vector<data::TokenId> shown, drawn;
};

[[nodiscard]] inline std::string_view without_spaces_around(std::string_view text) {
  constexpr std::string_view spaces = " \n\r\t";
  const std::size_t first = text.find_first_not_of(spaces);
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(spaces) - first + 1);
}

// Whether a message says what was drawn, as text: all of it, up to a stop string, or beside calls and thoughts.
[[nodiscard]] inline bool says(const Json& message, const std::string& drawn) {
  const auto content = message.find("content");
  if (content != message.end() && !content->is_string()) return false;
  const std::string_view said =
      content == message.end() ? std::string_view() : without_spaces_around(content->get_ref<const std::string&>());
  const std::size_t at = without_spaces_around(drawn).find(said);
  const bool alone = !message.contains("tool_calls") && !message.contains("reasoning_content") &&
                     !message.contains("reasoning") && !message.contains("thinking");
  return at == 0 || (at != std::string_view::npos && !alone);
}

// Takes the fields out of the messages. An answer whose ids are not the model's, or are not what it says, has none.
[[nodiscard]] inline std::vector<DrawnTurn> take_drawn_turns(Json& messages, const std::string& place,
                                                             const ServedModel& model) {
  const std::int64_t vocab = model.decoder->config().vocab_size;
  std::vector<DrawnTurn> out;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    Json& message = messages[i];
    const auto take = [&](const char* name) {
      std::optional<std::vector<data::TokenId>> ids;
      const auto at = message.find(name);
      if (at == message.end()) return ids;
      const std::string where = place + "[" + std::to_string(i) + "]." + name;
      if (!at->is_null() && !at->is_array()) refuse_type(where, *at, "a list of token ids");
      if (at->is_array()) {
        ids.emplace();
        for (const Json& one : *at) {
          const std::optional<std::int64_t> id = whole(one);
          if (!id) refuse_type(where, one, "a list of token ids");
          if (ids && (*id < 0 || *id >= vocab)) ids.reset();
          if (ids) ids->push_back(static_cast<data::TokenId>(*id));
        }
      }
      message.erase(at);
      return ids;
    };
    auto shown = take("prompt_token_ids"), drawn = take("generation_token_ids");
    message.erase("generation_log_probs");
    if (i > 0 && message["role"] == "assistant" && shown && drawn && !shown->empty() && !drawn->empty() &&
        says(message, model.tokenizer.decode(*drawn)))
      out.push_back({i, std::move(*shown), std::move(*drawn)});
  }
  return out;
}

// How a conversation becomes text and ids: `rendered` are the first `messages` of it, up to the opening of an answer where `opened`.
struct Telling {
  std::function<std::string(std::size_t messages, bool opened)> rendered;
  std::function<std::vector<data::TokenId>(const std::string& text)> encode;
  std::vector<std::pair<data::TokenId, std::string>> ends;  // tokens that end an answer, as the template spells them
};

// The ids of `text`, which tells all of the conversation.
[[nodiscard]] inline std::vector<data::TokenId> ids_of_conversation(const std::vector<DrawnTurn>& turns,
                                                                    const Telling& telling, const std::string& text) {
  std::vector<data::TokenId> ids;   // up to and with the last answer that is known by its tokens
  const DrawnTurn* last = nullptr;  // that answer
  std::string before;               // what is rendered before it
  const auto end_of_last = [&](const std::string& whole) -> std::optional<std::size_t> {
    if (!whole.starts_with(before)) return std::nullopt;
    std::size_t end = std::string::npos;
    std::size_t past = 0;
    for (const auto& [id, spelled] : telling.ends) {
      const std::size_t at = spelled.empty() ? std::string::npos : whole.find(spelled, before.size());
      if (at >= end) continue;
      end = at;
      past = id == last->drawn.back() ? spelled.size() : 0;
    }
    if (end != std::string::npos) return end + past;
    const std::string with = telling.rendered(last->message + 1, false);  // a template that ends no answer
    return whole.starts_with(with) ? std::optional(with.size()) : std::nullopt;
  };
  const auto encoded = [&](const std::string& whole) {
    if (last == nullptr) return telling.encode(whole);
    const auto end = end_of_last(whole);
    if (!end) return telling.encode(whole);
    std::vector<data::TokenId> out = ids;
    const std::vector<data::TokenId> rest = telling.encode(whole.substr(*end));
    out.insert(out.end(), rest.begin(), rest.end());
    return out;
  };
  for (const DrawnTurn& turn : turns) {
    if (encoded(telling.rendered(turn.message, true)) != turn.shown) continue;
    before = telling.rendered(turn.message, false);
    last = &turn;
    ids = turn.shown;
    ids.insert(ids.end(), turn.drawn.begin(), turn.drawn.end());
  }
  return encoded(text);
}

}  // namespace rlalgo::serve::detail
