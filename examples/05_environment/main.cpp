// Lesson 5: completions of several turns. An environment is any struct with reset and step; MultiTurn puts it between
// the generator and the trainer, and only the model's own tokens are trained on.
//
//   example_05_environment MODEL_DIR   (a hidden number, "higher" or "lower", up to four guesses)
#include <charconv>
#include <iostream>

#include <rlalgo/environment/concept.hpp>
#include <rlalgo/grpo.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/inference/multi_turn.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/reward/column.hpp>
#include <rlalgo/text/tokenizer.hpp>

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
  const std::shared_ptr<model::Decoder> decoder = model::load_decoder(argv[1]);
  const text::Tokenizer tokenizer = text::Tokenizer::from_directory(argv[1]);
  const std::string ask = "Guess a number from 1 to 9:";
  std::vector<data::TokenizedPrompt> prompts;
  for (int row = 0; row < 9; ++row)
    prompts.push_back({.row = row, .ids = tokenizer.encode(ask), .prompt = ask, .columns = {{"hidden", row + 1}}});

  inference::LocalEngine engine(decoder->config(), decoder->weights());
  // What the environment said first stands in the prompt already.
  const auto open = [&](const data::Json& prompt) { return tokenizer.encode(prompt.get<std::string>()); };
  const auto read = [&](std::span<const data::TokenId> turn) {
    return data::Json{{"role", "assistant"}, {"content", tokenizer.decode(turn)}};
  };
  const auto reply = [&](const data::Json& said) { return tokenizer.encode(said.get<std::string>(), false); };
  inference::MultiTurn game(engine, environment::each<GuessingGame>("game"), {open, read, reply});

  TrainConfig<Grpo> config;
  config.run.rollouts.geometry = {.micro_batch_size = 144, .num_generations = 16};
  config.run.rollouts.sampling = {.max_new_tokens = 64, .stop_ids = {*tokenizer.eos_id()}};
  config.run.trainer.schedule = {.name = "cosine", .learning_rate = 5e-4};
  config.run.trainer.loop.max_steps = 60;
  config.run.trainer.loop.output_dir = "game-out";
  config.run.trainer.loop.signals = true;  // Ctrl-C ends the step, saves and ends the run
  return train<Grpo>(config,
                     trainer::OnlineInputs<decltype(game)>{.policy = decoder,
                                                           .generator = game,
                                                           .prompts = std::move(prompts),
                                                           .rewards = {reward::column("game", "environment_reward")},
                                                           .decode = [&](auto ids) { return tokenizer.decode(ids); }})
      .exit_code();
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
