// config::train for strided energy-based fine-tuning.
#pragma once

#include <cstdint>
#include <utility>

#include <rlalgo/assembly/blocks.hpp>
#include <rlalgo/assembly/feature_network.hpp>
#include <rlalgo/assembly/load_documents.hpp>
#include <rlalgo/assembly/run_overview.hpp>
#include <rlalgo/config/detail/router_replay.hpp>
#include <rlalgo/config/detail/run_model.hpp>
#include <rlalgo/config/detail/training.hpp>
#include <rlalgo/config/feature_matching.hpp>
#include <rlalgo/config/plan.hpp>
#include <rlalgo/config/trainer_settings.hpp>
#include <rlalgo/feature/group_estimators.hpp>
#include <rlalgo/sampler/rollouts_file.hpp>
#include <rlalgo/strided_ebft.hpp>

namespace rlalgo::config::detail {

using StridedMethod = BasicStridedEbft<feature::AnyGroupEstimator>;

[[nodiscard]] inline TrainConfig<StridedMethod, optim::AnyOptimizer> strided_config(const RunConfig& c,
                                                                                    std::int64_t rows, bool evaluates) {
  TrainConfig<StridedMethod, optim::AnyOptimizer> out;
  out.method = {.loss = {.policy = c.ebft.rl_coef, .cross_entropy = c.ebft.ce_coef, .prefix = "ebft/"},
                .baseline = matching_estimator(c)};
  out.run.sampling = strided_sampling(c);
  out.run.evaluation_batch_size = c.eval_batch_size.value_or(0);
  out.run.trainer = trainer_settings(c, make_plan(c, rows, evaluates), rows, c.rl + " (" + c.ebft.mode + ")");
  return out;
}

template <class Unused>
run::Outcome Training<Unused>::strided(const RunConfig& config, const TrainMessages& messages, OtherTask* task) {
  RunModel model(config, messages, task);
  assembly::Documents documents = assembly::load_documents(documents_of(config), model.text);
  messages.note_all(documents.notes);
  auto settings =
      strided_config(config, static_cast<std::int64_t>(documents.train.size()), !documents.evaluation.empty());
  run::LoopConfig& loop = settings.run.trainer.loop;
  assembly::Overview overview = assembly::overview_of(model.text, loop, model.world->size(), settings.run.sampling,
                                                      documents.train, documents.evaluation.size());
  if (model.shows_rows_only(overview)) return {};
  model.require_inputs(loop, fingerprints(config, documents));

  model.load(settings.run.trainer);
  if (config.trl.router_replay != "disabled") refuse_router_replay(config, "blocks of documents are drawn");
  model.shard();
  feature::FeatureNetwork network =
      assembly::feature_network(feature_network_of(config), model.text, model.sharding.get());
  messages.note_some(feature::repeated_layers(config.ebft.feature_layers, network.depths()));
  if (model.plans(overview)) return {};
  assembly::Blocks blocks(model.text, model.sharding);
  auto inputs = assembly::strided_inputs(model.text, blocks, std::move(documents), std::move(network), model.sharding,
                                         model.world);
  if (config.ebft.save_rollouts && model.world->rank() == 0)
    inputs.on_documents = sampler::document_records(config.output_dir, config.ebft.stride);
  return model.carry_out(make_trainer<StridedMethod>(std::move(settings), std::move(inputs)));
}

}  // namespace rlalgo::config::detail
