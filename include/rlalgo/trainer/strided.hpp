// Strided training put together: a policy that continues its documents at every stride and learns from how well that
// matches what stands there.
//
// A method (method.hpp) says the loss and how rewards become advantages (its Estimator is a feature::GroupEstimator); documents,
// generator and feature network become sampler and trainer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <rlalgo/advantage/none.hpp>
#include <rlalgo/aggregation/none.hpp>
#include <rlalgo/data/decode.hpp>
#include <rlalgo/data/document.hpp>
#include <rlalgo/feature/group_estimators.hpp>
#include <rlalgo/feature/network.hpp>
#include <rlalgo/inference/block_generator.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/sampler/strided_blocks.hpp>
#include <rlalgo/sync/shared_weights.hpp>
#include <rlalgo/trainer/companion.hpp>
#include <rlalgo/trainer/method.hpp>
#include <rlalgo/trainer/trainer.hpp>

namespace rlalgo::trainer {

// What the user brings.
template <class G, class Y = sync::SharedWeights>
struct StridedInputs {
  std::shared_ptr<model::Policy> policy;
  G& generator;  // must outlive the trainer
  std::vector<data::Document> documents;
  feature::FeatureNetwork network;                                     // frozen
  std::vector<data::Document> evaluation = {};                         // held out; empty: no evaluation
  Y sync = {};                                                         // how new weights reach the generator
  std::function<void(const std::filesystem::path&)> save_model = {};   // see Trainer::Parts
  std::function<void(const std::filesystem::path&)> save_output = {};  // see Trainer::Parts
  std::vector<std::shared_ptr<Companion>> companions = {};             // see Trainer::Parts
  // Shown the documents of every training step, those without blocks included, before they are trained on.
  std::function<void(std::int64_t step, const std::vector<sampler::StridedDocument>&)> on_documents = {};
  data::Decode decode = data::ids_as_text;  // of the blocks in samples.jsonl
  std::shared_ptr<distributed::World> world = std::make_shared<distributed::World>();
  std::shared_ptr<Placement> placement = {};  // see Trainer::Parts
};

// O: the optimizer (optim/concept.hpp).
template <class O = optim::AdamW>
struct BasicStridedTrainerConfig {
  sampler::StridedConfig sampling{};
  std::int64_t evaluation_batch_size = 0;  // documents per micro-batch of an evaluation; 0 = as in training
  BasicTrainerConfig<O> trainer{};         // temperature and steps_per_epoch are taken from the sampling
};
using StridedTrainerConfig = BasicStridedTrainerConfig<>;

template <class L, class G, class E = feature::LeaveOutPairs, class Y = sync::SharedWeights, class O = optim::AdamW>
using StridedTrainer = Trainer<L, advantage::None, sampler::StridedBlocks<G, E>, aggregation::None, Y, O>;

template <class O, class L, class E, class G, class Y>
[[nodiscard]] StridedTrainer<L, G, E, Y, O> make_strided(BasicStridedTrainerConfig<O> config, L loss, E estimator,
                                                         StridedInputs<G, Y> inputs) {
  using Sampler = sampler::StridedBlocks<G, E>;
  config.sampling.world = inputs.world;
  std::shared_ptr<Sampler> evaluation;
  if (!inputs.evaluation.empty()) {
    sampler::StridedConfig held_out = config.sampling;
    held_out.shuffle = false;
    held_out.gradient_accumulation_steps = 1;
    if (config.evaluation_batch_size > 0) held_out.micro_batch_size = config.evaluation_batch_size;
    // Every document is evaluated: the last batch may not be cut off.
    const auto size = static_cast<std::int64_t>(inputs.evaluation.size());
    while (size % held_out.micro_batch_size != 0) --held_out.micro_batch_size;
    held_out.seed = ~held_out.seed;  // draws of its own: evaluation shares no random number with training
    evaluation =
        std::make_shared<Sampler>(std::move(inputs.evaluation), inputs.generator, inputs.network, estimator, held_out);
  }
  auto sampler = std::make_shared<Sampler>(std::move(inputs.documents), inputs.generator, std::move(inputs.network),
                                           std::move(estimator), config.sampling);
  BasicTrainerConfig<O> settings = std::move(config.trainer);
  settings.temperature = config.sampling.temperature > 0 ? config.sampling.temperature : 1.0;
  settings.set_epoch(static_cast<double>(sampler->steps()), sampler->last_step_share());
  std::function<void(std::int64_t, Experience<sampler::StridedDocument>&)> show;
  if (inputs.on_documents)
    show = [on_documents = std::move(inputs.on_documents), sampler](std::int64_t step, auto&) {
      on_documents(step, sampler->latest());
    };
  return StridedTrainer<L, G, E, Y, O>(std::move(settings), {.policy = std::move(inputs.policy),
                                                             .loss = std::move(loss),
                                                             .estimator = {},
                                                             .sampler = std::move(sampler),
                                                             .aggregation = {},
                                                             .sync = std::move(inputs.sync),
                                                             .companions = std::move(inputs.companions),
                                                             .evaluation = std::move(evaluation),
                                                             .save_model = std::move(inputs.save_model),
                                                             .save_output = std::move(inputs.save_output),
                                                             .on_experience = std::move(show),
                                                             .decode = std::move(inputs.decode),
                                                             .world = std::move(inputs.world),
                                                             .placement = std::move(inputs.placement)});
}

namespace detail {

template <class C>
concept SamplesStrides = requires(C config) {
  config.run.sampling.stride;
};

template <class M, class C>
constexpr bool continues_documents() {
  if constexpr (trains_with<M, C>())
    return feature::GroupEstimator<EstimatorOf<M>> && SamplesStrides<C>;
  else
    return false;
}
template <class M, class C>
constexpr bool trains_strided() {
  return continues_documents<M, C>() && !HasAggregation<M>;
}

// The rules of a method whose rows are strided blocks.
template <class M, class C>
struct StridedRules {
  static_assert(sizeof(TrainRules<M, C>) > 0);
  static_assert(!trains_with<M, C>() || continues_documents<M, C>(),
                "rlalgo::train<Method>(config, trainer::StridedInputs): the inputs are documents, which a method reads "
                "whose Estimator is a feature::GroupEstimator and whose Run is trainer::BasicStridedTrainerConfig "
                "(rlalgo::StridedEbft): is one missing, or misspelt?");
  static_assert(
      !continues_documents<M, C>() || trains_strided<M, C>(),
      "rlalgo::train<Method>(config, trainer::StridedInputs): blocks of documents have one reward each, so that nobody "
      "would use the method's Aggregation: leave it out");
};

}  // namespace detail

// The trainer of a method that continues documents.
template <class M, class C, class G, class Y>
[[nodiscard]] auto make_trainer(C config, StridedInputs<G, Y> inputs) {
  static_assert(sizeof(detail::StridedRules<M, C>) > 0);
  if constexpr (detail::trains_strided<M, C>()) {
    auto parts = detail::parts_of<M>(config.method, config.run.sampling);
    return make_strided(std::move(config.run), std::move(parts.loss), std::move(parts.estimator), std::move(inputs));
  } else {
    return detail::Refused{};
  }
}

}  // namespace rlalgo::trainer

namespace rlalgo {
using trainer::make_trainer;
}  // namespace rlalgo
