// One optimizer step (score, backward, AdamW) over a GRPO group: all weights, all weights with checkpointing, and LoRA
// adapters on every linear map, on the same rows in one run.
//
// 8 completions per prompt. Counters: tokens/s of all rows; state_MB, the memory of gradients and optimizer state;
// peak_MB, the highest resident memory of score and backward above that of weights and state. Threads: --threads=N
// before all other arguments.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/optim/adamw.hpp>

#include "../threads.hpp"
#include "memory.hpp"

using namespace rlalgo;

namespace {

// SmolLM2-135M with 6 of its 30 layers.
std::unique_ptr<model::Decoder> decoder() {
  const model::Json json = {{"model_type", "llama"},
                            {"max_position_embeddings", 2048},
                            {"rms_norm_eps", 1e-5},
                            {"tie_word_embeddings", true},
                            {"vocab_size", 49152},
                            {"hidden_size", 576},
                            {"intermediate_size", 1536},
                            {"num_hidden_layers", 6},
                            {"num_attention_heads", 9},
                            {"num_key_value_heads", 3},
                            {"head_dim", 64}};
  return model::random_decoder(model::parse_hf_config(json, "benchmark"), 1);
}

void step(benchmark::State& state, std::int64_t rank, bool checkpointing) {
  const auto policy = decoder();
  policy->set_checkpointing(checkpointing);
  if (rank > 0)
    model::attach_lora(*policy, {.r = rank, .alpha = 2.0 * static_cast<double>(rank), .target_pattern = "all-linear"},
                       1);
  std::vector<std::int32_t> prompt(64, 7);
  std::vector<std::vector<std::int32_t>> completions;
  std::vector<model::Sequence> rows;
  std::int64_t tokens = 0;
  for (std::int32_t r = 0; r < 8; ++r) {
    completions.emplace_back(64);
    for (std::int32_t i = 0; i < 64; ++i) completions.back()[static_cast<std::size_t>(i)] = (r * 977 + i * 31) % 49152;
  }
  for (const auto& completion : completions) {
    rows.push_back({prompt, completion});
    tokens += static_cast<std::int64_t>(prompt.size() + completion.size());
  }
  optim::AdamW optimizer(policy->parameters());
  double megabytes = 0;
  for (const auto& p : policy->parameters()) megabytes += 3.0 * static_cast<double>(p.value.nbytes()) / 1e6;
  const auto pass = [&] { policy->score(model::build_tree(rows), {}).log_prob.sum().backward(); };
  pass();  // makes the gradients
  for (const auto& p : policy->parameters()) p.value.mutable_grad().zero_();
  const double before = benchmarks::reset_peak();
  pass();
  const double peak = benchmarks::resident("VmHWM") - before;
  for (auto _ : state) {
    pass();
    optimizer.step(1e-6);
    optimizer.zero_grad();
  }
  state.counters["tokens/s"] = benchmark::Counter(
      static_cast<double>(tokens * static_cast<std::int64_t>(state.iterations())), benchmark::Counter::kIsRate);
  state.counters["state_MB"] = megabytes;
  state.counters["peak_MB"] = peak;
}

}  // namespace

int main(int argc, char** argv) {
  benchmarks::take_threads(argc, argv);
  const auto add = [](const char* name, std::int64_t rank, bool checkpointing) {
    benchmark::RegisterBenchmark(name, [=](benchmark::State& state) { step(state, rank, checkpointing); })
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  };
  add("all_weights", 0, false);
  add("all_weights_checkpointed", 0, true);
  add("lora/r:8", 8, false);
  add("lora/r:64", 64, false);
  add("lora_checkpointed/r:8", 8, true);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
