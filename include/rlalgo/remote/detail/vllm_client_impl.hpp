// Definitions of vllm_client.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/http/json_client.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/remote/vllm_client.hpp>

namespace rlalgo::remote {

RLALGO_INLINE std::vector<std::vector<data::Completion>> VllmClient::generate(
    std::span<const inference::Request> requests, const inference::SamplingConfig& sampling,
    inference::DrawKey /*key*/) {
  if (!ready_)
    client_.wait_until_up("/health/", config_.start_seconds,
                          "start it, see trl.vllm_server_host and vllm_server_port, or raise trl.vllm_server_timeout",
                          config_.tell);
  ready_ = true;
  // The protocol has one n and one limit per call: prompts that want the same go together.
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < requests.size(); ++i) alike[{requests[i].count, requests[i].max_new_tokens}].push_back(i);
  std::vector<std::vector<data::Completion>> out(requests.size());
  for (const auto& [wish, chosen] : alike) {
    const auto [count, limit] = wish;
    inference::SamplingConfig limited = sampling;
    if (limit > 0) limited.max_new_tokens = std::min(limit, sampling.max_new_tokens);
    const Json answer = client_.post("/generate/", body(requests, chosen, count, limited));
    read(answer, chosen, static_cast<std::size_t>(count), limited, out);
  }
  return out;
}

RLALGO_INLINE VllmClient::Json VllmClient::body(std::span<const inference::Request> requests,
                                                const std::vector<std::size_t>& chosen, std::int64_t count,
                                                const inference::SamplingConfig& sampling) const {
  Json prompts = Json::array();
  for (const std::size_t i : chosen) prompts.push_back(requests[i].prompt);
  Json more = config_.generation_kwargs.is_object() ? config_.generation_kwargs : Json::object();
  if (!sampling.stop_ids.empty() && !more.contains("stop_token_ids")) more["stop_token_ids"] = sampling.stop_ids;
  return {{"prompts", std::move(prompts)},
          {"n", count},
          {"repetition_penalty", sampling.repetition_penalty},
          {"temperature", sampling.temperature},
          {"top_p", sampling.top_p},
          {"top_k", sampling.top_k},
          {"min_p", sampling.min_p},
          {"max_tokens", sampling.max_new_tokens},
          {"logprobs", 0},
          {"generation_kwargs", std::move(more)}};
}

RLALGO_INLINE void VllmClient::read(const Json& answer, const std::vector<std::size_t>& chosen, std::size_t count,
                                    const inference::SamplingConfig& sampling,
                                    std::vector<std::vector<data::Completion>>& out) const {
  const Json& ids = list(answer, "completion_ids");
  const std::size_t expected = chosen.size() * count;
  if (ids.size() != expected) wrong(std::to_string(ids.size()) + " completions", std::to_string(expected));
  const bool known = answer.contains("logprobs") && !answer["logprobs"].is_null();
  const Json& values = known ? list(answer, "logprobs") : ids;
  const Json& tokens = known ? list(answer, "logprob_token_ids") : ids;
  for (const auto& [lists, name] : {std::pair(&values, "logprobs"), std::pair(&tokens, "logprob_token_ids")})
    if (lists->size() != expected) wrong(std::to_string(lists->size()) + " lists in " + name, std::to_string(expected));
  for (std::size_t s = 0; s < expected; ++s) {
    data::Completion completion = completion_of(ids[s], sampling);
    if (known) completion.log_probs = log_probs_of(completion.ids, values[s], tokens[s]);
    out[chosen[s / count]].push_back(std::move(completion));
  }
}

RLALGO_INLINE data::Completion VllmClient::completion_of(const Json& ids,
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
  return out;
}

RLALGO_INLINE std::vector<float> VllmClient::log_probs_of(const std::vector<data::TokenId>& ids, const Json& values,
                                                          const Json& tokens) const {
  for (const auto& [given, name] : {std::pair(&values, "logprobs"), std::pair(&tokens, "logprob_token_ids")}) {
    if (!given->is_array()) wrong(std::string(given->type_name()) + " as " + name + " of a completion", "a list");
    if (given->size() != ids.size())
      wrong(std::to_string(given->size()) + " " + name + " of a completion",
            std::to_string(ids.size()) + ", one per token");
  }
  std::vector<float> out;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const Json& candidates = tokens[t];
    if (!candidates.is_array() || !values[t].is_array() || candidates.size() != values[t].size())
      wrong("log-probs and token ids that do not match", "lists of one length");
    const auto at = std::find(candidates.begin(), candidates.end(), Json(ids[t]));
    if (at == candidates.end())
      wrong("no log-prob of the sampled token " + std::to_string(ids[t]), "one in " + candidates.dump().substr(0, 100));
    const Json& value = values[t][static_cast<std::size_t>(at - candidates.begin())];
    if (value.is_null()) return {};    // NaN on the server's side: unknown
    constexpr float rounding = 1e-3F;  // of a probability of 1 on the server's side
    if (!value.is_number() || !(value.get<float>() <= rounding) || !std::isfinite(value.get<float>()))
      wrong(value.dump().substr(0, 100), "a log-prob, at most 0");
    out.push_back(value.get<float>());
  }
  return out;
}

RLALGO_INLINE const VllmClient::Json& VllmClient::list(const Json& answer, const char* key) const {
  if (!answer.is_object() || !answer.contains(key) || !answer[key].is_array())
    wrong(answer.dump().substr(0, 200), std::string("an object with the list '") + key + "'");
  return answer[key];
}

RLALGO_INLINE void VllmClient::wrong(const std::string& found, const std::string& expected) const {
  core::raise("remote", 10,
              {.what = "the answer of the generation server has the wrong shape",
               .found = found,
               .expected = expected,
               .where = where(),
               .remedy = "it must speak the protocol of `trl vllm-serve`"});
}

}  // namespace rlalgo::remote
