// Trains the quickstart's checkpoint from nothing by next-token prediction on sloppy solutions of its word problems.
//
//   quickstart_pretrain MODEL_DIR [--steps 1000] [--batch 64]
//
// MODEL_DIR holds the tokenizer of make_tokenizer; config.json, generation_config.json and model.safetensors are added.
// The same machine makes the same bytes each time. A Qwen3-style decoder of 0.7 million parameters, saved in bf16.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include <rlalgo/model/load.hpp>
#include <rlalgo/model/save.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/clip.hpp>
#include <rlalgo/optim/schedule.hpp>
#include <rlalgo/text/tokenizer.hpp>

#include "problems.hpp"

namespace {

using namespace rlalgo;

constexpr std::uint64_t seed = 7;

model::Json model_config(const text::Tokenizer& tokenizer) {
  model::Json c;
  c["architectures"] = {"Qwen3ForCausalLM"};
  c["attention_bias"] = false;
  c["eos_token_id"] = *tokenizer.eos_id();
  c["head_dim"] = 32;
  c["hidden_act"] = "silu";
  c["hidden_size"] = 128;
  c["initializer_range"] = 0.05;
  c["intermediate_size"] = 320;
  c["max_position_embeddings"] = 256;
  c["model_type"] = "qwen3";
  c["num_attention_heads"] = 4;
  c["num_hidden_layers"] = 4;
  c["num_key_value_heads"] = 2;
  c["pad_token_id"] = *tokenizer.pad_id();
  c["rms_norm_eps"] = 1e-6;
  c["rope_theta"] = 10000.0;
  c["tie_word_embeddings"] = true;
  c["torch_dtype"] = "float32";
  c["vocab_size"] = tokenizer.vocab_size();
  return c;
}

struct Example {
  std::vector<std::int32_t> prompt, completion;
};

// ChatML, as the tokenizer's template renders it; the loss is on the answer and its end token.
Example make_example(const text::Tokenizer& tokenizer, std::uint64_t index) {
  const quickstart::Problem problem = quickstart::make_problem(seed, index);
  quickstart::Draw draw(seed + 1, index);
  Example e;
  e.prompt = tokenizer.encode("<|im_start|>user\n" + problem.question + "<|im_end|>\n<|im_start|>assistant\n", false);
  e.completion = tokenizer.encode(quickstart::sloppy_solution(problem, draw) + "<|im_end|>", false);
  return e;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::cerr << "usage: quickstart_pretrain MODEL_DIR [--steps N] [--batch N]\n";
    return 2;
  }
  const std::filesystem::path directory = argv[1];
  std::int64_t steps = 1000, batch = 64;
  for (int i = 2; i + 1 < argc; i += 2) (std::string(argv[i]) == "--steps" ? steps : batch) = std::stol(argv[i + 1]);

  const text::Tokenizer tokenizer = text::Tokenizer::from_directory(directory);
  const auto decoder = model::random_decoder(model::parse_hf_config(model_config(tokenizer), "quickstart"), seed);
  optim::AdamW optimizer(decoder->parameters(), {.beta2 = 0.98, .weight_decay = 0.01});
  const optim::Schedule schedule({.name = "cosine", .learning_rate = 3e-3, .warmup_steps = 50, .total_steps = steps});

  for (std::int64_t step = 0; step < steps; ++step) {
    std::vector<Example> examples;
    std::vector<model::Sequence> rows;
    for (std::int64_t i = 0; i < batch; ++i)
      examples.push_back(make_example(tokenizer, static_cast<std::uint64_t>(step * batch + i)));
    for (const Example& e : examples) rows.push_back({e.prompt, e.completion});
    const model::Scores scores = decoder->score(model::build_flat_tree(rows), {});
    const at::Tensor loss = -scores.log_prob.mean();
    loss.backward();
    std::vector<at::Tensor> gradients;
    for (const model::Parameter& p : decoder->parameters()) gradients.push_back(p.value.grad());
    optim::clip_grad_norm(gradients, 1.0);
    optimizer.step(schedule(step));
    optimizer.zero_grad();
    if (step % 50 == 0 || step + 1 == steps)
      std::cout << "step " << step + 1 << "/" << steps << "  loss " << loss.item<double>() << std::endl;
  }

  // bf16 halves the file; the trainer computes in f32.
  model::HfConfig config = decoder->hf_config();
  model::DecoderWeights weights = decoder->weights();
  {
    const c10::AutoGradMode no_gradient(false);
    model::visit_weights(config.decoder, weights,
                         [](const std::string&, at::Tensor& value, const auto&, model::WeightRole) {
                           value = value.detach().to(at::kBFloat16);
                         });
  }
  model::save_decoder(model::Decoder(config, weights), directory);
  std::cout << directory.string() << ": saved\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
