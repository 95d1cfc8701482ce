// Preference learning put together: a policy that learns from a fixed dataset of answers.
//
// A method (method.hpp) says the loss; this header turns answers, policy and reference into sampler and trainer. The reference is any scorer: a frozen copy, the policy with its adapter off, or nothing
// where the answers bring their reference log-probs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include <rlalgo/advantage/none.hpp>
#include <rlalgo/aggregation/none.hpp>
#include <rlalgo/data/answer_set.hpp>
#include <rlalgo/data/decode.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/sampler/preferences.hpp>
#include <rlalgo/sync/no_sync.hpp>
#include <rlalgo/trainer/companion.hpp>
#include <rlalgo/trainer/method.hpp>
#include <rlalgo/trainer/trainer.hpp>

namespace rlalgo::trainer {

// What the user brings.
struct OfflineInputs {
  std::shared_ptr<model::Policy> policy;
  std::shared_ptr<const data::AnswerSet> answers;
  std::shared_ptr<model::Policy> reference = nullptr;                  // for losses that compare with a reference
  std::vector<std::shared_ptr<Companion>> companions = {};             // a synced reference, controllers
  std::shared_ptr<const data::AnswerSet> evaluation = nullptr;         // held out; none: no evaluation
  std::function<void(const std::filesystem::path&)> save_model = {};   // see Trainer::Parts
  std::function<void(const std::filesystem::path&)> save_output = {};  // see Trainer::Parts
  data::Decode decode = data::ids_as_text;                             // for pairs.json and offending rows
  std::shared_ptr<distributed::World> world = std::make_shared<distributed::World>();
  std::shared_ptr<Placement> placement = {};  // see Trainer::Parts
};

// O: the optimizer (optim/concept.hpp).
template <class O = optim::AdamW>
struct BasicOfflineConfig {
  sampler::PreferencesConfig sampling{};   // `mismatched` follows the loss
  std::int64_t evaluation_batch_size = 0;  // examples per micro-batch of an evaluation; 0 = as in training
  BasicTrainerConfig<O> trainer{};         // steps_per_epoch is taken from the data
};
using OfflineConfig = BasicOfflineConfig<>;

template <loss::RowKind rows, class O>
requires(rows == loss::RowKind::pairs || rows == loss::RowKind::unpaired) struct RunConfigOf<rows, O>
    : std::type_identity<BasicOfflineConfig<O>> {
};

template <class L, class O = optim::AdamW>
using OfflineTrainer = Trainer<L, advantage::None, sampler::Preferences<L::rows>, aggregation::None, sync::NoSync, O>;

template <class O, class L>
[[nodiscard]] OfflineTrainer<L, O> make_offline(BasicOfflineConfig<O> config, L loss, OfflineInputs inputs) {
  using Sampler = sampler::Preferences<L::rows>;
  sampler::PreferencesConfig training = config.sampling;
  training.mismatched = L::needs.mismatched;
  std::shared_ptr<Sampler> evaluation;
  if (inputs.evaluation) {
    sampler::PreferencesConfig held_out = training;
    held_out.shuffle = false;
    // A mismatched completion is of the same step: there a step stays what it is on one rank.
    held_out.gradient_accumulation_steps = training.mismatched ? 1 : inputs.world->groups();
    held_out.count_tokens = false;
    if (config.evaluation_batch_size > 0) held_out.micro_batch_size = config.evaluation_batch_size;
    evaluation = std::make_shared<Sampler>(std::move(inputs.evaluation), held_out);
  }
  auto sampler = std::make_shared<Sampler>(std::move(inputs.answers), training);
  BasicTrainerConfig<O> settings = std::move(config.trainer);
  settings.temperature = 1.0;
  settings.set_epoch(static_cast<double>(sampler->steps()), sampler->last_step_share());
  return OfflineTrainer<L, O>(std::move(settings), {.policy = std::move(inputs.policy),
                                                    .loss = std::move(loss),
                                                    .estimator = {},
                                                    .sampler = std::move(sampler),
                                                    .aggregation = {},
                                                    .sync = {},
                                                    .reference = std::move(inputs.reference),
                                                    .companions = std::move(inputs.companions),
                                                    .evaluation = std::move(evaluation),
                                                    .save_model = std::move(inputs.save_model),
                                                    .save_output = std::move(inputs.save_output),
                                                    .decode = std::move(inputs.decode),
                                                    .world = std::move(inputs.world),
                                                    .placement = std::move(inputs.placement)});
}

namespace detail {

template <class M, class C>
constexpr bool learns_from_answers() {
  if constexpr (trains_with<M, C>())
    return M::Loss::rows == loss::RowKind::pairs || M::Loss::rows == loss::RowKind::unpaired;
  else
    return false;
}
template <class M, class C>
constexpr bool trains_offline() {
  return learns_from_answers<M, C>() && !HasEstimator<M> && !HasAggregation<M>;
}

// The rules of a method whose rows are answers.
template <class M, class C>
struct OfflineRules {
  static_assert(sizeof(TrainRules<M, C>) > 0);
  static_assert(!trains_with<M, C>() || learns_from_answers<M, C>(),
                "rlalgo::train<Method>(config, trainer::OfflineInputs): the inputs are answers of a dataset, and the "
                "method's loss reads other rows; a method that learns from rewards takes trainer::OnlineInputs");
  static_assert(
      !learns_from_answers<M, C>() || trains_offline<M, C>(),
      "rlalgo::train<Method>(config, trainer::OfflineInputs): answers of a dataset have no rewards, so that nobody "
      "would use the method's Estimator or Aggregation: leave them out");
};

}  // namespace detail

// The trainer of a method that learns from answers.
template <class M, class C>
[[nodiscard]] auto make_trainer(C config, OfflineInputs inputs) {
  static_assert(sizeof(detail::OfflineRules<M, C>) > 0);
  if constexpr (detail::trains_offline<M, C>()) {
    auto parts = detail::parts_of<M>(config.method, config.run.sampling);
    return make_offline(std::move(config.run), std::move(parts.loss), std::move(inputs));
  } else {
    return detail::Refused{};
  }
}

}  // namespace rlalgo::trainer

namespace rlalgo {
using trainer::make_trainer;
}  // namespace rlalgo
