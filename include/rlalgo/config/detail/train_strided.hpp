// config::train for strided energy-based fine-tuning.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/detail/carry_out.hpp>
#include <rlalgo/config/detail/overview_parts.hpp>
#include <rlalgo/config/detail/router_balance.hpp>
#include <rlalgo/config/detail/router_replay.hpp>
#include <rlalgo/config/detail/training.hpp>
#include <rlalgo/config/feature_matching.hpp>
#include <rlalgo/config/fingerprints.hpp>
#include <rlalgo/config/model_card.hpp>
#include <rlalgo/config/plan.hpp>
#include <rlalgo/config/ranks.hpp>
#include <rlalgo/config/sharding.hpp>
#include <rlalgo/config/trainer_settings.hpp>
#include <rlalgo/inference/block_engine.hpp>
#include <rlalgo/sampler/rollouts_file.hpp>
#include <rlalgo/strided_ebft.hpp>
#include <rlalgo/sync/any_sync.hpp>
#include <rlalgo/sync/gathered_weights.hpp>
#include <rlalgo/sync/shared_weights.hpp>

namespace rlalgo::config::detail {

template <class Unused>
run::Outcome Training<Unused>::strided(const RunConfig& config, const TrainMessages& messages, OtherTask* task) {
  const ModelPlaces places = find_model(config);
  LanguageModel model = load_text_half(config, places);
  if (messages.note)
    for (const std::string& text : model.notes) messages.note(text);
  Documents documents = load_documents(config, model);
  if (messages.note)
    for (const std::string& text : documents.notes) messages.note(text);
  const auto rows = static_cast<std::int64_t>(documents.train.size());
  const Plan plan = make_plan(config, rows, !documents.evaluation.empty());

  using Method = BasicStridedEbft<decltype(matching_estimator(config))>;
  TrainConfig<Method, optim::AnyOptimizer> settings;
  settings.method = {.loss = {.policy = config.ebft.rl_coef, .cross_entropy = config.ebft.ce_coef, .prefix = "ebft/"},
                     .baseline = matching_estimator(config)};
  settings.run.sampling = strided_sampling(config);
  settings.run.evaluation_batch_size = config.eval_batch_size.value_or(0);
  settings.run.trainer = trainer_settings(config, plan, rows, config.rl + " (" + config.ebft.mode + ")");
  Overview overview = overview_of_documents(config, model, settings.run.trainer.loop, documents.train,
                                            as_count(documents.evaluation.size()));
  if (shows_rows_only(task, messages, overview)) return {};
  const data::Json inputs_read = fingerprints(config, documents);
  require_same_inputs(*world_of(config), inputs_read);
  settings.run.trainer.loop.settings.update(inputs_read);
  if (!evaluates(task)) run::check_resume(settings.run.trainer.loop);

  model.card = model_card(config, settings.run.trainer.loop.max_steps);
  model.decoder = load_decoder(config, places);
  if (task == nullptr)
    if (const std::string text = judge_bits(config, *model.decoder); !text.empty() && messages.note)
      messages.note(text);
  settings.run.trainer.router_aux_loss_coef = router_aux_loss_coef(config, model.decoder->config());
  if (config.trl.router_replay != "disabled") refuse_router_replay(config, "blocks of documents are drawn");
  const auto world = world_of(config);
  const auto sharding = Sharding::convene(config, world, model.decoder->device());
  if (sharding != nullptr) {
    sharding->hold(*model.decoder);
    model.files = sharding->files();
  }

  feature::FeatureNetwork network = feature_network(config, model, sharding.get());
  if (const std::string text = repeated_layers(config, network); !text.empty() && messages.note) messages.note(text);
  if (plans(overview, config, *model.decoder, false, task, messages)) return {};
  sync::AnySync sync{sync::SharedWeights()};
  if (sharding != nullptr && sharding->weights())
    sync = sync::AnySync(sync::GatheredWeights(sync::SharedWeights(),
                                               [policy = sharding->policy()] { return policy->gather_all(); }, {}));
  inference::BlockEngine engine(model.decoder->config(), model.decoder->weights());
  trainer::StridedInputs<inference::BlockEngine, sync::AnySync> inputs{
      .policy = model.decoder,
      .generator = engine,
      .documents = std::move(documents.train),
      .network = std::move(network),
      .evaluation = std::move(documents.evaluation),
      .sync = sync,
      .save_model = [&](const std::filesystem::path& directory) { model.save(directory, model::SavedDtype::computed); },
      .save_output = [&](const std::filesystem::path& directory) { model.save(directory, model.output_dtype); },
      .decode = [&](std::span<const data::TokenId> ids) { return model.tokenizer.decode(ids, false); },
      .world = world,
      .placement = sharding != nullptr ? sharding->placement() : nullptr};
  if (config.ebft.save_rollouts && world->rank() == 0)
    inputs.on_documents = [file = std::make_shared<sampler::RolloutsFile>(config.output_dir),
                           stride = config.ebft.stride](std::int64_t step,
                                                        const std::vector<sampler::StridedDocument>& shown) {
      std::vector<data::Json> lines;
      for (const sampler::StridedDocument& row : shown) lines.push_back(sampler::rollout_record(step, row, stride));
      file->write(step, lines);
    };
  auto trainer = make_trainer<Method>(std::move(settings), std::move(inputs));
  return carry_out(trainer, config, *model.decoder, task, messages);
}

}  // namespace rlalgo::config::detail
