// Lesson 8: asynchronous generation. An engine on a copy of the weights draws the next completions on a thread of its
// own; groups that teach nothing are replaced by earlier ones; a correction tells the loss how old the rows are.
//
//   example_08_async MODEL_DIR
#include <iostream>

#include <rlalgo/assembly/completions.hpp>
#include <rlalgo/assembly/prompts.hpp>
#include <rlalgo/dapo.hpp>
#include <rlalgo/loss/sampling_correction.hpp>
#include <rlalgo/optim/adamw_8bit.hpp>
#include <rlalgo/trainer/asynchronous.hpp>

using namespace rlalgo;

// DAPO, corrected for completions of older weights.
struct CorrectedDapo : Dapo {
  using Loss = loss::PolicyGradient<loss::ClippedRatio, loss::TokenRatio, loss::NoKl, loss::GlobalTokenCount,
                                    loss::SamplingCorrection>;
  static trainer::MethodParts<Loss, Estimator, Aggregation> parts(const Config& c) {
    return {
        Loss({.surrogate = c.clip, .weights = {{.unit = loss::Unit::token, .mode = loss::CorrectionMode::truncate}}}),
        Estimator(c.advantage),
        {}};
  }
};

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: example_08_async MODEL_DIR\n";
    return 2;
  }
  const auto model = assembly::LanguageModel::load(argv[1]);
  // Completions are to be long.
  const auto longer = [](const reward::Sample& s) { return static_cast<double>(s.ids.size()); };

  assembly::Completions completions(model, assembly::Engine{.threads = 1}, assembly::Plain(), assembly::Asynchronous());

  TrainConfig<CorrectedDapo, optim::AdamW8bit> config;
  config.run.rollouts.geometry = {.micro_batch_size = 16, .num_generations = 8};
  config.run.rollouts.sampling = {.max_new_tokens = 24, .stop_ids = model.stop_ids};
  config.run.trainer.schedule = {.name = "constant", .learning_rate = 3e-4};
  config.run.trainer.loop.max_steps = 20;
  config.run.trainer.loop.output_dir = "async-out";
  // Prefetch<Replay<Reroll<Shared<Rollouts<SnapshotEngine>>>>>: two generations ahead, 16 groups to replay.
  const AsynchronousConfig asynchronous{
      .prefetch = completions.ahead({.depth = 2}), .replay = {.capacity = 16}, .reroll = {}};
  const data::Json texts = {"Tom has 3 apples.", "Ann buys 5 pears.", "Bob finds 7 nuts.", "Eve has 2 plums."};
  auto inputs = assembly::online_inputs(model, completions, assembly::prompts(model, texts), {{"longer", longer}});
  return train_async<CorrectedDapo>(config, asynchronous, std::move(inputs)).exit_code();
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
