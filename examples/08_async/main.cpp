// Lesson 8: asynchronous generation. An engine on a copy of the weights draws the next completions on a thread of its
// own; groups that teach nothing are replaced by earlier ones; a correction tells the loss how old the rows are.
//
//   example_08_async MODEL_DIR
#include <iostream>

#include <rlalgo/dapo.hpp>
#include <rlalgo/inference/snapshot_engine.hpp>
#include <rlalgo/loss/sampling_correction.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/optim/adamw_8bit.hpp>
#include <rlalgo/sync/snapshot_weights.hpp>
#include <rlalgo/text/tokenizer.hpp>
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
using Inputs = trainer::OnlineInputs<inference::SnapshotEngine, sync::SnapshotWeights>;

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: example_08_async MODEL_DIR\n";
    return 2;
  }
  const std::shared_ptr<model::Decoder> decoder = model::load_decoder(argv[1]);
  const text::Tokenizer tokenizer = text::Tokenizer::from_directory(argv[1]);
  std::vector<data::TokenizedPrompt> prompts;
  for (const char* text : {"Tom has 3 apples.", "Ann buys 5 pears.", "Bob finds 7 nuts.", "Eve has 2 plums."})
    prompts.push_back({.row = static_cast<std::int64_t>(prompts.size()),
                       .ids = tokenizer.encode(text, false),
                       .prompt = text,
                       .columns = {}});
  // Completions are to be long.
  const auto longer = [](const reward::Sample& s) { return static_cast<double>(s.ids.size()); };

  const auto snapshots = std::make_shared<inference::WeightSnapshots>(decoder->config(), decoder->weights());
  const std::stop_source stop;  // ends the engine when the trainer goes
  inference::SnapshotEngine engine(snapshots, {.threads = 1}, stop.get_token());

  TrainConfig<CorrectedDapo, optim::AdamW8bit> config;
  config.run.rollouts.geometry = {.micro_batch_size = 16, .num_generations = 8};
  config.run.rollouts.sampling = {.max_new_tokens = 24, .stop_ids = {*tokenizer.eos_id()}};
  config.run.trainer.schedule = {.name = "constant", .learning_rate = 3e-4};
  config.run.trainer.loop.max_steps = 20;
  config.run.trainer.loop.output_dir = "async-out";
  // Prefetch<Replay<Reroll<Shared<Rollouts<SnapshotEngine>>>>>: two generations ahead, 16 groups to replay.
  const AsynchronousConfig asynchronous{
      .prefetch = {.depth = 2, .stop = stop}, .replay = {.capacity = 16}, .reroll = {}};
  Inputs inputs{.policy = decoder,
                .generator = engine,
                .prompts = std::move(prompts),
                .rewards = {{"longer", longer}},
                .decode = [&](auto ids) { return tokenizer.decode(ids); },
                .sync = sync::SnapshotWeights(snapshots)};
  return train_async<CorrectedDapo>(config, asynchronous, std::move(inputs)).exit_code();
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
