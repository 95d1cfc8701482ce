// Lesson 2: a reward of your own, in C++. The quickstart's small model learns to answer in as few characters as it can
// while the answer stays right.
//
//   example_02_custom_reward MODEL_DIR PROBLEMS.jsonl
#include <iostream>

#include <rlalgo/data/load.hpp>
#include <rlalgo/data/prompt.hpp>
#include <rlalgo/data/transform.hpp>
#include <rlalgo/grpo.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/save.hpp>
#include <rlalgo/text/chat_template.hpp>
#include <rlalgo/text/tokenizer.hpp>

int main(int argc, char** argv) try {
  using namespace rlalgo;
  if (argc != 3) {
    std::cerr << "usage: example_02_custom_reward MODEL_DIR PROBLEMS.jsonl\n";
    return 2;
  }
  const std::shared_ptr<model::Decoder> decoder = model::load_decoder(argv[1]);
  const text::Tokenizer tokenizer = text::Tokenizer::from_directory(argv[1]);
  const auto chat = text::ChatTemplate::from_directory(argv[1]).value();

  data::Table table = data::load({.path = argv[2]});
  data::transform_rows(data::make_transform("rewards.oai_gsm8k_transform", argv[2]), table);
  std::vector<data::TokenizedPrompt> prompts = data::prompts_of(table);
  for (auto& p : prompts) p.ids = tokenizer.encode(chat.render(p.prompt, {.add_generation_prompt = true}), false);

  // The reward: a callable on the completion's text and the row's columns. Right answers earn 1, and up to 0.5 more
  // when short.
  const auto brief_and_right = [](const std::string& text, const data::Json& columns) {
    const std::size_t mark = text.rfind("#### ");
    const bool right = mark != std::string::npos && text.substr(mark + 5) == columns["answer"].get<std::string>();
    return right ? 1.0 + 0.5 / (1.0 + static_cast<double>(text.size()) / 10.0) : 0.0;
  };

  inference::LocalEngine engine(decoder->config(), decoder->weights());
  TrainConfig<Grpo> config;
  config.run.rollouts.geometry = {.micro_batch_size = 64, .num_generations = 8};
  config.run.rollouts.sampling = {.max_new_tokens = 32, .stop_ids = {*tokenizer.eos_id()}};
  config.run.trainer.schedule = {.name = "constant", .learning_rate = 3e-4};
  config.run.trainer.loop.max_steps = 30;
  config.run.trainer.loop.output_dir = "custom-reward-out";
  return train<Grpo>(config, trainer::OnlineInputs<inference::LocalEngine>{
                                 .policy = decoder,
                                 .generator = engine,
                                 .prompts = std::move(prompts),
                                 .rewards = {{"brief_and_right", brief_and_right}},
                                 .decode = [&](auto ids) { return tokenizer.decode(ids); },
                                 .save_model =
                                     [&](const auto& directory) {
                                       model::save_decoder(*decoder, directory);
                                       tokenizer.save(directory);
                                     }})
      .exit_code();
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
