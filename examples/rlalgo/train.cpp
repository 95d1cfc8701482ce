#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/config/completion_source.hpp>
#include <rlalgo/config/environment.hpp>
#include <rlalgo/config/fingerprints.hpp>
#include <rlalgo/config/load_data.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/online.hpp>
#include <rlalgo/config/parse.hpp>

#include "train_policy_gradient.hpp"
#include "train_preference.hpp"
#include "verbs.hpp"

namespace rlalgo::cli {

namespace {

void tokenize(std::vector<data::TokenizedPrompt>& prompts, const config::LanguageModel& model,
              const config::RunConfig& run, const data::Json& tools) {
  const std::int64_t limit = model.decoder->config().max_position_embeddings;
  for (data::TokenizedPrompt& prompt : prompts) {
    if (!tools.is_null()) config::require_messages(prompt, run);
    prompt.ids = model.encode(prompt.prompt, run.trl.chat_template_kwargs, tools);
    if (static_cast<std::int64_t>(prompt.ids.size()) >= limit)
      core::raise("cli", 5,
                  {.what = "a prompt leaves no room for a completion",
                   .found = std::to_string(prompt.ids.size()) + " tokens",
                   .expected = "fewer than max_position_embeddings = " + std::to_string(limit),
                   .where = "dataset row " + std::to_string(prompt.row),
                   .remedy = "shorten or drop the row"});
  }
}

}  // namespace

int train(const Arguments& arguments) {
  if (arguments.empty() || arguments[0].starts_with("--"))
    core::raise_usage("cli", 4,
                      {.what = "`rlalgo train` needs a configuration file", .expected = "rlalgo train CONFIG.yaml"});
  const std::filesystem::path file = arguments[0];
  const config::RunConfig run = config::load_run_config(file, std::span(arguments).subspan(1));
  for (const std::string& warning : run.warnings) std::cerr << "warning: " << warning << "\n";
  if (config::is_preference(run)) return train_preference(run);

  config::Prompts prompts = config::load_prompts(run);
  for (const std::string& note : prompts.notes) std::cerr << "note: " << note << "\n";
  const auto environments = config::environments(run, config::python_paths(file));
  auto rewards = config::weighted_rewards(run, file, environments.get());
  const config::LanguageModel model = config::load_language_model(run);
  const data::Json tools = environments ? environments->tools() : data::Json();
  tokenize(prompts.train, model, run, tools);
  tokenize(prompts.evaluation, model, run, tools);

  config::CompletionSource source(run, model);
  if (environments)
    source.play(environments,
                config::dialogue(model, run.trl.chat_template_kwargs, tools,
                                 !prompts.train.empty() && prompts.train.front().prompt.is_array()),
                {.max_turns = run.trl.max_turns, .max_length = model.decoder->config().max_position_embeddings});
  trainer::OnlineConfig settings =
      config::online_config(run, model, static_cast<std::int64_t>(prompts.train.size()), !prompts.evaluation.empty());
  settings.trainer.loop.settings.update(config::fingerprints(run, prompts.train, prompts.evaluation));

  const std::shared_ptr<model::Decoder> reference = run.beta != 0.0 ? model.decoder->reference() : nullptr;
  const config::EntropyCoefficient coefficient = config::entropy_coefficient(run);
  const run::Outcome outcome =
      train_policy_gradient(run, settings, coefficient,
                            {.policy = model.decoder,
                             .generator = source.generator(),
                             .prompts = std::move(prompts.train),
                             .rewards = std::move(rewards),
                             .decode = [&](std::span<const data::TokenId> ids) { return model.tokenizer.decode(ids); },
                             .reference = reference,
                             .evaluation_prompts = std::move(prompts.evaluation),
                             .sync = source.sync(),
                             .save_model = [&](const std::filesystem::path& directory) { model.save(directory); },
                             .companions = config::companions(run, coefficient, model, reference)});
  std::cout << (outcome.interrupted ? "interrupted at step " : "done: step ") << outcome.step
            << ", model and report in " << run.output_dir << "\n";
  return outcome.exit_code();
}

}  // namespace rlalgo::cli
