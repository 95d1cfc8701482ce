// Completions whose reward is how their features match those of ground truths (feature/text_matching.hpp): what that adds to a run that
// generates. Of a run that matches nothing each step does nothing.
//
//   MatchedCompletions matched(model, config, prompts)    every prompt has a ground truth; with a likelihood term it is the prompt's answer
//   mask_thoughts(prompts), completion_limit()            prompts are token ids
//   load_apart()                                          before the policy lies on the ranks
//   reward(…)                                             in the place of other rewards
//   on_experience(world)                                  advantages_std, and the file of what was drawn
//
// Errors: those of feature/ground_truths.hpp and assembly/feature_network.hpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/completions.hpp>
#include <rlalgo/assembly/feature_network.hpp>
#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/assembly/load_preferences.hpp>
#include <rlalgo/assembly/matching_texts.hpp>
#include <rlalgo/assembly/prompts.hpp>
#include <rlalgo/assembly/sharding.hpp>
#include <rlalgo/environment/concept.hpp>
#include <rlalgo/feature/ground_truths.hpp>
#include <rlalgo/feature/matching_advantage.hpp>
#include <rlalgo/feature/network.hpp>
#include <rlalgo/feature/text_matching.hpp>
#include <rlalgo/sampler/rollouts_file.hpp>
#include <rlalgo/sampler/weighted_reward.hpp>
#include <rlalgo/trainer/experience.hpp>

namespace rlalgo::assembly {

struct MatchedConfig {
  FeatureNetworkConfig network = {};
  feature::TextMatchingConfig matching = {};
  data::Json kwargs = nullptr;               // variables of the run's chat templates
  RowColumns columns = RowColumns::prompts;  // whose the rows' own are
  // How the assistant goes on in conversations of the dataset; unset: no conversation is carried on.
  std::optional<inference::SamplingConfig> carries_on = {};
  std::uint64_t seed = 0;
  bool answers = false;                          // ground truths are answers, whose likelihood the loss adds
  bool mask_thoughts = false;                    // their thoughts have no likelihood term
  std::optional<double> length_multiplier = {};  // completions are limited to so many times their ground truth
  std::filesystem::path record = {};             // directory of sampler::RolloutsFile; empty: nothing is recorded
};

class MatchedCompletions {
 public:
  // `model` must outlive it. `config` unset: nothing is matched.
  MatchedCompletions(const LanguageModel& model, std::optional<MatchedConfig> config, Prompts& prompts)
      : model_(model), config_(std::move(config)) {
    if (!config_) return;
    truths_ = std::make_shared<feature::GroundTruths>(
        [&model](const std::string& text) { return model.tokenizer.encode(text, false); });
    for (auto* list : {&prompts.train, &prompts.evaluation}) truths_->require(*list, config_->answers);
  }

  void mask_thoughts(Prompts& prompts) const {
    if (!config_ || !config_->mask_thoughts) return;
    for (auto* list : {&prompts.train, &prompts.evaluation})
      feature::mask_thoughts(*list, {.encode = text_tools(model_).encode, .render = {}});
  }

  // Of sampler::RolloutsConfig; empty: there is none.
  [[nodiscard]] std::function<std::int64_t(const data::TokenizedPrompt&)> completion_limit() const {
    if (!config_ || !config_->length_multiplier) return nullptr;
    return feature::limit_by_truth(truths_, *config_->length_multiplier);
  }

  // A network that shares no memory with the policy, before that lies on the ranks: of asynchronous generation it is asked on the
  // thread that generates, where the ranks do not meet, so each has all of it.
  void load_apart() {
    if (config_) network_ = feature_network(config_->network, model_, nullptr, true);
  }

  // Alignment and diversity with their weights, in the place of `rewards`. `completions` must outlive them; `sharding` (or null) holds
  // the policy.
  void reward(std::vector<sampler::WeightedReward>& rewards, Completions& completions,
              const environment::Environments* environments, Sharding* sharding,
              const std::function<void(const std::string&)>& note = {}) {
    if (!config_) return;
    if (!network_) network_ = feature_network(config_->network, model_, sharding);
    const auto say = [&](const std::string& text) {
      if (note && !text.empty()) note(text);
    };
    say(feature::repeated_layers(config_->network.layers, network_->depths()));
    if (environments != nullptr && !environments->reward_name().empty())
      say("rl: ebft: features are the reward; that of " + environments->reward_name() + " has no effect");
    feature::Texts texts = matching_texts(model_, config_->kwargs, config_->columns);
    if (config_->carries_on)
      texts.converse =
          CarriedConversation(model_, completions.generator(), config_->kwargs, *config_->carries_on, config_->seed);
    const feature::MatchingRewards made =
        feature::matching_rewards({std::move(*network_), std::move(texts), config_->matching});
    rewards = {{made.alignment, config_->matching.alignment_coef}, {made.diversity, -config_->matching.diversity_coef}};
  }

  // Of trainer::OnlineInputs; empty: there is none.
  [[nodiscard]] std::function<void(std::int64_t, trainer::Experience<data::EpisodeRow>&)> on_experience(
      const std::shared_ptr<distributed::World>& world) const {
    if (!config_) return nullptr;
    std::shared_ptr<sampler::RolloutsFile> file;
    if (!config_->record.empty() && world->rank() == 0) file = std::make_shared<sampler::RolloutsFile>(config_->record);
    return [file, truths = truths_, matching = config_->matching](std::int64_t step,
                                                                  trainer::Experience<data::EpisodeRow>& batch) {
      feature::add_advantage_spread(batch.rows, batch.metrics);
      if (file != nullptr)
        file->write(
            step, sampler::rollout_records(step, batch.rows, matching.alignment_coef, matching.diversity_coef,
                                           [&](const data::Episode& episode) { return truths->of(episode.columns); }));
    };
  }

 private:
  const LanguageModel& model_;
  std::optional<MatchedConfig> config_;
  std::shared_ptr<feature::GroundTruths> truths_;
  std::optional<feature::FeatureNetwork> network_;
};

}  // namespace rlalgo::assembly
