#include "train_preference.hpp"

#include <iostream>
#include <memory>
#include <span>
#include <utility>

#include <rlalgo/config/fingerprints.hpp>
#include <rlalgo/config/load_preferences.hpp>
#include <rlalgo/config/offline.hpp>
#include <rlalgo/config/preference.hpp>
#include <rlalgo/config/reference.hpp>

#include "row_counter.hpp"

namespace rlalgo::cli {

int train_preference(const config::RunConfig& run) {
  const config::LanguageModel model = config::load_language_model(run);
  RowCounter counter;
  config::PreferenceData data =
      config::load_preferences(run, model, config::text_tools(model, run.trl.chat_template_kwargs), counter.progress());
  counter.end();
  for (const std::string& note : data.notes) std::cerr << "note: " << note << "\n";
  config::Reference reference = config::make_reference(run, model, data, counter.progress());
  counter.end();
  for (const std::string& note : reference.notes) std::cerr << "note: " << note << "\n";
  trainer::OfflineConfig settings =
      config::offline_config(run, static_cast<std::int64_t>(data.train->examples()), data.evaluation != nullptr);
  settings.trainer.loop.settings.update(config::fingerprints(run, data));
  trainer::OfflineInputs inputs{
      .policy = model.decoder,
      .answers = std::move(data.train),
      .reference = std::move(reference.scorer),
      .companions = std::move(reference.companions),
      .evaluation = std::move(data.evaluation),
      .save_model = [&](const std::filesystem::path& directory) { model.save(directory); },
      .decode = [&](std::span<const data::TokenId> ids) { return model.tokenizer.decode(ids, false); }};
  const run::Outcome outcome = config::with_preference_loss(
      run, [&](auto loss) { return trainer::make_offline(settings, std::move(loss), std::move(inputs)).run(); });
  std::cout << (outcome.interrupted ? "interrupted at step " : "done: step ") << outcome.step
            << ", model and report in " << run.output_dir << "\n";
  return outcome.exit_code();
}

}  // namespace rlalgo::cli
