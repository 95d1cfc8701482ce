// config::train for the methods on a dataset of preferences: DPO and its kin, KTO, ORPO, SimPO, CPO.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include <rlalgo/config/detail/carry_out.hpp>
#include <rlalgo/config/detail/overview_parts.hpp>
#include <rlalgo/config/detail/router_balance.hpp>
#include <rlalgo/config/detail/training.hpp>
#include <rlalgo/config/fingerprints.hpp>
#include <rlalgo/config/load_preferences.hpp>
#include <rlalgo/config/model_card.hpp>
#include <rlalgo/config/offline.hpp>
#include <rlalgo/config/preference.hpp>
#include <rlalgo/config/ranks.hpp>
#include <rlalgo/config/reference.hpp>
#include <rlalgo/config/sharding.hpp>

namespace rlalgo::config::detail {

template <class Unused>
run::Outcome Training<Unused>::preference(const RunConfig& config, const TrainMessages& messages, OtherTask* task) {
  const auto prepared = [&](const std::vector<std::string>& notes) {
    if (messages.prepared) messages.prepared();
    if (messages.note)
      for (const std::string& text : notes) messages.note(text);
  };
  const ModelPlaces places = find_model(config);
  check_reference(config, places);
  LanguageModel model = load_text_half(config, places);
  if (messages.note)
    for (const std::string& text : model.notes) messages.note(text);
  const auto world = world_of(config);
  PreferenceData data = first_rank_first(*world, "preparation of the data", [&] {
    return load_preferences(config, model, text_tools(model, config.trl.chat_template_kwargs), messages.progress);
  });
  prepared(data.notes);
  auto settings = offline_config(config, static_cast<std::int64_t>(data.train->examples()), data.evaluation != nullptr);
  Overview overview = overview_of_answers(config, model, settings.trainer.loop, data.train, data.evaluation.get());
  if (shows_rows_only(task, messages, overview)) return {};
  if (data.outside) settings.trainer.loop.settings["outside"] = to_json(*data.outside);
  const data::Json inputs_read = fingerprints(config, data);
  require_same_inputs(*world, inputs_read);
  settings.trainer.loop.settings.update(inputs_read);
  if (!evaluates(task)) run::check_resume(settings.trainer.loop);

  model.card = model_card(config, settings.trainer.loop.max_steps);
  model.decoder = load_decoder(config, places);
  if (task == nullptr)
    if (const std::string text = judge_bits(config, *model.decoder); !text.empty() && messages.note)
      messages.note(text);
  settings.trainer.router_aux_loss_coef = router_aux_loss_coef(config, model.decoder->config());
  const auto sharding = Sharding::convene(config, world, model.decoder->device());
  if (sharding != nullptr) {
    sharding->hold(*model.decoder);
    model.files = sharding->files();
  }
  const std::shared_ptr<model::Decoder> frozen = frozen_reference(config, model, sharding.get());
  if (plans(overview, config, *model.decoder, frozen != nullptr && model.decoder->adapter() == nullptr, task, messages))
    return {};
  Reference reference = first_rank_first(*world, "log-probs of the reference", [&] {
    return make_reference(config, model, frozen, data, messages.progress, sharding.get());
  });
  prepared(reference.notes);
  trainer::OfflineInputs inputs{
      .policy = model.decoder,
      .answers = std::move(data.train),
      .reference = std::move(reference.scorer),
      .companions = std::move(reference.companions),
      .evaluation = std::move(data.evaluation),
      .save_model = [&](const std::filesystem::path& directory) { model.save(directory, model::SavedDtype::computed); },
      .save_output = [&](const std::filesystem::path& directory) { model.save(directory, model.output_dtype); },
      .decode = [&](std::span<const data::TokenId> ids) { return model.tokenizer.decode(ids, false); },
      .world = world,
      .placement = sharding != nullptr ? sharding->placement() : nullptr};
  return with_preference_loss(config, [&](auto loss) {
    auto trainer = trainer::make_offline(settings, std::move(loss), std::move(inputs));
    return carry_out(trainer, config, *model.decoder, task, messages);
  });
}

}  // namespace rlalgo::config::detail
