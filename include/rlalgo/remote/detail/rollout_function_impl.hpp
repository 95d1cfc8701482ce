// Definitions of rollout_function.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/remote/detail/python_host.hpp>
#include <rlalgo/remote/detail/rollout_host_source.hpp>
#include <rlalgo/remote/rollout_function.hpp>

namespace rlalgo::remote {

struct RolloutFunction::Call {
  const inference::SamplingConfig& sampling;
  inference::DrawKey key;
  std::uint64_t next = 0;  // random index of the next draw
  std::int64_t version = -1;
  std::vector<std::pair<std::string, data::TokenId>> ended;  // texts that the model ended, and how
};

namespace detail {

// A request of the function that is answered with the reason why not: its author sees where he asked.
struct RolloutRefusal {
  std::string reason;
};

// Without white space at the end, which functions add and take away.
[[nodiscard]] inline std::string_view trimmed(std::string_view text) {
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  return end == std::string_view::npos ? std::string_view() : text.substr(0, end + 1);
}

}  // namespace detail

RLALGO_INLINE RolloutFunction::RolloutFunction(std::string function, PythonConfig config)
    : function_(std::move(function)), config_(std::move(config)) {
  if (const int error = process_.start(config_.python, detail::rollout_host_source); error != 0)
    core::raise("remote", 60,
                {.what = "Python for the rollout function cannot be started",
                 .found = std::strerror(error),
                 .where = process_.program(),
                 .remedy = "install python3, or set RLALGO_PYTHON to one"});
  const Json answer =
      ask({{"op", "load"}, {"function", function_}, {"paths", detail::module_paths(config_.search_paths)}},
          config_.start_seconds, "loading");
  texts_form_ = answer.value("form", "") == "model";
}

RLALGO_INLINE std::vector<std::vector<data::Completion>> RolloutFunction::generate(
    std::span<const inference::Request> requests, const inference::SamplingConfig& sampling, inference::DrawKey key) {
  if (requests.empty()) return {};
  if (!requests.front().given.empty()) return generator_->generate(requests, sampling, key);
  Json prompts = Json::array(), rows = Json::array();
  std::int64_t most = 0;
  for (const inference::Request& request : requests) {
    if (request.source == nullptr)
      core::raise("remote", 63,
                  {.what = "a rollout function needs the dataset row behind its prompt",
                   .where = "a request without one",
                   .remedy = "set Request::source"});
    most = std::max(most, request.count);
    for (std::int64_t j = 0; j < request.count; ++j) {
      prompts.push_back(*request.source->prompt);
      rows.push_back(request.source->columns.is_object() ? request.source->columns : Json::object());
    }
  }
  const std::size_t count = prompts.size();
  const Json sampled = {{"temperature", sampling.temperature},
                        {"top_p", sampling.top_p},
                        {"top_k", sampling.top_k},
                        {"min_p", sampling.min_p},
                        {"repetition_penalty", sampling.repetition_penalty},
                        {"max_new_tokens", sampling.max_new_tokens}};
  Json run = sampled;
  run["stop_ids"] = sampling.stop_ids;
  run["generation_config"] = sampled;
  run["generation_config"].update(Json{{"do_sample", sampling.temperature > 0},
                                       {"num_return_sequences", 1},
                                       {"pad_token_id", texts_.model.value("pad_id", Json())},
                                       {"eos_token_id", sampling.stop_ids}});
  run["num_generations"] = most;
  run["seed"] = key.seed;
  run["step"] = key.step;
  run["rank"] = texts_.rank;
  run["ranks"] = texts_.ranks;
  run["model"] = texts_.model;
  run["model"].update(Json{{"vocab_size", texts_.vocab_size}, {"max_positions", texts_.max_positions}});

  Call call{.sampling = sampling, .key = key, .next = requests.front().first_index << 20U, .ended = {}};
  Json answer =
      ask({{"op", "roll"}, {"prompts", std::move(prompts)}, {"rows", std::move(rows)}, {"run", std::move(run)}},
          config_.call_seconds, "generation " + std::to_string(key.step));
  while (answer.contains("ask")) {
    os::stop_if_interrupted();
    Json reply;
    try {
      reply = answered(call, answer);
    } catch (const detail::RolloutRefusal& refusal) {
      reply = {{"refused", refusal.reason}};
    } catch (...) {
      process_.end();  // it waits for an answer that will not come
      throw;
    }
    answer = ask(std::move(reply), config_.call_seconds, "generation " + std::to_string(key.step));
  }
  const Json completions = answer.value("completions", Json()), columns = answer.value("columns", Json());
  if (!completions.is_array() || completions.size() != count || !columns.is_array() || columns.size() != count)
    fail(process_.unreadable(answer.dump()), 0.0, "its completions");
  std::vector<std::vector<data::Completion>> out(requests.size());
  std::size_t at = 0;
  for (std::size_t r = 0; r < requests.size(); ++r)
    for (std::int64_t j = 0; j < requests[r].count; ++j, ++at)
      out[r].push_back(completion_of(call, completions[at], columns[at], requests[r]));
  if (texts_form_ && (source() == inference::WeightSource::snapshot || quantizes())) score(call, out, requests);
  return out;
}

// What a text's tokens have as log-probs under the weights that drew it.
RLALGO_INLINE void RolloutFunction::score(Call& call, std::vector<std::vector<data::Completion>>& groups,
                                          std::span<const inference::Request> requests) {
  std::vector<inference::Request> given;
  for (std::size_t r = 0; r < groups.size(); ++r)
    for (const data::Completion& one : groups[r])
      if (!one.ids.empty()) given.push_back({.prompt = requests[r].prompt, .given = one.ids});
  const auto scored = generator_->generate(std::span<const inference::Request>(given), call.sampling, call.key);
  std::size_t k = 0;
  for (auto& group : groups)
    for (data::Completion& one : group)
      if (!one.ids.empty()) {
        one.log_probs = scored.at(k).at(0).log_probs;
        one.weights_version = scored[k++].front().weights_version;
      }
}

RLALGO_INLINE RolloutFunction::Json RolloutFunction::answered(Call& call, const Json& asked) {
  const auto kind = asked.at("ask").get<std::string>();
  if (kind == "generate") return drawn(call, asked);
  if (kind == "prompt") return {{"ids", texts_.prompt(asked.at("prompt"))}};
  if (kind == "encode")
    return {{"ids", texts_.encode(asked.at("text").get<std::string>(), asked.at("special").get<bool>())}};
  if (kind == "decode") {
    Json texts = Json::array();
    for (const Json& ids : asked.at("ids"))
      texts.push_back(texts_.decode(ids_of(ids, "decode()"), asked.at("skip").get<bool>()));
    return {{"texts", std::move(texts)}};
  }
  if (kind == "render") {
    try {
      return {{"text", texts_.render(asked.at("messages"), asked.at("generation_prompt").get<bool>(), asked.at("tools"),
                                     asked.at("variables"))}};
    } catch (const core::Error& e) {
      throw detail::RolloutRefusal{e.what()};
    }
  }
  fail(process_.unreadable(asked.dump()), 0.0, "a question");
}

RLALGO_INLINE RolloutFunction::Json RolloutFunction::drawn(Call& call, const Json& asked) {
  const Json& said = asked.at("sampling");
  inference::SamplingConfig sampling{.temperature = said.at("temperature").get<double>(),
                                     .top_p = said.at("top_p").get<double>(),
                                     .top_k = said.at("top_k").get<std::int64_t>(),
                                     .min_p = said.at("min_p").get<double>(),
                                     .repetition_penalty = said.at("repetition_penalty").get<double>(),
                                     .max_new_tokens = said.at("max_new_tokens").get<std::int64_t>(),
                                     .stop_ids = said.at("stop_ids").get<std::vector<data::TokenId>>(),
                                     .stop_strings = call.sampling.stop_strings,
                                     .min_new_tokens = call.sampling.min_new_tokens};
  const auto count = said.at("count").get<std::int64_t>();
  const auto positive = [](std::int64_t value, const char* name) {
    if (value < 1) throw detail::RolloutRefusal{std::string(name) + " is " + std::to_string(value) + ", not 1 or more"};
  };
  positive(count, "num_return_sequences");
  positive(sampling.max_new_tokens, "max_new_tokens");
  if (!(sampling.temperature >= 0) || !(sampling.top_p > 0) || sampling.top_p > 1 || sampling.top_k < 0 ||
      !(sampling.min_p >= 0) || sampling.min_p > 1 || !(sampling.repetition_penalty > 0))
    throw detail::RolloutRefusal{"sampling settings out of their ranges: " + said.dump()};
  std::vector<inference::Request> requests;
  for (const Json& prompt : asked.at("prompts")) {
    std::vector<data::TokenId> ids;
    try {
      ids = ids_of(prompt, "the prompt of generate()");
    } catch (const core::Error& e) {
      throw detail::RolloutRefusal{e.what()};
    }
    if (ids.empty()) throw detail::RolloutRefusal{"a prompt of generate() has no tokens"};
    if (static_cast<std::int64_t>(ids.size()) >= texts_.max_positions)
      throw detail::RolloutRefusal{"a prompt of generate() has " + std::to_string(ids.size()) +
                                   " tokens, and the model has room for " + std::to_string(texts_.max_positions) +
                                   " with the completion"};
    requests.push_back({.prompt = std::move(ids), .count = count, .first_index = call.next});
    call.next += static_cast<std::uint64_t>(count);
  }
  const auto groups = generator_->generate(std::span<const inference::Request>(requests), sampling, call.key);
  Json completions = Json::array();
  for (const auto& group : groups) {
    Json row = Json::array();
    for (const data::Completion& one : group) {
      const std::string text = texts_.decode(one.ids, true);
      row.push_back(
          {{"ids", one.ids}, {"log_probs", one.log_probs.empty() ? Json() : Json(one.log_probs)}, {"text", text}});
      const bool ended = !one.ids.empty() && std::find(call.sampling.stop_ids.begin(), call.sampling.stop_ids.end(),
                                                       one.ids.back()) != call.sampling.stop_ids.end();
      if (texts_form_ && ended) call.ended.emplace_back(std::string(detail::trimmed(text)), one.ids.back());
      if (one.weights_version >= 0)
        call.version = call.version < 0 ? one.weights_version : std::min(call.version, one.weights_version);
    }
    completions.push_back(std::move(row));
  }
  return {{"completions", std::move(completions)}};
}

RLALGO_INLINE data::Completion RolloutFunction::completion_of(Call& call, const Json& made, const Json& columns,
                                                              const inference::Request& request) {
  data::Completion out;
  out.weights_version = call.version;
  data::Interaction interaction{.reward = std::numeric_limits<double>::quiet_NaN()};
  if (const auto text = made.find("text"); text != made.end()) {
    interaction.last_text = text->get<std::string>();
    interaction.messages = *text;
    out.ids = texts_.encode(interaction.last_text, false);
    const std::string_view whole = detail::trimmed(interaction.last_text);
    for (const auto& [part, end] : call.ended)
      if (whole.ends_with(part) && (!part.empty() || whole.empty())) {
        out.ids.push_back(end);
        break;
      }
  } else {
    out.ids = ids_of(made.at("ids"), "completion_ids");
    out.prompt_ids = ids_of(made.at("prompt_ids"), "prompt_ids");
    if (out.prompt_ids.empty())
      core::raise("remote", 66, {.what = "a prompt of the rollout function '" + function_ + "' has no tokens"});
    if (made.contains("log_probs")) out.log_probs = made.at("log_probs").get<std::vector<float>>();
    if (made.contains("mask")) out.loss_mask = made.at("mask").get<std::vector<std::uint8_t>>();
  }
  interaction.columns = columns;
  if (texts_form_ || !columns.empty())
    out.interaction = std::make_shared<const data::Interaction>(std::move(interaction));
  if (out.ids.empty() && !call.sampling.stop_ids.empty()) {  // nothing was said: a row with its reward, and no gradient
    out.ids = {call.sampling.stop_ids.front()};
    out.loss_mask = {0};
    out.log_probs.clear();
  }
  const std::size_t prompt = out.prompt_ids.empty() ? request.prompt.size() : out.prompt_ids.size();
  if (out.ids.empty() || static_cast<std::int64_t>(prompt + out.ids.size()) > texts_.max_positions)
    core::raise("remote", 66,
                {.what = "a completion of the rollout function '" + function_ + "' cannot be trained on",
                 .found = std::to_string(prompt) + " tokens of the prompt and " + std::to_string(out.ids.size()) +
                          " of the completion",
                 .expected = "one token or more, and at most max_position_embeddings = " +
                             std::to_string(texts_.max_positions) + " in all",
                 .where = "dataset row " + std::to_string(request.source->row),
                 .remedy = "return a shorter completion"});
  bool ended = std::find(call.sampling.stop_ids.begin(), call.sampling.stop_ids.end(), out.ids.back()) !=
               call.sampling.stop_ids.end();
  if (!ended && !call.sampling.stop_strings.empty()) {
    const std::string text = texts_.decode(out.ids, false);
    for (const std::string& end : call.sampling.stop_strings) ended = ended || text.find(end) != std::string::npos;
  }
  out.finish = ended ? data::Finish::stop : data::Finish::length;
  return out;
}

RLALGO_INLINE std::vector<data::TokenId> RolloutFunction::ids_of(const Json& list, const std::string& what) const {
  std::vector<data::TokenId> out;
  for (const Json& entry : list) {
    const std::int64_t id = entry.is_number_integer() ? entry.get<std::int64_t>() : -1;
    if (id < 0 || id >= texts_.vocab_size)
      core::raise(
          "remote", 66,
          {.what = what + " of the rollout function '" + function_ + "' has a token that is none of the model's",
           .found = entry.dump(),
           .expected = "ids from 0 to " + std::to_string(texts_.vocab_size - 1)});
    out.push_back(static_cast<data::TokenId>(id));
  }
  return out;
}

RLALGO_INLINE RolloutFunction::Json RolloutFunction::ask(Json question, double seconds, const std::string& during) {
  auto result = process_.ask(question, seconds);
  if (Json* answer = std::get_if<Json>(&result)) return std::move(*answer);
  fail(std::get<detail::PythonProcess::Failure>(result), seconds, during);
}

RLALGO_INLINE void RolloutFunction::fail(const detail::PythonProcess::Failure& failure, double seconds,
                                         const std::string& during) const {
  using Trouble = detail::PythonProcess::Trouble;
  const std::string name = "the rollout function '" + function_ + "' ";
  if (failure.trouble == Trouble::late)
    core::raise("remote", 64,
                {.what = name + "did not get on in time",
                 .expected = "an answer, or something asked, within " + std::to_string(seconds) + " s",
                 .where = during,
                 .remedy = "make it faster, or raise trl.environment_timeout; its process was killed"});
  if (failure.trouble == Trouble::ended)
    core::raise("remote", 65,
                {.what = "the Python process of " + name + "ended",
                 .found = failure.found,
                 .where = during,
                 .remedy = "what it printed is above"});
  if (failure.trouble == Trouble::unreadable)
    core::raise("remote", 65,
                {.what = "the Python process of " + name + "answered outside the protocol",
                 .found = failure.found,
                 .where = during,
                 .remedy = "file descriptor 3 belongs to the trainer: do not write to it"});
  const std::string kind = failure.answer.value("kind", "");
  if (kind == "load") core::raise("remote", 61, {.what = "cannot load " + name, .found = failure.found});
  if (kind == "value")
    core::raise(
        "remote", 63,
        {.what = name + "returned something else than agreed",
         .found = failure.found,
         .expected = texts_form_ ? "a text for each prompt" : "a dict with prompt_ids, completion_ids, logprobs",
         .where = during});
  core::raise("remote", 62, {.what = name + "raised an exception", .found = failure.found, .where = during});
}

}  // namespace rlalgo::remote
