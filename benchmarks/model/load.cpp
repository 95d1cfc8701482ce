// Loading a checkpoint of 135 million parameters (the shape of SmolLM2-135M), warm: its file has just been written.
//
// as_stored: a float32 file, mapped. converted: a bfloat16 file, computed with in float32. …_and_used: a pass over 128
// tokens, too, which touches every weight. Counters: MB of the weights in memory, and the highest resident memory above
// what was there before, file pages included. RLALGO_BENCHMARK_DIR names a folder with 900 MB free (default: the
// system's temporary one).
#include <benchmark/benchmark.h>
#include <c10/core/GradMode.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <rlalgo/model/load.hpp>
#include <rlalgo/model/save.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include "memory.hpp"

using namespace rlalgo;

namespace {

const std::filesystem::path& folder() {
  static const std::filesystem::path path = [] {
    const char* given = std::getenv("RLALGO_BENCHMARK_DIR");
    return std::filesystem::path(given == nullptr ? std::filesystem::temp_directory_path() : given) /
           ("rlalgo_load_" + std::to_string(::getpid()));
  }();
  return path;
}

void write_checkpoints() {
  const model::Json json = {{"model_type", "llama"},
                            {"max_position_embeddings", 2048},
                            {"rms_norm_eps", 1e-5},
                            {"tie_word_embeddings", true},
                            {"vocab_size", 49152},
                            {"hidden_size", 576},
                            {"intermediate_size", 1536},
                            {"num_hidden_layers", 30},
                            {"num_attention_heads", 9},
                            {"num_key_value_heads", 3},
                            {"head_dim", 64},
                            {"rope_theta", 100000.0}};
  for (const auto& [name, dtype] : {std::pair("float32", at::kFloat), std::pair("bfloat16", at::kBFloat16)})
    model::save_decoder(*model::random_decoder(model::parse_hf_config(json, "benchmark"), 1, dtype), folder() / name);
}

void load(benchmark::State& state, const std::string& name, bool used) {
  const c10::NoGradGuard no_grad;
  std::vector<std::int32_t> ids(128);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * 377 % 49152);
  const std::vector<std::int32_t> prompt = {7};
  double peak = 0, weights = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const double before = benchmarks::reset_peak();
    state.ResumeTiming();
    const auto policy = model::load_decoder(folder() / name);
    if (used)
      benchmark::DoNotOptimize(policy->score(model::build_tree(std::vector<model::Sequence>{{prompt, ids}}), {}));
    state.PauseTiming();
    peak = std::max(peak, benchmarks::resident("VmHWM") - before);
    weights = 0;
    for (const auto& [unused, value] : policy->named_tensors()) weights += static_cast<double>(value.nbytes()) / 1e6;
    state.ResumeTiming();
  }
  state.counters["weights_MB"] = weights;
  state.counters["peak_MB"] = peak;
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  write_checkpoints();
  const auto add = [](const char* title, const char* name, bool used) {
    benchmark::RegisterBenchmark(title, [=](benchmark::State& state) { load(state, name, used); })
        ->Unit(benchmark::kMillisecond)
        ->Iterations(5)
        ->UseRealTime();
  };
  add("as_stored", "float32", false);
  add("as_stored_and_used", "float32", true);
  add("converted", "bfloat16", false);
  add("converted_and_used", "bfloat16", true);
  benchmark::RunSpecifiedBenchmarks();
  std::filesystem::remove_all(folder());
}
