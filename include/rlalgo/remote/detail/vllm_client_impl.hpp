// Definitions of vllm_client.hpp.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/http/json_client.hpp>
#include <rlalgo/http/served_routes.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/remote/vllm_client.hpp>

namespace rlalgo::remote {

namespace detail {

// The trainer's number of a version that it named: 7 of "v7".
inline std::optional<std::int64_t> published_version(const nlohmann::ordered_json& name) {
  if (!name.is_string()) return std::nullopt;
  const std::string_view text = name.get_ref<const std::string&>();
  std::int64_t out = 0;
  if (text.size() < 2 || text[0] != 'v') return std::nullopt;
  const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || out < 0) return std::nullopt;
  return out;
}

// What both protocols call alike.
inline nlohmann::ordered_json sampling_fields(const inference::SamplingConfig& s) {
  return {{"repetition_penalty", s.repetition_penalty},
          {"temperature", s.temperature},
          {"top_p", s.top_p},
          {"top_k", s.top_k},
          {"min_p", s.min_p},
          {"max_tokens", s.max_new_tokens},
          {"logprobs", 0}};
}

// What is drawn from is log_softmax of the model's own logits.
inline bool draws_from_model(const inference::SamplingConfig& s) {
  return s.temperature == 1.0 && s.top_p >= 1.0 && s.top_k <= 0 && s.min_p <= 0.0 && s.repetition_penalty == 1.0;
}

}  // namespace detail

RLALGO_INLINE std::vector<std::vector<data::Completion>> VllmClient::generate(
    std::span<const inference::Request> requests, const inference::SamplingConfig& sampling, inference::DrawKey key) {
  find_out();
  // The protocols have one n and one limit per call: prompts that want the same go together.
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < requests.size(); ++i) alike[{requests[i].count, requests[i].max_new_tokens}].push_back(i);
  Completions out(requests.size());
  for (auto& [wish, chosen] : alike) {
    const auto [count, limit] = wish;
    Batch batch{.requests = requests,
                .chosen = std::move(chosen),
                .count = static_cast<std::size_t>(count),
                .sampling = sampling,
                .key = key};
    if (limit > 0) batch.sampling.max_new_tokens = std::min(limit, sampling.max_new_tokens);
    if (protocol_ == Protocol::trl)
      ask_trl(batch, out);
    else
      ask_openai(batch, out);
  }
  return out;
}

RLALGO_INLINE void VllmClient::find_out() {
  if (protocol_ != Protocol::unknown) return;
  client_.wait_until_up("/health/", config_.start_seconds,
                        "start it, see trl.vllm_server_host and vllm_server_port, or raise trl.vllm_server_timeout",
                        config_.tell);
  static constexpr std::string_view routes_in_question[] = {"/generate/", "/v1/completions"};
  const http::ServedRoutes routes(client_, routes_in_question);
  own_ = routes.is_rlalgo();
  if (routes.has("/generate/")) {
    protocol_ = Protocol::trl;
  } else if (routes.has("/v1/completions")) {
    model_ = model_name();
    drawn_ = reports_drawn();
    protocol_ = Protocol::openai;
  } else if (routes.may_have("/generate/")) {
    protocol_ = Protocol::trl;
  } else {
    core::raise("remote", 13,
                {.what = "the server generates no completions",
                 .found = routes.described() + " without such a route",
                 .expected = "/generate/ (TRL, axolotl, rlalgo) or /v1/completions (vLLM)",
                 .where = client_.base_url()});
  }
}

// The name that requests call the model by.
RLALGO_INLINE std::string VllmClient::model_name() {
  const Json models = client_.get("/v1/models");
  const Json& cards = list(models, "data");
  std::string out;
  for (const Json& card : cards) {
    if (!card.is_object() || !card.contains("id") || !card["id"].is_string()) wrong(card.dump(), "a model with an id");
    const auto id = card["id"].get<std::string>();
    if (out.empty() || (!config_.adapter.empty() && id == config_.adapter)) out = id;
  }
  if (out.empty()) wrong("no model at /v1/models", "at least one");
  return out;
}

// vLLM reports log-probs of the model unless it was started otherwise; servers without /server_info do not say.
RLALGO_INLINE bool VllmClient::reports_drawn() {
  const http::Result result = client_.look("/server_info?config_format=json");
  if (!result.ok()) return false;
  const auto [info, problem] = core::read_json<Json>(result.response().body);
  static const nlohmann::ordered_json::json_pointer mode("/vllm_config/model_config/logprobs_mode");
  return problem.text.empty() && info.contains(mode) && info[mode] == "processed_logprobs";
}

RLALGO_INLINE VllmClient::Json VllmClient::prompts(const Batch& batch) {
  Json out = Json::array();
  for (const std::size_t i : batch.chosen) out.push_back(batch.requests[i].prompt);
  return out;
}

RLALGO_INLINE VllmClient::Json VllmClient::generation_kwargs(const Batch& batch) const {
  Json out = config_.generation_kwargs.is_object() ? config_.generation_kwargs : Json::object();
  if (!batch.sampling.stop_ids.empty() && !out.contains("stop_token_ids"))
    out["stop_token_ids"] = batch.sampling.stop_ids;
  return out;
}

RLALGO_INLINE void VllmClient::ask_trl(const Batch& batch, Completions& out) {
  Json body = {{"prompts", prompts(batch)}, {"n", batch.count}};
  body.update(detail::sampling_fields(batch.sampling));
  body["generation_kwargs"] = generation_kwargs(batch);
  if (own_) {
    Json indices = Json::array(), positions = Json::array();
    for (const std::size_t i : batch.chosen) {
      indices.push_back(batch.requests[i].first_index);
      positions.push_back(batch.requests[i].first_position);
    }
    body["draws"] = {{"seed", batch.key.seed},
                     {"step", batch.key.step},
                     {"first_indices", std::move(indices)},
                     {"first_positions", std::move(positions)}};
  }
  read_trl(client_.post("/generate/", body), batch, out);
}

RLALGO_INLINE void VllmClient::ask_openai(const Batch& batch, Completions& out) {
  const inference::SamplingConfig& s = batch.sampling;
  // vLLM refuses n > 1 of a greedy sampling, whose completions are equal.
  const std::size_t asked = s.temperature == 0.0 ? 1 : batch.count;
  Json body = {{"model", model_}, {"prompt", prompts(batch)}, {"n", asked}};
  body.update(detail::sampling_fields(s));
  body["return_token_ids"] = true;
  body.update(generation_kwargs(batch));
  read_openai(client_.post("/v1/completions", body), batch, asked, out);
  if (!drawn_ && !detail::draws_from_model(s) && !std::exchange(told_of_model_, true) && config_.tell)
    config_.tell(client_.base_url() +
                 ": its log-probs are of the model, not of what is drawn, and are left out; vLLM reports those with "
                 "--logprobs-mode processed_logprobs");
}

RLALGO_INLINE void VllmClient::read_trl(const Json& answer, const Batch& batch, Completions& out) const {
  const Json& ids = list(answer, "completion_ids");
  const std::size_t expected = batch.chosen.size() * batch.count;
  if (ids.size() != expected) wrong(std::to_string(ids.size()) + " completions", std::to_string(expected));
  const bool known = answer.contains("logprobs") && !answer["logprobs"].is_null();
  const Json& values = known ? list(answer, "logprobs") : ids;
  const Json& tokens = known ? list(answer, "logprob_token_ids") : ids;
  const Json& reasons = answer.contains("finish_reasons") ? list(answer, "finish_reasons") : ids;
  const Json& versions = answer.contains("weights_version_names") ? list(answer, "weights_version_names") : ids;
  for (const auto& [lists, name] :
       {std::pair(&values, "logprobs"), std::pair(&tokens, "logprob_token_ids"), std::pair(&reasons, "finish_reasons"),
        std::pair(&versions, "weights_version_names")})
    if (lists->size() != expected) wrong(std::to_string(lists->size()) + " lists in " + name, std::to_string(expected));
  for (std::size_t s = 0; s < expected; ++s) {
    data::Completion completion = completion_of(ids[s], reasons[s], batch.sampling);
    if (known) completion.log_probs = log_probs_of(completion.ids, values[s], &tokens[s]);
    if (own_) completion.weights_version = detail::published_version(versions[s]).value_or(-1);
    out[batch.chosen[s / batch.count]].push_back(std::move(completion));
  }
}

RLALGO_INLINE void VllmClient::read_openai(const Json& answer, const Batch& batch, std::size_t asked,
                                           Completions& out) const {
  const Json& choices = list(answer, "choices");
  const std::size_t expected = batch.chosen.size() * asked;
  if (choices.size() != expected) wrong(std::to_string(choices.size()) + " choices", std::to_string(expected));
  std::vector<const Json*> ordered(expected, nullptr);
  for (const Json& choice : choices) {
    const bool numbered = choice.is_object() && choice.contains("index") && choice["index"].is_number_unsigned();
    const std::size_t index = numbered ? choice["index"].get<std::size_t>() : expected;
    if (index >= expected || ordered[index] != nullptr)
      wrong(choice.dump().substr(0, 100), "choices with the indices 0 to " + std::to_string(expected - 1));
    ordered[index] = &choice;
  }
  const bool usable = drawn_ || detail::draws_from_model(batch.sampling);
  for (std::size_t s = 0; s < expected; ++s) {
    const Json& choice = *ordered[s];
    const Json reason = choice.value("finish_reason", Json(nullptr));
    data::Completion completion = completion_of(list(choice, "token_ids"), reason, batch.sampling);
    if (usable && choice.contains("logprobs") && !choice["logprobs"].is_null())
      completion.log_probs = log_probs_of(completion.ids, list(choice["logprobs"], "token_logprobs"), nullptr);
    std::vector<data::Completion>& of_prompt = out[batch.chosen[s / asked]];
    of_prompt.insert(of_prompt.end(), batch.count / asked, completion);
  }
}

RLALGO_INLINE data::Completion VllmClient::completion_of(const Json& ids, const Json& reason,
                                                         const inference::SamplingConfig& sampling) const {
  if (!ids.is_array()) wrong(ids.dump().substr(0, 100), "a list of token ids");
  if (static_cast<std::int64_t>(ids.size()) > sampling.max_new_tokens)
    wrong("a completion of " + std::to_string(ids.size()) + " tokens",
          "at most " + std::to_string(sampling.max_new_tokens));
  data::Completion out;
  for (const Json& id : ids) {
    if (!id.is_number_integer()) wrong(id.dump().substr(0, 100), "a token id");
    const auto value = id.get<std::int64_t>();
    if (value < 0 || (config_.vocab_size > 0 && value >= config_.vocab_size))
      core::raise("remote", 11,
                  {.what = "the generation server answers with a token that the model does not have",
                   .found = "id " + std::to_string(value),
                   .expected = "below " + std::to_string(config_.vocab_size),
                   .where = where(),
                   .remedy = "serve the checkpoint that is trained"});
    out.ids.push_back(static_cast<data::TokenId>(value));
  }
  const bool stopped = !out.ids.empty() && std::find(sampling.stop_ids.begin(), sampling.stop_ids.end(),
                                                     out.ids.back()) != sampling.stop_ids.end();
  const bool full = static_cast<std::int64_t>(out.ids.size()) >= sampling.max_new_tokens;
  out.finish = full && !stopped ? data::Finish::length : data::Finish::stop;
  if (!stopped && reason == "length") out.finish = data::Finish::length;  // at the end of its context
  if (reason == "abort") out.finish = data::Finish::aborted;
  return out;
}

RLALGO_INLINE std::vector<float> VllmClient::log_probs_of(const std::vector<data::TokenId>& ids, const Json& values,
                                                          const Json* tokens) const {
  for (const auto& [given, name] : {std::pair(&values, "logprobs"), std::pair(tokens, "logprob_token_ids")}) {
    if (given == nullptr) continue;
    if (!given->is_array()) wrong(std::string(given->type_name()) + " as " + name + " of a completion", "a list");
    if (given->size() != ids.size())
      wrong(std::to_string(given->size()) + " " + name + " of a completion",
            std::to_string(ids.size()) + ", one per token");
  }
  std::vector<float> out;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const Json* value = &values[t];
    if (tokens != nullptr) {
      const Json& candidates = (*tokens)[t];
      if (!candidates.is_array() || !value->is_array() || candidates.size() != value->size())
        wrong("log-probs and token ids that do not match", "lists of one length");
      const auto at = std::find(candidates.begin(), candidates.end(), Json(ids[t]));
      if (at == candidates.end())
        wrong("no log-prob of the sampled token " + std::to_string(ids[t]),
              "one in " + candidates.dump().substr(0, 100));
      value = &(*value)[static_cast<std::size_t>(at - candidates.begin())];
    }
    if (value->is_null()) return {};   // NaN on the server's side: unknown
    constexpr float rounding = 1e-3F;  // of a probability of 1 on the server's side
    if (!value->is_number() || !(value->get<float>() <= rounding) || !std::isfinite(value->get<float>()))
      wrong(value->dump().substr(0, 100), "a log-prob, at most 0");
    out.push_back(value->get<float>());
  }
  return out;
}

RLALGO_INLINE const VllmClient::Json& VllmClient::list(const Json& answer, const char* key) const {
  if (!answer.is_object() || !answer.contains(key) || !answer[key].is_array())
    wrong(answer.dump().substr(0, 200), std::string("an object with the list '") + key + "'");
  return answer[key];
}

RLALGO_INLINE std::string VllmClient::where() const {
  return "POST " + client_.base_url() + (protocol_ == Protocol::trl ? "/generate/" : "/v1/completions");
}

RLALGO_INLINE void VllmClient::wrong(const std::string& found, const std::string& expected) const {
  core::raise("remote", 10,
              {.what = "the answer of the generation server has the wrong shape",
               .found = found,
               .expected = expected,
               .where = where(),
               .remedy = "it must speak the protocol of `trl vllm-serve`, or vLLM's"});
}

}  // namespace rlalgo::remote
