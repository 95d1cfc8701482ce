// Lesson 5: completions of several turns. An environment is any struct with reset and step; assembly::Turns puts it between
// who draws and the trainer, and only the model's own tokens are trained on.
//
//   example_05_environment MODEL_DIR   (a hidden number, "higher" or "lower", up to four guesses)
#include <charconv>
#include <iostream>

#include <rlalgo/assembly/completions.hpp>
#include <rlalgo/assembly/dialogue.hpp>
#include <rlalgo/assembly/prompts.hpp>
#include <rlalgo/environment/concept.hpp>
#include <rlalgo/grpo.hpp>
#include <rlalgo/reward/column.hpp>

namespace {

using namespace rlalgo;

struct GuessingGame {
  environment::Json reset(const environment::Json& row, std::uint64_t /*seed*/) {
    hidden = row.at("hidden").get<int>();
    guesses = 0;
    return nullptr;  // nothing to add to the prompt
  }

  environment::Turn step(const std::string& text) {
    ++guesses;
    int guess = 0;
    const std::size_t digit = text.find_first_of("123456789");
    if (digit != std::string::npos) std::from_chars(text.data() + digit, text.data() + text.size(), guess);
    if (guess == hidden) return {.reward = 1.0 - 0.15 * (guesses - 1), .done = true};
    if (guess < 1 || guess > 9 || guesses == 4) return {.done = true};
    return {.observation = guess < hidden ? " higher:" : " lower:"};
  }

  int hidden = 0, guesses = 0;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: example_05_environment MODEL_DIR\n";
    return 2;
  }
  const auto model = assembly::LanguageModel::load(argv[1]);
  data::Json rows;
  for (int hidden = 1; hidden <= 9; ++hidden)
    rows.push_back({{"prompt", "Guess a number from 1 to 9:"}, {"hidden", hidden}});

  // This process draws; a completion is a conversation, in which what the environment says follows as plain text.
  assembly::Completions game(model, assembly::Engine(),
                             assembly::Turns{.environments = environment::each<GuessingGame>("game"),
                                             .dialogues = {assembly::dialogue(model, {.messages = false})}});

  TrainConfig<Grpo> config;
  config.run.rollouts.geometry = {.micro_batch_size = 144, .num_generations = 16};
  config.run.rollouts.sampling = {.max_new_tokens = 64, .stop_ids = model.stop_ids};
  config.run.trainer.schedule = {.name = "cosine", .learning_rate = 5e-4};
  config.run.trainer.loop.max_steps = 60;
  config.run.trainer.loop.output_dir = "game-out";
  config.run.trainer.loop.signals = true;  // Ctrl-C ends the step, saves and ends the run
  return train<Grpo>(config, assembly::online_inputs(model, game, assembly::prompts(model, rows),
                                                     {reward::column("game", "environment_reward")}))
      .exit_code();
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
