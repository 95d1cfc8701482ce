// Lesson 4: DPO without YAML: pairs made in the program, an objective of your own in the place of −log σ. An objective
// is any struct with `Config`, `uses_scores`, `per_pair` and a call operator over the numbers of the pairs.
//
//   example_04_dpo_from_code MODEL_DIR   (teaches the model to count on instead of repeating itself)
#include <iostream>
#include <string>

#include <rlalgo/dpo.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/text/tokenizer.hpp>

namespace {

using namespace rlalgo;

// log(1 + e^{−x} + c·e^{−2x}): like −log σ(x), but steeper where a pair is far on the wrong side.
struct SteepLogistic {
  struct Config {
    double c = 0.1;
  };
  static constexpr bool uses_scores = true;  // reads s, so that a divergence has a meaning
  static constexpr bool per_pair = true;     // the loss of a pair depends on that pair only

  SteepLogistic() = default;
  explicit SteepLogistic(Config config) : c(config.c) {}
  at::Tensor operator()(const loss::PairTerms& terms) const {
    const at::Tensor wrong = terms.margin().neg().clamp_max(30.0).exp();  // [P] e^{−x}
    return wrong.add(wrong.square(), c).log1p();
  }
  double c = 0.1;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: example_04_dpo_from_code MODEL_DIR\n";
    return 2;
  }
  const std::shared_ptr<model::Decoder> decoder = model::load_decoder(argv[1]);
  const text::Tokenizer tokenizer = text::Tokenizer::from_directory(argv[1]);
  const auto pairs = std::make_shared<data::AnswerSet>();
  for (int n = 1; n <= 32; ++n) {
    const auto prompt = tokenizer.encode(std::to_string(n) + ", ");
    pairs->append(n, true, prompt, tokenizer.encode(std::to_string(n + 1) + ", " + std::to_string(n + 2), false));
    pairs->append(n, false, prompt, tokenizer.encode(std::to_string(n) + ", " + std::to_string(n), false));
  }

  using Method = BasicDpo<SteepLogistic>;
  TrainConfig<Method> config;
  config.method.beta = 0.2;
  config.run.sampling = {.micro_batch_size = 8};
  config.run.trainer.schedule.learning_rate = 2e-4;
  config.run.trainer.loop.max_steps = 20;
  config.run.trainer.loop.output_dir = "dpo-from-code-out";
  const trainer::OfflineInputs inputs{.policy = decoder, .answers = pairs, .reference = decoder->frozen_copy()};
  return train<Method>(config, inputs).exit_code();
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
