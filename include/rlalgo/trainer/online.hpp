// Online RL put together: a policy that generates its own training data, scored by reward functions.
//
// A method (method.hpp) says loss, estimator and aggregation; this header turns prompts, generator and rewards into the
// sampler, the sync policy and the trainer. make_online takes the parts as values.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <rlalgo/data/decode.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/sampler/rollouts.hpp>
#include <rlalgo/sampler/shared.hpp>
#include <rlalgo/sync/shared_weights.hpp>
#include <rlalgo/trainer/method.hpp>
#include <rlalgo/trainer/trainer.hpp>

namespace rlalgo::trainer {

// In the place of a reference: for methods that compare with none.
struct NoReference {
  operator std::shared_ptr<model::Policy>() const { return nullptr; }
};

// What the user brings. Y must reach the weights that G draws from (sync/concept.hpp).
template <class G, class Y = sync::SharedWeights, class R = NoReference>
struct OnlineInputs {
  static_assert(inference::Generator<G>,
                "the generator is not an inference::Generator; it needs a constexpr `weights` (an "
                "inference::WeightSource) and `std::vector<std::vector<data::Completion>> generate(std::span<const "
                "Request>, const SamplingConfig&, DrawKey)` (inference::LocalEngine is one)");
  static_assert(sync::Pairing<Y, G>::fits, "trainer::OnlineInputs: generator and sync policy do not fit, see above");

  std::shared_ptr<model::Policy> policy;
  G& generator;  // must outlive the trainer
  std::vector<data::TokenizedPrompt> prompts;
  std::vector<sampler::WeightedReward> rewards;
  data::Decode decode = data::ids_as_text;
  R reference = {};                                            // for methods with a KL penalty: a policy that stays
  std::vector<data::TokenizedPrompt> evaluation_prompts = {};  // held out; empty: no evaluation
  Y sync = {};  // how new weights reach the generator; default: it reads the policy's own tensors
  std::function<void(const std::filesystem::path&)> save_model = {};                    // see Trainer::Parts
  std::function<void(const std::filesystem::path&)> save_output = {};                   // see Trainer::Parts
  std::vector<std::shared_ptr<Companion>> companions = {};                              // see Trainer::Parts
  std::function<void(std::int64_t, Experience<data::EpisodeRow>&)> on_experience = {};  // see Trainer::Parts
  std::shared_ptr<distributed::World> world = std::make_shared<distributed::World>();
  std::shared_ptr<Placement> placement = {};  // see Trainer::Parts
};

// Settings of the sampling side. O: the optimizer (optim/concept.hpp).
template <class O = optim::AdamW>
struct BasicOnlineConfig {
  sampler::RolloutsConfig rollouts{};
  std::int64_t evaluation_generations = 0;  // completions per held-out prompt; 0 = as in training
  std::int64_t evaluation_batch_size = 0;   // rows per micro-batch of an evaluation; 0 = as in training
  BasicTrainerConfig<O> trainer{};          // temperature and steps_per_epoch are taken from the rollouts
};
using OnlineConfig = BasicOnlineConfig<>;

template <class O>
struct RunConfigOf<loss::RowKind::samples, O> : std::type_identity<BasicOnlineConfig<O>> {};

template <class G>
using SharedRollouts = sampler::Shared<sampler::Rollouts<G>>;
template <class L, class A, class G, class Aggregation, class Y = sync::SharedWeights, class O = optim::AdamW>
using OnlineTrainer = Trainer<L, A, SharedRollouts<G>, Aggregation, Y, O>;

enum class SamplerPurpose { training, evaluation };

namespace detail {

// L: a loss::Loss.
template <class L, class R>
constexpr bool has_reference() {
  return !L::needs.reference_log_prob || !std::same_as<R, NoReference>;
}

// A loss that compares with a reference has one.
template <class L, class R>
struct ReferenceRule {
  static_assert(has_reference<L, R>(),
                "the loss compares with a reference model (a KL penalty), and the inputs have none: give "
                "OnlineInputs::reference (decoder->reference(), or any model::Policy that stays as it is), or take a "
                "loss without the penalty (loss::NoKl)");
};

}  // namespace detail

// `combine(rollouts, purpose)`: what stands around the plain sampler, as a shared pointer; of one type for both purposes.
template <class O, class L, class A, class Aggregation, class G, class Y, class R, class Combine>
[[nodiscard]] auto make_online(BasicOnlineConfig<O> config, L loss, A estimator, Aggregation aggregation,
                               OnlineInputs<G, Y, R> inputs, Combine&& combine) {
  using S =
      typename std::invoke_result_t<Combine&, std::shared_ptr<sampler::Rollouts<G>>, SamplerPurpose>::element_type;
  if constexpr (loss::Loss<L>) static_assert(sizeof(detail::ReferenceRule<L, R>) > 0);
  static_assert(std::convertible_to<R, std::shared_ptr<model::Policy>>,
                "OnlineInputs::reference is no std::shared_ptr to a model::Policy");
  sync::require_reach(inputs.sync, inputs.generator);
  const auto rollouts = [&](std::vector<data::TokenizedPrompt> prompts, const sampler::RolloutsConfig& settings,
                            SamplerPurpose purpose) {
    return combine(std::make_shared<sampler::Rollouts<G>>(std::move(prompts), inputs.generator, inputs.rewards,
                                                          inputs.decode, settings, inputs.sync.version_source()),
                   purpose);
  };
  const sampler::Geometry& g = config.rollouts.geometry;
  std::shared_ptr<S> evaluation;
  if (!inputs.evaluation_prompts.empty()) {
    sampler::RolloutsConfig settings = config.rollouts;
    const std::int64_t copies = config.evaluation_generations > 0 ? config.evaluation_generations : g.num_generations;
    const std::int64_t rows = config.evaluation_batch_size > 0 ? config.evaluation_batch_size : g.micro_batch_size;
    settings.geometry =
        sampler::Geometry::evaluation(static_cast<std::int64_t>(inputs.evaluation_prompts.size()), copies, rows);
    settings.shuffle = false;
    settings.count_tokens = false;
    settings.seed = ~settings.seed;  // draws of its own: evaluation shares no random number with training
    evaluation = rollouts(std::move(inputs.evaluation_prompts), settings, SamplerPurpose::evaluation);
  }
  BasicTrainerConfig<O> settings = std::move(config.trainer);
  const double temperature = config.rollouts.sampling.temperature;
  settings.temperature = temperature > 0 ? temperature : 1.0;  // greedy completions are scored as they are
  settings.score_rows = g.micro_batch_size;
  const auto size = static_cast<std::int64_t>(inputs.prompts.size());
  settings.set_epoch(static_cast<double>(g.micro_steps_per_epoch(size)) /
                     static_cast<double>(g.gradient_accumulation_steps));
  auto sampler = rollouts(std::move(inputs.prompts), config.rollouts, SamplerPurpose::training);
  return Trainer<L, A, S, Aggregation, Y, O>(std::move(settings), {.policy = std::move(inputs.policy),
                                                                   .loss = std::move(loss),
                                                                   .estimator = std::move(estimator),
                                                                   .sampler = std::move(sampler),
                                                                   .aggregation = std::move(aggregation),
                                                                   .sync = std::move(inputs.sync),
                                                                   .reference = std::move(inputs.reference),
                                                                   .companions = std::move(inputs.companions),
                                                                   .evaluation = std::move(evaluation),
                                                                   .save_model = std::move(inputs.save_model),
                                                                   .save_output = std::move(inputs.save_output),
                                                                   .on_experience = std::move(inputs.on_experience),
                                                                   .decode = std::move(inputs.decode),
                                                                   .world = inputs.world,
                                                                   .placement = inputs.placement});
}

template <class O, class L, class A, class Aggregation, class G, class Y, class R>
[[nodiscard]] OnlineTrainer<L, A, G, Aggregation, Y, O> make_online(BasicOnlineConfig<O> config, L loss, A estimator,
                                                                    Aggregation aggregation,
                                                                    OnlineInputs<G, Y, R> inputs) {
  return make_online(
      std::move(config), std::move(loss), std::move(estimator), std::move(aggregation), std::move(inputs),
      [world = inputs.world](std::shared_ptr<sampler::Rollouts<G>> rollouts, SamplerPurpose) {
        return std::make_shared<SharedRollouts<G>>(sampler::SharedConfig{.world = world}, std::move(rollouts));
      });
}

namespace detail {

template <class M, class C>
constexpr bool learns_from_rewards() {
  if constexpr (trains_with<M, C>())
    return advantage::AdvantageEstimator<EstimatorOf<M>> &&
           aggregation::AggregationFor<AggregationOf<M>, EstimatorOf<M>>;
  else
    return false;
}
template <class M, class C, class R>
constexpr bool trains_online() {
  if constexpr (learns_from_rewards<M, C>())
    return has_reference<typename M::Loss, R>();
  else
    return false;
}

template <class M, class R, bool rewarded>
struct RewardedRules {};
template <class M, class R>
struct RewardedRules<M, R, true> : ReferenceRule<typename M::Loss, R> {};

// The rules of a method whose rows are completions with rewards.
template <class M, class C, class R>
struct OnlineRules : RewardedRules<M, R, learns_from_rewards<M, C>()> {
  static_assert(sizeof(TrainRules<M, C>) > 0);
  static_assert(
      !trains_with<M, C>() || learns_from_rewards<M, C>(),
      "rlalgo::train<Method>(config, trainer::OnlineInputs): the inputs are those of a method that learns from "
      "rewards, which needs `using Estimator = …;` (advantage::GroupRelative is one) and `using Aggregation = …;` for "
      "it "
      "(aggregation::SumThenNormalize is one): is one missing, or misspelt? A method that learns from answers takes "
      "trainer::OfflineInputs");
};

}  // namespace detail

// The trainer of a method that learns from the rewards of completions.
template <class M, class C, class G, class Y, class R>
[[nodiscard]] auto make_trainer(C config, OnlineInputs<G, Y, R> inputs) {
  static_assert(sizeof(detail::OnlineRules<M, C, R>) > 0);
  if constexpr (detail::trains_online<M, C, R>()) {
    auto parts = detail::parts_of<M>(config.method, config.run.rollouts);
    return make_online(std::move(config.run), std::move(parts.loss), std::move(parts.estimator),
                       std::move(parts.aggregation), std::move(inputs));
  } else {
    return detail::Refused{};
  }
}

}  // namespace rlalgo::trainer

namespace rlalgo {
using trainer::make_trainer;
}  // namespace rlalgo
