// Completions of several turns: a generator that lets an environment, or tools, answer the model and the model go on.
//
//   prompt  m₁  e₁  m₂  e₂ … mₖ      mᵢ drawn by the generator, eᵢ the tokens of the environment's observation
//
// The completion is everything after the prompt, token by token as the model saw it (nothing is tokenized again). Loss
// mask: 1 on mᵢ, 0 on eᵢ; log-probs of eᵢ are 0. max_new_tokens limits the whole completion; an observation that would
// leave no room for another token, there or in the model's context, is not shown and ends the episode. Draws continue
// at the position reached, so that no random number is used twice. All live episodes take their next turn together:
// the wrapped generator and the environment are asked once per turn. What the environments have no room for begins later,
// and draws the same. Each turn fills the KV cache of its conversation
// again.
//
// Source: TRL `GRPOTrainer._tool_call_loop` and `env_mask`.
// Departure: TRL keeps an observation that fills the completion exactly, with no token of the model after it.
//
// Errors: [rlalgo.inference.8] a request without its dataset row; [.9] the environment broke its contract.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/core/philox.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/environment/concept.hpp>
#include <rlalgo/inference/generator.hpp>

namespace rlalgo::inference {

// Between tokens and messages.
struct Dialogue {
  // A prompt with what the environment said first in it (environment::opened), as token ids.
  std::function<std::vector<data::TokenId>(const data::Json& prompt)> open;
  // Tokens of one turn of the model, end token included → {"role": "assistant", "content": …[, "tool_calls"]}.
  std::function<data::Json(std::span<const data::TokenId>)> read;
  // Tokens from the end of the model's turn to where it speaks next: the observation, a string or messages.
  std::function<std::vector<data::TokenId>(const data::Json& observation)> reply;
};

struct MultiTurnConfig {
  std::int64_t max_turns = 0;    // messages of the model in one episode; 0 = only the lengths limit them
  std::int64_t max_length = 0;   // tokens of prompt and completion together; 0 = unlimited
  std::int64_t max_message = 0;  // tokens of one message of the model; 0 = as many as there is room for
};

template <Generator G>
class MultiTurn {
 public:
  using Config = MultiTurnConfig;
  static constexpr WeightSource weights = G::weights;
  static constexpr GeneratorHooks hooks{.quantizes = true};

  // `generator` must outlive this one.
  MultiTurn(G& generator, std::shared_ptr<environment::Environments> environments, Dialogue dialogue,
            MultiTurnConfig config = {})
      : MultiTurn(generator, std::move(environments), std::vector<Dialogue>{std::move(dialogue)}, config) {}
  // Each row goes on in the dialogue that data::TokenizedPrompt::dialogue names.
  MultiTurn(G& generator, std::shared_ptr<environment::Environments> environments, std::vector<Dialogue> dialogues,
            MultiTurnConfig config = {})
      : generator_(&generator),
        environments_(std::move(environments)),
        dialogues_(std::move(dialogues)),
        config_(config) {}

  std::vector<std::vector<data::Completion>> generate(std::span<const Request> requests, const SamplingConfig& sampling,
                                                      DrawKey key) {
    std::vector<environment::Start> starts;
    std::vector<Playing> all = seated(requests, key, starts);
    for (first_ = 0; first_ < all.size();) {
      const std::size_t count = environments_->room_for(std::span<const environment::Start>(starts).subspan(first_));
      require(std::clamp<std::size_t>(count, 1, all.size() - first_), count, "episodes at a time");
      begin(std::span(all).subspan(first_, count), std::span(starts).subspan(first_, count), requests);
      std::vector<std::size_t> live(count);
      for (std::size_t i = 0; i < count; ++i) live[i] = first_ + i;
      while (!live.empty()) {
        draw(all, live, requests, sampling, key);
        live = take_turns(all, live, sampling);
      }
      finish(std::span(all).subspan(first_, count));
      first_ += count;
    }
    std::vector<std::vector<data::Completion>> out(requests.size());
    for (Playing& one : all) out[one.request].push_back(std::move(one.completion));
    return out;
  }
  [[nodiscard]] WeightSource source() const { return source_of(*generator_); }
  [[nodiscard]] bool quantizes() const { return inference::quantizes(*generator_); }

 private:
  struct Playing {
    std::size_t request = 0;
    std::uint64_t index = 0;  // of the completion, for draws
    const Dialogue* dialogue = nullptr;
    std::vector<data::TokenId> prompt;
    data::Completion completion;
    std::size_t said = 0;  // tokens before the model's latest message
    data::Interaction interaction;
  };

  std::vector<Playing> seated(std::span<const Request> requests, DrawKey key, std::vector<environment::Start>& starts) {
    std::vector<Playing> all;
    for (std::size_t r = 0; r < requests.size(); ++r) {
      const Request& request = requests[r];
      if (request.source == nullptr)
        core::raise("inference", 8,
                    {.what = "an episode needs the dataset row behind its prompt",
                     .where = "request " + std::to_string(r),
                     .remedy = "set Request::source"});
      data::Json row = request.source->columns.is_object() ? request.source->columns : data::Json::object();
      if (request.source->has_prompt) row["prompt"] = request.source->prompt;
      const Dialogue* const dialogue = &dialogues_.at(request.source->dialogue);
      const auto seed = [&](std::uint64_t index) {
        const core::PhiloxBlock words = core::philox({key.seed, core::Stream::environment}, key.step, index);
        return static_cast<std::uint64_t>(words[0]) << 32U | words[1];
      };
      for (std::int64_t j = 0; j < request.count; ++j) {
        const std::uint64_t index = request.first_index + static_cast<std::uint64_t>(j);
        starts.push_back({row, seed(index), seed(request.first_index), !request.source->has_prompt});
        all.push_back({.request = r,
                       .index = index,
                       .dialogue = dialogue,
                       .prompt = request.prompt,
                       .completion = {},
                       .interaction = {}});
        all.back().interaction.messages = data::Json::array();
      }
    }
    return all;
  }

  void begin(std::span<Playing> some, std::span<const environment::Start> starts, std::span<const Request> requests) {
    const std::vector<data::Json> first = environments_->begin(starts);
    require(first.size(), some.size(), "opening observations");
    for (std::size_t i = 0; i < some.size(); ++i) {
      if (first[i].is_null()) continue;
      some[i].interaction.prompt = environment::opened(requests[some[i].request].source->prompt, first[i]);
      some[i].prompt = some[i].dialogue->open(some[i].interaction.prompt);
      some[i].completion.prompt_ids = some[i].prompt;
    }
  }

  // The model's next message in every live episode. Neighbours that continue the same tokens go as one request, so that
  // their prompt is computed once.
  void draw(std::vector<Playing>& all, std::span<const std::size_t> live, std::span<const Request> requests,
            const SamplingConfig& sampling, DrawKey key) {
    std::vector<Request> next;
    for (std::size_t k = 0; k < live.size(); ++k) {
      const Playing& one = all[live[k]];
      const std::size_t length = one.completion.ids.size();
      if (k > 0 && length == 0) {
        const Playing& before = all[live[k - 1]];
        if (before.completion.ids.empty() && before.request == one.request && before.index + 1 == one.index &&
            before.prompt == one.prompt) {
          ++next.back().count;
          continue;
        }
      }
      Request request{.prompt = one.prompt, .count = 1, .first_index = one.index};
      request.prompt.insert(request.prompt.end(), one.completion.ids.begin(), one.completion.ids.end());
      request.max_new_tokens = room(one, sampling);
      request.first_position = static_cast<std::uint32_t>(length);
      request.source = requests[one.request].source;
      next.push_back(std::move(request));
    }
    auto answers = generator_->generate(std::span<const Request>(next), sampling, key);
    std::size_t k = 0;
    require(answers.size(), next.size(), "groups of completions");
    for (std::size_t r = 0; r < next.size(); ++r) {
      require(answers[r].size(), static_cast<std::size_t>(next[r].count), "completions");
      for (data::Completion& answer : answers[r]) append(all[live[k++]], std::move(answer), sampling);
    }
  }

  [[nodiscard]] std::int64_t room(const Playing& one, const SamplingConfig& sampling) const {
    const auto used = static_cast<std::int64_t>(one.completion.ids.size());
    const auto prompt = static_cast<std::int64_t>(one.prompt.size());
    std::int64_t left = sampling.max_new_tokens - used;
    if (config_.max_length > 0) left = std::min(left, config_.max_length - prompt - used);
    if (config_.max_message > 0) left = std::min(left, config_.max_message);
    return std::max<std::int64_t>(left, 1);  // the first turn: the generator itself refuses a prompt without room
  }

  void append(Playing& one, data::Completion answer, const SamplingConfig& sampling) {
    data::Completion& all = one.completion;
    const auto most = static_cast<std::size_t>(room(one, sampling));
    all.finish = answer.finish;
    const bool known = answer.log_probs.size() == answer.ids.size() && all.log_probs.size() == all.ids.size();
    if (answer.ids.size() > most) {
      answer.ids.resize(most);
      if (known) answer.log_probs.resize(most);
      all.finish = data::Finish::length;
    }
    one.said = all.ids.size();
    all.ids.insert(all.ids.end(), answer.ids.begin(), answer.ids.end());
    all.loss_mask.resize(all.ids.size(), 1);
    if (known)
      all.log_probs.insert(all.log_probs.end(), answer.log_probs.begin(), answer.log_probs.end());
    else
      all.log_probs.clear();
  }

  // The environment's turn in every live episode; those that go on.
  std::vector<std::size_t> take_turns(std::vector<Playing>& all, std::span<const std::size_t> live,
                                      const SamplingConfig& sampling) {
    std::vector<environment::Said> said;
    for (const std::size_t i : live) {
      Playing& one = all[i];
      data::Json message = one.dialogue->read(std::span(one.completion.ids).subspan(one.said));
      one.interaction.last_text = message.at("content").get<std::string>();
      ++one.interaction.turns;
      one.interaction.messages.push_back(message);
      said.push_back({i - first_, std::move(message)});
    }
    const std::vector<environment::Turn> turns = environments_->step(said);
    require(turns.size(), live.size(), "turns");
    std::vector<std::size_t> on;
    for (std::size_t k = 0; k < live.size(); ++k) {
      Playing& one = all[live[k]];
      const environment::Turn& turn = turns[k];
      one.interaction.reward = sum(one.interaction.reward, turn.reward);
      const bool last = config_.max_turns > 0 && one.interaction.turns >= config_.max_turns;
      if (turn.done || last || turn.observation.is_null() || one.completion.finish != data::Finish::stop) continue;
      if (show(one, turn.observation, sampling)) on.push_back(live[k]);
    }
    return on;
  }

  // NaN says that there is no reward; ∞ − ∞ does not, and stays infinite: a failure of the reward.
  static double sum(double before, double more) {
    const double out = before + more;
    const bool lost = std::isnan(out) && !std::isnan(before) && !std::isnan(more);
    return lost ? std::numeric_limits<double>::infinity() : out;
  }

  // Appends an observation, if the model can still answer it.
  bool show(Playing& one, const data::Json& observation, const SamplingConfig& sampling) {
    const std::vector<data::TokenId> tokens = one.dialogue->reply(observation);
    data::Completion& all = one.completion;
    if (tokens.empty() && one.said == all.ids.size()) return false;  // neither side says anything any more
    const auto length = static_cast<std::int64_t>(all.ids.size() + tokens.size());
    if (length >= sampling.max_new_tokens) return false;
    if (config_.max_length > 0 && static_cast<std::int64_t>(one.prompt.size()) + length >= config_.max_length)
      return false;
    const bool known = all.log_probs.size() == all.ids.size();
    all.ids.insert(all.ids.end(), tokens.begin(), tokens.end());
    all.loss_mask.resize(all.ids.size(), 0);
    if (known) all.log_probs.resize(all.ids.size(), 0.0f);
    if (observation.is_string())
      one.interaction.messages.push_back({{"role", "user"}, {"content", observation}});
    else
      for (const data::Json& message : observation) one.interaction.messages.push_back(message);
    return true;
  }

  void finish(std::span<Playing> some) {
    const std::vector<environment::Ending> endings = environments_->finish();
    require(endings.size(), some.size(), "endings");
    const bool rewards = !environments_->reward_name().empty();
    const bool tools = !environments_->tools().is_null();
    for (std::size_t i = 0; i < some.size(); ++i) {
      data::Interaction& interaction = some[i].interaction;
      interaction.reward =
          rewards ? sum(interaction.reward, endings[i].reward) : std::numeric_limits<double>::quiet_NaN();
      interaction.has_tools = tools;
      interaction.tool_calls = endings[i].tool_calls;
      interaction.tool_failures = endings[i].tool_failures;
      interaction.failure = endings[i].failure;
      some[i].completion.interaction = std::make_shared<const data::Interaction>(std::move(interaction));
    }
  }

  static void require(std::size_t found, std::size_t expected, const char* what) {
    if (found != expected)
      core::raise("inference", 9,
                  {.what = std::string("an episode got another number of ") + what + " than it has",
                   .found = std::to_string(found),
                   .expected = std::to_string(expected)});
  }

  G* generator_;
  std::shared_ptr<environment::Environments> environments_;
  std::vector<Dialogue> dialogues_;
  MultiTurnConfig config_;
  std::size_t first_ = 0;  // of the episodes that are played now, in those of the generation
};

}  // namespace rlalgo::inference
