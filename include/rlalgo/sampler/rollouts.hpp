// The sampler of online RL: prompts → completions of the current policy → rewards → the rows of one optimizer step.
//
// A generation serves S·μ micro-steps (sampler/geometry.hpp); next(k) cuts the rows of optimizer step k into
// micro-batches and generates whenever the next micro-step needs a generation that is not there. Everything that is
// random is a function of (seed, generation number, completion index, token position).
// Source: TRL `GRPOTrainer` (buffering, masks, metric names). stop ids: every end id counts, as in TRL 1.16.
// Departure: rows keep the order of their groups; TRL permutes them at random before cutting micro-batches. All
// denominators are counts over the optimizer step, so the split does not matter, and a group's prompt is encoded once.
// State: the number of the generation under way, the rows that are still to be trained on (ids, log-probs, advantages,
// bit for bit) and the running token count; what follows from config and dataset is not stored.
// Metrics of a fresh generation: num_tokens, completions/*, rewards/<name>/mean|std, reward, reward_std, and what reward
// functions log. min/max merge as minimum and maximum, where TRL averages them over generations.
// Errors: [rlalgo.sampler.1–5] see repeat_order.hpp and geometry.hpp, [rlalgo.sampler.6] the generator broke its
// contract, [rlalgo.sampler.7] a checkpoint of another run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/clock.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/sampler/detail/generation_state.hpp>
#include <rlalgo/sampler/detail/score_generation.hpp>
#include <rlalgo/sampler/geometry.hpp>
#include <rlalgo/sampler/repeat_order.hpp>
#include <rlalgo/sampler/rollout_rows.hpp>

namespace rlalgo::sampler {

struct RolloutsConfig {
  Geometry geometry;
  std::uint64_t seed = 42;
  bool shuffle = true;                      // permute the prompts anew each epoch
  inference::SamplingConfig sampling;       // sampling.stop_ids also decide what counts as terminated
  bool mask_truncated_completions = false;  // completions without an end token carry no loss
  bool count_tokens = true;                 // report num_tokens; evaluation does not
  // Tokens that the completions of a prompt may take, where prompts differ: the largest of a generation is the limit of
  // all its completions, below sampling.max_new_tokens.
  std::function<std::int64_t(const data::TokenizedPrompt&)> completion_limit = {};
};

template <class G>
class Rollouts {
  static_assert(inference::Generator<G>,
                "sampler::Rollouts<Generator>: not an inference::Generator; it needs a constexpr `weights` and "
                "`generate(std::span<const Request>, const SamplingConfig&, DrawKey)` (inference::LocalEngine is one)");

 public:
  using Config = RolloutsConfig;
  using Batch = RolloutBatch;
  using Rows = RolloutRows;
  using Generator = G;

  // `weights_version` is asked before each generation; `generator` must outlive the sampler.
  Rollouts(std::vector<data::TokenizedPrompt> prompts, G& generator, std::vector<WeightedReward> rewards, Decode decode,
           RolloutsConfig config, std::function<std::int64_t()> weights_version)
      : prompts_(std::move(prompts)),
        generator_(&generator),
        rewards_(std::move(rewards)),
        decode_(std::move(decode)),
        config_(checked(std::move(config))),
        weights_version_(std::move(weights_version)),
        order_({.prompts = prompts_.size(),
                .prompts_per_chunk = static_cast<std::size_t>(config_.geometry.prompts()),
                .copies = static_cast<std::size_t>(config_.geometry.num_generations),
                .repeats = static_cast<std::size_t>(config_.geometry.micro_steps()),
                .shuffle = config_.shuffle,
                .seed = config_.seed}) {}

  [[nodiscard]] const RolloutsConfig& config() const noexcept { return config_; }
  [[nodiscard]] const Geometry& geometry() const noexcept { return config_.geometry; }
  [[nodiscard]] std::int64_t dataset_size() const noexcept { return static_cast<std::int64_t>(prompts_.size()); }
  // Optimizer steps of one pass over the dataset.
  [[nodiscard]] std::int64_t steps() const { return geometry().steps(dataset_size(), 1.0); }
  // Whether next(step) will ask the generator.
  [[nodiscard]] bool needs_weights(std::int64_t step) const {
    const std::int64_t first = step * geometry().gradient_accumulation_steps;
    const std::int64_t last = first + geometry().gradient_accumulation_steps - 1;
    return !current_ || geometry().generation_of(first) != current_number_ ||
           geometry().generation_of(last) != current_number_;
  }

  // An exception of the generator or of a reward leaves the sampler as it was.
  Batch next(std::int64_t step) {
    const auto before = std::tuple(current_, current_number_, num_tokens_);
    try {
      return cut(step);
    } catch (...) {
      std::tie(current_, current_number_, num_tokens_) = before;
      throw;
    }
  }

  [[nodiscard]] nlohmann::ordered_json state() const {
    const Geometry& g = config_.geometry;
    nlohmann::ordered_json out = detail::fingerprint(config_.geometry, config_.seed, config_.shuffle, prompts_.size());
    out["next_step"] = next_step_;
    out["num_tokens"] = num_tokens_;
    const bool unfinished = current_ && g.generation_of(next_step_ * g.gradient_accumulation_steps) == current_number_;
    out["generation"] = unfinished ? detail::pack_generation(*current_, current_number_) : nlohmann::ordered_json();
    return out;
  }

  void restore(const nlohmann::ordered_json& state) {
    try {
      restore_checked(state);
    } catch (const nlohmann::json::exception& e) {
      detail::raise_state("the state is damaged", e.what());
    }
  }

 private:
  // The rows of optimizer step `step`, generated where they are not there.
  Batch cut(std::int64_t step) {
    const Geometry& g = config_.geometry;
    Batch batch;
    batch.seconds = {{"generate", 0.0}, {"reward", 0.0}};
    for (const WeightedReward& reward : rewards_) batch.reward_names.push_back(reward.function->name());
    for (std::int64_t j = 0; j < g.gradient_accumulation_steps; ++j) {
      const std::int64_t micro_step = step * g.gradient_accumulation_steps + j;
      const std::int64_t number = g.generation_of(micro_step);
      if (!current_ || current_number_ != number) {
        current_ = generate(number, step, batch);
        current_number_ = number;
      }
      if (batch.owners.empty() || batch.owners.back() != current_) batch.owners.push_back(current_);
      std::vector<data::Rollout*> part;
      const std::int64_t begin = g.slice_of(micro_step) * g.micro_batch_size;
      for (std::int64_t i = begin; i < begin + g.micro_batch_size; ++i)
        part.push_back(&current_->rollouts[static_cast<std::size_t>(i)]);
      batch.parts.push_back(std::move(part));
    }
    next_step_ = step + 1;
    return batch;
  }

  static RolloutsConfig checked(RolloutsConfig config) {
    config.geometry.check(1);
    return config;
  }

  void restore_checked(const nlohmann::ordered_json& state) {
    detail::check_fingerprint(state,
                              detail::fingerprint(config_.geometry, config_.seed, config_.shuffle, prompts_.size()));
    const auto next_step = state.at("next_step").get<std::int64_t>();
    const auto num_tokens = state.at("num_tokens").get<std::int64_t>();
    std::shared_ptr<Generation> current;
    std::int64_t number = -1;
    if (const auto& packed = state.at("generation"); !packed.is_null()) {
      number = packed.at("number").get<std::int64_t>();
      const Geometry& g = config_.geometry;
      if (next_step < 0 || number != g.generation_of(next_step * g.gradient_accumulation_steps))
        detail::raise_state("a generation that the next step does not use", std::to_string(number));
      current = detail::unpack_generation(packed, prompts_, order_.chunk(static_cast<std::uint64_t>(number)),
                                          config_.geometry.num_generations);
      for (data::Rollout& r : current->rollouts) r.text = decode_(r.completion_ids);
    }
    next_step_ = next_step;
    num_tokens_ = num_tokens;
    current_ = std::move(current);
    current_number_ = number;
  }

  [[nodiscard]] inference::SamplingConfig sampling_of(const std::vector<std::size_t>& chosen) const {
    inference::SamplingConfig out = config_.sampling;
    if (!config_.completion_limit) return out;
    std::int64_t limit = 1;
    for (const std::size_t i : chosen) limit = std::max(limit, config_.completion_limit(prompts_[i]));
    out.max_new_tokens = std::min(out.max_new_tokens, limit);
    return out;
  }

  std::shared_ptr<Generation> generate(std::int64_t number, std::int64_t step, Batch& batch) {
    const core::Stopwatch watch;
    const std::vector<std::size_t> chosen = order_.chunk(static_cast<std::uint64_t>(number));
    auto generation = detail::generate(*generator_, std::span<const data::TokenizedPrompt>(prompts_), chosen,
                                       config_.geometry.num_generations, sampling_of(chosen),
                                       {config_.seed, static_cast<std::uint64_t>(number)}, weights_version_());
    batch.seconds[0].second += watch.seconds();
    std::int64_t tokens = 0;
    for (const data::Rollout& r : generation->rollouts)
      tokens += static_cast<std::int64_t>(r.prompt_ids.size()) + detail::drawn_tokens(r);
    if (config_.count_tokens) batch.metrics.last("num_tokens", static_cast<double>(num_tokens_ + tokens));
    batch.seconds[1].second += detail::score(*generation, rewards_, decode_, config_.sampling.stop_ids,
                                             config_.mask_truncated_completions, step, batch);
    num_tokens_ += tokens;
    batch.fresh.push_back(generation);
    return generation;
  }

  std::vector<data::TokenizedPrompt> prompts_;
  G* generator_;
  std::vector<WeightedReward> rewards_;
  Decode decode_;
  RolloutsConfig config_;
  std::function<std::int64_t()> weights_version_;
  RepeatOrder order_;

  std::shared_ptr<Generation> current_;
  std::int64_t current_number_ = -1;
  std::int64_t next_step_ = 0;
  std::int64_t num_tokens_ = 0;
};

}  // namespace rlalgo::sampler
