// config::train for strided energy-based fine-tuning.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/feature_network.hpp>
#include <rlalgo/assembly/layout.hpp>
#include <rlalgo/assembly/load_documents.hpp>
#include <rlalgo/assembly/run_overview.hpp>
#include <rlalgo/config/detail/carry_out.hpp>
#include <rlalgo/config/detail/overview_parts.hpp>
#include <rlalgo/config/detail/router_replay.hpp>
#include <rlalgo/config/detail/run_model.hpp>
#include <rlalgo/config/detail/training.hpp>
#include <rlalgo/config/feature_matching.hpp>
#include <rlalgo/config/plan.hpp>
#include <rlalgo/config/trainer_settings.hpp>
#include <rlalgo/inference/block_engine.hpp>
#include <rlalgo/sampler/rollouts_file.hpp>
#include <rlalgo/strided_ebft.hpp>
#include <rlalgo/sync/any_sync.hpp>
#include <rlalgo/sync/shared_weights.hpp>

namespace rlalgo::config::detail {

template <class Unused>
run::Outcome Training<Unused>::strided(const RunConfig& config, const TrainMessages& messages, OtherTask* task) {
  RunModel model(config, messages);
  assembly::Documents documents = assembly::load_documents(documents_of(config), model.text);
  messages.note_all(documents.notes);
  const auto rows = static_cast<std::int64_t>(documents.train.size());
  const Plan plan = make_plan(config, rows, !documents.evaluation.empty());

  using Method = BasicStridedEbft<decltype(matching_estimator(config))>;
  TrainConfig<Method, optim::AnyOptimizer> settings;
  settings.method = {.loss = {.policy = config.ebft.rl_coef, .cross_entropy = config.ebft.ce_coef, .prefix = "ebft/"},
                     .baseline = matching_estimator(config)};
  settings.run.sampling = strided_sampling(config);
  settings.run.evaluation_batch_size = config.eval_batch_size.value_or(0);
  settings.run.trainer = trainer_settings(config, plan, rows, config.rl + " (" + config.ebft.mode + ")");
  run::LoopConfig& loop = settings.run.trainer.loop;
  assembly::Overview overview = assembly::overview_of(model.text, loop, model.world->size(), settings.run.sampling,
                                                      documents.train, documents.evaluation.size());
  if (shows_rows_only(task, messages, overview)) return {};
  model.require_inputs(loop, fingerprints(config, documents), task);

  model.load(settings.run.trainer, task);
  if (config.trl.router_replay != "disabled") refuse_router_replay(config, "blocks of documents are drawn");
  model.shard();
  feature::FeatureNetwork network =
      assembly::feature_network(feature_network_of(config), model.text, model.sharding.get());
  messages.note_some(feature::repeated_layers(config.ebft.feature_layers, network.depths()));
  const std::shared_ptr<model::Decoder>& decoder = model.text.decoder;
  if (plans(overview, config, *decoder, false, task, messages)) return {};
  inference::BlockEngine engine(decoder->config(), decoder->weights());
  assembly::Drawn<inference::BlockEngine, sync::SharedWeights> drawn{
      .sync = sync::SharedWeights({}, [&engine] { engine.release_memory(); })};
  sync::AnySync sync{assembly::Sharded{model.sharding}.policy<false>(drawn)};
  trainer::StridedInputs<inference::BlockEngine, sync::AnySync> inputs{.policy = decoder,
                                                                       .generator = engine,
                                                                       .documents = std::move(documents.train),
                                                                       .network = std::move(network),
                                                                       .evaluation = std::move(documents.evaluation),
                                                                       .sync = sync};
  model.give(inputs);
  if (config.ebft.save_rollouts && model.world->rank() == 0)
    inputs.on_documents = [file = std::make_shared<sampler::RolloutsFile>(config.output_dir),
                           stride = config.ebft.stride](std::int64_t step,
                                                        const std::vector<sampler::StridedDocument>& shown) {
      std::vector<data::Json> lines;
      for (const sampler::StridedDocument& row : shown) lines.push_back(sampler::rollout_record(step, row, stride));
      file->write(step, lines);
    };
  auto trainer = make_trainer<Method>(std::move(settings), std::move(inputs));
  return carry_out(trainer, config, *decoder, task, messages);
}

}  // namespace rlalgo::config::detail
