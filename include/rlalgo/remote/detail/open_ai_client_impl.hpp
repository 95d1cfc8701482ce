// Definitions of open_ai_client.hpp.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/remote/open_ai_client.hpp>

namespace rlalgo::remote {

namespace detail {

RLALGO_INLINE void in_calls(std::span<const inference::Request> requests, const inference::SamplingConfig& sampling,
                            const std::function<void(std::span<const std::size_t> chosen, std::size_t count,
                                                     const inference::SamplingConfig& sampling)>& call) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < requests.size(); ++i) alike[{requests[i].count, requests[i].max_new_tokens}].push_back(i);
  for (const auto& [wish, chosen] : alike) {
    const auto [count, limit] = wish;
    inference::SamplingConfig own = sampling;
    if (limit > 0) own.max_new_tokens = std::min(limit, own.max_new_tokens);
    call(chosen, static_cast<std::size_t>(count), own);
  }
}

// What is drawn from is log_softmax of the model's own logits.
inline bool draws_from_model(const inference::SamplingConfig& s) {
  return s.temperature == 1.0 && s.top_p >= 1.0 && s.top_k <= 0 && s.min_p <= 0.0 && s.repetition_penalty == 1.0;
}

// N of "token_id:N"; null for any other word.
inline nlohmann::ordered_json id_of_word(const nlohmann::ordered_json& word) {
  constexpr std::string_view prefix = "token_id:";
  if (!word.is_string()) return nullptr;
  std::string_view text = word.get_ref<const std::string&>();
  if (!text.starts_with(prefix)) return nullptr;
  text.remove_prefix(prefix.size());
  std::int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size()) return nullptr;
  return out;
}

}  // namespace detail

RLALGO_INLINE std::vector<std::vector<data::Completion>> OpenAiClient::generate(
    std::span<const inference::Request> requests, const inference::SamplingConfig& sampling, inference::DrawKey) {
  std::vector<std::vector<data::Completion>> out(requests.size());
  detail::in_calls(requests, sampling,
                   [&](std::span<const std::size_t> chosen, std::size_t count, const inference::SamplingConfig& own) {
                     ask(requests, chosen, count, own, out);
                   });
  return out;
}

RLALGO_INLINE void OpenAiClient::find_out() {
  if (known_) return;
  if (config_.start_seconds > 0.0)
    client_.wait_until_up("/v1/models", config_.start_seconds, "start it, or wait for it longer", config_.tell);
  model_ = config_.model.empty() ? model_name() : config_.model;
  drawn_ = reports_drawn();
  known_ = true;
}

// The name that requests call the model by.
RLALGO_INLINE std::string OpenAiClient::model_name() {
  const Json models = client_.get("/v1/models");
  std::string out;
  for (const Json& card : reader_.list(models, "data")) {
    if (!card.is_object() || !card.contains("id") || !card["id"].is_string())
      reader_.wrong(card.dump(), "a model with an id");
    const auto id = card["id"].get<std::string>();
    if (out.empty() || (!config_.adapter.empty() && id == config_.adapter)) out = id;
  }
  if (out.empty()) reader_.wrong("no model at /v1/models", "at least one");
  return out;
}

// vLLM reports log-probs of the model unless it was started otherwise; servers without /server_info do not say.
RLALGO_INLINE bool OpenAiClient::reports_drawn() {
  const http::Result result = client_.look("/server_info?config_format=json");
  if (!result.ok()) return false;
  const auto [info, problem] = core::read_json<Json>(result.response().body);
  static const nlohmann::ordered_json::json_pointer mode("/vllm_config/model_config/logprobs_mode");
  return problem.text.empty() && info.contains(mode) && info[mode] == "processed_logprobs";
}

// Where ids are is found out with the first answer: one without them is asked for again, in the other form.
RLALGO_INLINE OpenAiClient::Json OpenAiClient::call(const Json& body) {
  Json asked = body;
  if (ids_ == Ids::words) {
    asked.erase("return_token_ids");
    asked["return_tokens_as_token_ids"] = true;
  }
  if (config_.generation_kwargs.is_object()) asked.update(config_.generation_kwargs);
  Json answer = client_.post("/v1/completions", asked);
  if (ids_ != Ids::unknown) return answer;
  const auto has_ids = [](const Json& choice) { return choice.is_object() && choice.contains("token_ids"); };
  const Json& choices = reader_.list(answer, "choices");
  ids_ = std::any_of(choices.begin(), choices.end(), has_ids) || choices.empty() ? Ids::field : Ids::words;
  return ids_ == Ids::field ? std::move(answer) : call(body);
}

RLALGO_INLINE std::vector<const OpenAiClient::Json*> OpenAiClient::choices_of(const Json& answer,
                                                                              std::size_t expected) const {
  const Json& choices = reader_.list(answer, "choices");
  if (choices.size() != expected) reader_.wrong(std::to_string(choices.size()) + " choices", std::to_string(expected));
  std::vector<const Json*> out(expected, nullptr);
  for (const Json& choice : choices) {
    const bool numbered = choice.is_object() && choice.contains("index") && choice["index"].is_number_unsigned();
    const std::size_t index = numbered ? choice["index"].get<std::size_t>() : expected;
    if (index >= expected || out[index] != nullptr)
      reader_.wrong(choice.dump().substr(0, 100), "choices with the indices 0 to " + std::to_string(expected - 1));
    out[index] = &choice;
  }
  return out;
}

RLALGO_INLINE void OpenAiClient::lacks(const std::string& what, const std::string& found,
                                       const std::string& expected) const {
  core::raise(
      "remote", 85,
      {.what = what,
       .found = found,
       .expected = expected,
       .where = reader_.where(),
       .remedy = "completions are trained on as they were drawn: take rlalgo vllm-serve, or vLLM from 0.10.2 on"});
}

RLALGO_INLINE OpenAiClient::Json OpenAiClient::ids_of(const Json& choice) const {
  if (ids_ == Ids::field) {
    if (choice.contains("token_ids")) return choice["token_ids"];
    lacks("a choice has no token ids", choice.dump().substr(0, 100), "token_ids, as the others have");
  }
  Json out = Json::array();
  const Json* const log_probs = choice.contains("logprobs") ? &choice["logprobs"] : nullptr;
  if (log_probs == nullptr || !log_probs->is_object() || !log_probs->contains("tokens") ||
      !(*log_probs)["tokens"].is_array())
    lacks("the server gives no token ids", "choices without token_ids, and without logprobs.tokens",
          "token_ids with \"return_token_ids\", or \"token_id:N\" with \"return_tokens_as_token_ids\"");
  for (const Json& word : (*log_probs)["tokens"]) {
    out.push_back(detail::id_of_word(word));
    if (out.back().is_null())
      lacks("the server gives no token ids", "choices without token_ids, and the word " + word.dump().substr(0, 60),
            "token_ids with \"return_token_ids\", or \"token_id:N\" with \"return_tokens_as_token_ids\"");
  }
  return out;
}

// A server that takes the ids for something else counts other tokens. Some count a prompt once for each of its choices.
RLALGO_INLINE void OpenAiClient::check_prompt(const Json& answer, std::size_t sent, std::size_t count) const {
  const auto usage = answer.find("usage");
  if (usage == answer.end() || !usage->is_object() || !usage->contains("prompt_tokens")) return;
  const Json& counted = (*usage)["prompt_tokens"];
  if (counted.is_null() || counted == sent || counted == sent * count) return;
  lacks("the server read another prompt than the ids that it was sent", counted.dump() + " tokens",
        std::to_string(sent));
}

RLALGO_INLINE void OpenAiClient::ask(std::span<const inference::Request> requests, std::span<const std::size_t> chosen,
                                     std::size_t count, const inference::SamplingConfig& sampling,
                                     std::vector<std::vector<data::Completion>>& out) {
  find_out();
  // vLLM refuses n > 1 of a greedy sampling, whose completions are equal.
  const std::size_t asked = sampling.temperature == 0.0 ? 1 : count;
  Json prompts = Json::array();
  std::size_t sent = 0;
  for (const std::size_t i : chosen) {
    prompts.push_back(requests[i].prompt);
    sent += requests[i].prompt.size();
  }
  Json body = {{"model", model_}, {"prompt", std::move(prompts)}, {"n", asked}};
  body.update(detail::sampling_fields(sampling));
  body["return_token_ids"] = true;
  if (!sampling.stop_ids.empty()) body["stop_token_ids"] = sampling.stop_ids;
  if (!sampling.stop_strings.empty()) body["stop"] = sampling.stop_strings;
  if (sampling.min_new_tokens > 0) body["min_tokens"] = sampling.min_new_tokens;
  const Json answer = call(body);
  const std::vector<const Json*> choices = choices_of(answer, chosen.size() * asked);
  check_prompt(answer, sent, asked);
  const bool usable = drawn_ || detail::draws_from_model(sampling);
  for (std::size_t s = 0; s < choices.size(); ++s) {
    const Json& choice = *choices[s];
    data::Completion completion =
        reader_.completion_of(ids_of(choice), choice.value("finish_reason", Json(nullptr)), sampling);
    const bool has_log_probs = choice.contains("logprobs") && !choice["logprobs"].is_null();
    if (!has_log_probs && config_.require_log_probs)
      lacks("the server gives no log-probs", choice.dump().substr(0, 100), "logprobs.token_logprobs");
    if (usable && has_log_probs)
      completion.log_probs =
          reader_.log_probs_of(completion.ids, reader_.list(choice["logprobs"], "token_logprobs"), nullptr);
    std::vector<data::Completion>& of_prompt = out[chosen[s / asked]];
    of_prompt.insert(of_prompt.end(), count / asked, completion);
  }
  if (!usable && !std::exchange(told_of_model_, true) && config_.tell)
    config_.tell(client_.base_url() +
                 ": its log-probs are of the model, not of what is drawn, and are left out; vLLM reports those with "
                 "--logprobs-mode processed_logprobs");
}

}  // namespace rlalgo::remote
