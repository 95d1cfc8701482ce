// From completions to a scored Generation: texts, masks, rewards, and the metrics that belong to generating.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/activity.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/reward_table.hpp>
#include <rlalgo/data/decode.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/weighted_reward.hpp>

namespace rlalgo::sampler {

using data::Decode;  // token ids of a completion → its text, special tokens skipped

namespace detail {

// What completions end with by themselves: ids, and with `strings` texts, of which the generator says that they came.
struct Ends {
  // NOLINTNEXTLINE(google-explicit-constructor): ids alone, mostly
  Ends(std::span<const data::TokenId> of_ids, bool of_strings = false) : ids(of_ids), strings(of_strings) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Ends(const std::vector<data::TokenId>& of_ids) : ids(of_ids) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Ends(const inference::SamplingConfig& sampling) : ids(sampling.stop_ids), strings(!sampling.stop_strings.empty()) {}

  std::span<const data::TokenId> ids;
  bool strings = false;
};

// A completion is terminated when its last token, that of its last row, is a stop id, or when a stop string ended it; anything
// else was cut off.
bool terminated(const data::Episode& episode, const Ends& ends);

// One generate call for the prompts at `chosen`, `copies` completions each, as an unscored Generation. `first_group`: the
// place of the first of them in the generation that they are drawn for.
template <inference::Generator G>
std::shared_ptr<Generation> generate(G& generator, std::span<const data::TokenizedPrompt> prompts,
                                     std::span<const std::size_t> chosen, std::int64_t copies,
                                     const inference::SamplingConfig& sampling, inference::DrawKey key,
                                     std::int64_t weights_version, std::size_t first_group = 0) {
  std::vector<inference::Request> requests;
  requests.reserve(chosen.size());
  for (std::size_t p = 0; p < chosen.size(); ++p)
    requests.push_back({.prompt = prompts[chosen[p]].ids,
                        .count = copies,
                        .first_index = static_cast<std::uint64_t>(first_group + p) * static_cast<std::uint64_t>(copies),
                        .source = &prompts[chosen[p]]});
  auto answers = [&] {
    const core::Activity generating("generating", static_cast<std::int64_t>(requests.size()) * copies);
    return generator.generate(std::span<const inference::Request>(requests), sampling, key);
  }();
  const auto broken = [&](const std::string& found, const std::string& expected) {
    core::raise("sampler", 6,
                {.what = "the generator returned another number of results than asked for",
                 .found = found,
                 .expected = expected});
  };
  if (answers.size() != chosen.size())
    broken(std::to_string(answers.size()) + " groups", std::to_string(chosen.size()));
  auto out = std::make_shared<Generation>();
  out->episodes.reserve(chosen.size() * static_cast<std::size_t>(copies));
  for (std::size_t p = 0; p < chosen.size(); ++p) {
    if (answers[p].size() != static_cast<std::size_t>(copies))
      broken(std::to_string(answers[p].size()) + " completions", std::to_string(copies));
    const data::TokenizedPrompt& prompt = prompts[chosen[p]];
    const auto row_of = [&](data::DrawnRow& drawn, std::int64_t version) {
      if (!drawn.log_probs.empty() && drawn.log_probs.size() != drawn.ids.size())
        broken(std::to_string(drawn.log_probs.size()) + " log-probs", std::to_string(drawn.ids.size()));
      if (!drawn.loss_mask.empty() && drawn.loss_mask.size() != drawn.ids.size())
        broken(std::to_string(drawn.loss_mask.size()) + " mask entries", std::to_string(drawn.ids.size()));
      data::Row row;
      row.own_prompt = !drawn.prompt_ids.empty();
      row.prompt_ids = row.own_prompt ? std::move(drawn.prompt_ids) : prompt.ids;
      row.completion_ids = std::move(drawn.ids);
      row.loss_mask = std::move(drawn.loss_mask);
      row.sampling_log_probs = std::move(drawn.log_probs);
      row.routed_experts = std::move(drawn.routed_experts);
      row.finish = drawn.finish;
      row.weights_version = drawn.weights_version >= 0 ? drawn.weights_version : version;
      return row;
    };
    for (data::Completion& completion : answers[p]) {
      data::Episode episode;
      episode.dataset_row = prompt.row;
      episode.prompt = prompt.prompt;
      episode.columns = prompt.columns;
      episode.interaction = std::move(completion.interaction);
      if (&completion == &answers[p].front()) {
        episode.answer_ids = prompt.answer_ids;
        episode.answer_mask = prompt.answer_mask;
      }
      episode.first() = row_of(completion, weights_version);
      for (data::DrawnRow& further : completion.further)
        episode.rows.push_back(row_of(further, episode.first().weights_version));
      out->episodes.push_back(std::move(episode));
    }
    out->groups.append(static_cast<std::size_t>(copies));
  }
  return out;
}

// Makes 0/0 read as 0 and vanishes beside any real weight.
inline constexpr double weightless = 1e-300;

// Tokens of a completion, in all its rows, that the model drew.
std::int64_t drawn_tokens(const data::Episode& episode);

// Sets the text of every row.
void decode_rows(data::Episode& episode, const Decode& decode);

// No token of it has a loss.
void mask_all(data::Episode& episode);

// What reward functions see as the completion: text, or the messages after the prompt.
data::Json completion_of(const data::Episode& episode);

// Runs every reward function over all episodes; fills Generation::rewards and Episode::rewards. Of a completion of several
// turns, text is the model's last message, and what the environment gave is the column environment_reward. What a
// function calls failed (RewardLog::failed) has no reward and no loss.
void run_rewards(Generation& generation, std::span<const WeightedReward> rewards, std::int64_t step,
                 RolloutBatch& batch);

// completions/…: lengths in tokens the model drew, end token included. With no terminated completion the terminated
// lengths read 0.
class CompletionLengths {
 public:
  void add(const data::Episode& episode, const Ends& ends);
  void report(core::Metrics& metrics) const;

  // For another rank, and what it makes of that.
  [[nodiscard]] std::vector<double> numbers() const;
  void merge(const std::vector<double>& numbers);

 private:
  double rows_ = 0, sum_ = 0, shortest_ = 0, longest_ = 0;
  double ended_ = 0, ended_sum_ = 0, ended_shortest_ = 0, ended_longest_ = 0;
};

// Of completions of several turns: environment/turns, the model's messages per episode; tools/call_frequency, calls per
// completion; tools/failure_frequency, the part of the calls that was answered with an error.
void episode_metrics(const Generation& generation, core::Metrics& metrics);

// Of a whole generation of episodes, those that failed excepted: rollout/num_turns/mean|min|max; rollout/reward/mean and
// nonzero_frac, the share that is not 0, of the weighted sum where one applies; rollout/n_samples, their number in a
// generation; rollout/rows, rows per episode.
void rollout_metrics(const Generation& generation, core::Metrics& metrics);

// Mean over what applies; the deviation of a whole generation, averaged when several are merged.
void reward_metric(const std::string& mean_name, const std::string& deviation_name, std::span<const double> values,
                   core::Metrics& metrics);

void reward_metrics(const Generation& generation, RolloutBatch& batch);

}  // namespace detail
}  // namespace rlalgo::sampler

#ifndef RLALGO_COMPILED
#include <rlalgo/sampler/detail/score_generation_impl.hpp>
#endif
