// Definitions of vllm_client.hpp.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

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

}  // namespace detail

RLALGO_INLINE std::vector<std::vector<data::Completion>> VllmClient::generate(
    std::span<const inference::Request> requests, const inference::SamplingConfig& sampling, inference::DrawKey key) {
  find_out();
  if (protocol_ == Protocol::openai) return openai_->generate(requests, sampling, key);
  Completions out(requests.size());
  detail::in_calls(requests, sampling,
                   [&](std::span<const std::size_t> chosen, std::size_t count, const inference::SamplingConfig& own) {
                     ask_trl(requests, chosen, count, own, key, out);
                   });
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
    openai_.emplace(OpenAiConfig{.server = config_.server,
                                 .adapter = config_.adapter,
                                 .tell = config_.tell,
                                 .vocab_size = config_.vocab_size,
                                 .generation_kwargs = config_.generation_kwargs,
                                 .require_log_probs = false});
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

RLALGO_INLINE VllmClient::Json VllmClient::generation_kwargs(const inference::SamplingConfig& sampling) const {
  Json out = config_.generation_kwargs.is_object() ? config_.generation_kwargs : Json::object();
  if (!sampling.stop_ids.empty() && !out.contains("stop_token_ids")) out["stop_token_ids"] = sampling.stop_ids;
  if (!sampling.stop_strings.empty() && !out.contains("stop")) out["stop"] = sampling.stop_strings;
  if (sampling.min_new_tokens > 0 && !out.contains("min_tokens")) out["min_tokens"] = sampling.min_new_tokens;
  return out;
}

RLALGO_INLINE void VllmClient::ask_trl(std::span<const inference::Request> requests,
                                       std::span<const std::size_t> chosen, std::size_t count,
                                       const inference::SamplingConfig& sampling, inference::DrawKey key,
                                       Completions& out) {
  Json prompts = Json::array(), indices = Json::array(), positions = Json::array();
  for (const std::size_t i : chosen) {
    prompts.push_back(requests[i].prompt);
    indices.push_back(requests[i].first_index);
    positions.push_back(requests[i].first_position);
  }
  Json body = {{"prompts", std::move(prompts)}, {"n", count}};
  body.update(detail::sampling_fields(sampling));
  body["generation_kwargs"] = generation_kwargs(sampling);
  if (own_)
    body["draws"] = {{"seed", key.seed},
                     {"step", key.step},
                     {"first_indices", std::move(indices)},
                     {"first_positions", std::move(positions)}};
  const Json answer = client_.post("/generate/", body);
  const Json& ids = reader_.list(answer, "completion_ids");
  const std::size_t expected = chosen.size() * count;
  if (ids.size() != expected) reader_.wrong(std::to_string(ids.size()) + " completions", std::to_string(expected));
  const bool known = answer.contains("logprobs") && !answer["logprobs"].is_null();
  const Json& values = known ? reader_.list(answer, "logprobs") : ids;
  const Json& tokens = known ? reader_.list(answer, "logprob_token_ids") : ids;
  const Json& reasons = answer.contains("finish_reasons") ? reader_.list(answer, "finish_reasons") : ids;
  const Json& versions = answer.contains("weights_version_names") ? reader_.list(answer, "weights_version_names") : ids;
  for (const auto& [lists, name] :
       {std::pair(&values, "logprobs"), std::pair(&tokens, "logprob_token_ids"), std::pair(&reasons, "finish_reasons"),
        std::pair(&versions, "weights_version_names")})
    if (lists->size() != expected)
      reader_.wrong(std::to_string(lists->size()) + " lists in " + name, std::to_string(expected));
  for (std::size_t s = 0; s < expected; ++s) {
    data::Completion completion = reader_.completion_of(ids[s], reasons[s], sampling);
    if (known) completion.log_probs = reader_.log_probs_of(completion.ids, values[s], &tokens[s]);
    if (own_) completion.weights_version = detail::published_version(versions[s]).value_or(-1);
    out[chosen[s / count]].push_back(std::move(completion));
  }
}

}  // namespace rlalgo::remote
