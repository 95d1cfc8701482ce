// config::train for the methods on a dataset of preferences: DPO and its kin, KTO, ORPO, SimPO, CPO.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/load_preferences.hpp>
#include <rlalgo/assembly/reference.hpp>
#include <rlalgo/assembly/run_overview.hpp>
#include <rlalgo/config/datasets.hpp>
#include <rlalgo/config/detail/run_model.hpp>
#include <rlalgo/config/detail/training.hpp>
#include <rlalgo/config/fingerprints.hpp>
#include <rlalgo/config/offline.hpp>
#include <rlalgo/config/preference.hpp>
#include <rlalgo/config/ranks.hpp>
#include <rlalgo/run/outside.hpp>

namespace rlalgo::config::detail {

[[nodiscard]] inline assembly::ReferenceConfig reference_of(const RunConfig& c, const RunModel& model) {
  const PreferenceConfig& p = c.preference;
  assembly::ReferenceConfig out{.adapter_start = p.rl_adapter_ref_model.value_or(true)};
  if (p.sync_ref_model) out.follows = {.every = p.ref_model_sync_steps, .mixup = p.ref_model_mixup_alpha};
  if (p.precompute_ref_log_probs)
    out.precomputed = {.batch_size = p.precompute_ref_batch_size.value_or(c.micro_batch_size),
                       .examples_per_step = c.micro_batch_size * c.gradient_accumulation_steps,
                       .evaluation_examples_per_step = c.eval_batch_size.value_or(c.micro_batch_size),
                       .mismatched = needs_mismatched(c),
                       .max_length = p.sequence_len,
                       .ld_alpha = p.ld_alpha,
                       .directory = p.dataset_prepared_path.value_or("last_run_prepared"),
                       .identity = [&] { return assembly::reference_identity(model.named(), model.places()); }};
  return out;
}

template <class Unused>
run::Outcome Training<Unused>::preference(const RunConfig& config, const TrainMessages& messages, OtherTask* task) {
  RunModel model(config, messages, task);
  assembly::PreferenceData data = first_rank_first(*model.world, "preparation of the data", [&] {
    return assembly::load_preferences(preferences_of(config, model.text), model.text, messages.progress);
  });
  messages.note_prepared(data.notes);
  auto settings = offline_config(config, static_cast<std::int64_t>(data.train->examples()), data.evaluation != nullptr);
  run::LoopConfig& loop = settings.trainer.loop;
  assembly::Overview overview = assembly::overview_of(model.text, loop, model.world->size(),
                                                      config.micro_batch_size * config.gradient_accumulation_steps,
                                                      data.train, data.evaluation.get());
  if (model.shows_rows_only(overview)) return {};
  if (data.outside) loop.settings["outside"] = run::to_json(*data.outside);
  model.require_inputs(loop, fingerprints(config, data));

  model.load(settings.trainer);
  model.shard();
  const assembly::ReferenceConfig how = reference_of(config, model);
  const std::shared_ptr<model::Decoder> frozen =
      needs_reference(config) ? assembly::frozen_reference(model.text, how, model.sharding.get()) : nullptr;
  if (model.plans(overview, frozen)) return {};
  assembly::Reference reference = first_rank_first(*model.world, "log-probs of the reference", [&] {
    return assembly::make_reference(how, model.text, frozen, data, messages.progress, model.sharding.get());
  });
  messages.note_prepared(reference.notes);
  auto inputs =
      assembly::offline_inputs(model.text, std::move(data), std::move(reference), model.sharding, model.world);
  return with_preference_loss(config, [&](auto loss) {
    return model.carry_out(trainer::make_offline(settings, std::move(loss), std::move(inputs)));
  });
}

}  // namespace rlalgo::config::detail
