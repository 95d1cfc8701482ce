// What matching features adds to a run that generates: ground truths, the frozen network, rewards and a file of what was drawn. Of
// other methods each step does nothing.
//
// Errors: those of feature/ground_truths.hpp and assembly/feature_network.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/completions.hpp>
#include <rlalgo/assembly/feature_network.hpp>
#include <rlalgo/assembly/load_preferences.hpp>
#include <rlalgo/assembly/prompts.hpp>
#include <rlalgo/config/detail/run_model.hpp>
#include <rlalgo/config/detail/training.hpp>
#include <rlalgo/config/feature_matching.hpp>
#include <rlalgo/config/online.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/environment/concept.hpp>
#include <rlalgo/feature/ground_truths.hpp>
#include <rlalgo/feature/matching_advantage.hpp>
#include <rlalgo/feature/network.hpp>
#include <rlalgo/sampler/rollouts_file.hpp>
#include <rlalgo/sampler/weighted_reward.hpp>

namespace rlalgo::config::detail {

class MatchingRun {
 public:
  // What is given must outlive it.
  MatchingRun(const RunConfig& config, RunModel& model, const TrainMessages& messages)
      : config_(config), model_(model), messages_(messages), truths_(ground_truths(config, model.text)) {}

  // Every prompt has a ground truth; with a likelihood term it becomes the prompt's answer.
  void require_truths(assembly::Prompts& prompts) const {
    if (truths_ == nullptr) return;
    for (auto* list : {&prompts.train, &prompts.evaluation}) truths_->require(*list, config_.ebft.ce_coef > 0);
  }
  // Of prompts that are tokenized.
  void mask_thoughts(assembly::Prompts& prompts) const {
    if (!config_.ebft.mask_thinking_ce) return;
    for (auto* list : {&prompts.train, &prompts.evaluation})
      feature::mask_thoughts(*list, {.encode = assembly::text_tools(model_.text).encode, .render = {}});
  }
  [[nodiscard]] std::function<std::int64_t(const data::TokenizedPrompt&)> completion_limit() const {
    return config::completion_limit(config_, truths_);
  }

  // Before the policy lies on the ranks. Of asynchronous generation the network is asked on the thread that generates, where the
  // ranks do not meet: each has all of it.
  void load_apart() {
    if (truths_ != nullptr && config_.trl.generates_beside() && model_.sharding != nullptr)
      network_ = assembly::feature_network(feature_network_of(config_), model_.text, nullptr, true);
  }

  // In the place of other rewards.
  void reward(std::vector<sampler::WeightedReward>& rewards, assembly::Completions& completions,
              const environment::Environments* environments) {
    if (truths_ == nullptr) return;
    if (!network_)
      network_ = assembly::feature_network(feature_network_of(config_), model_.text, model_.sharding.get());
    messages_.note_some(feature::repeated_layers(config_.ebft.feature_layers, network_->depths()));
    if (environments != nullptr && !environments->reward_name().empty())
      messages_.note_some("rl: ebft: features are the reward; that of " + environments->reward_name() +
                          " has no effect");
    rewards = matching_rewards(config_, model_.text, std::move(*network_), completions.generator(),
                               sampling(config_, model_.text.stop_ids));
  }

  // What is done with every training batch; empty: nothing.
  [[nodiscard]] std::function<void(std::int64_t, trainer::Experience<data::EpisodeRow>&)> on_experience() const {
    if (truths_ == nullptr) return nullptr;
    return [file = std::make_shared<sampler::RolloutsFile>(config_.output_dir), &config = config_, truths = truths_,
            world = model_.world](std::int64_t step, trainer::Experience<data::EpisodeRow>& batch) {
      feature::add_advantage_spread(batch.rows, batch.metrics);
      if (!config.ebft.save_rollouts || world->rank() > 0) return;
      file->write(step,
                  sampler::rollout_records(step, batch.rows, config.ebft.alignment_coef, config.ebft.diversity_coef,
                                           [&](const data::Episode& episode) { return truths->of(episode.columns); }));
    };
  }

 private:
  const RunConfig& config_;
  RunModel& model_;
  const TrainMessages& messages_;
  std::shared_ptr<feature::GroundTruths> truths_;  // null: the method matches no features
  std::optional<feature::FeatureNetwork> network_;
};

}  // namespace rlalgo::config::detail
