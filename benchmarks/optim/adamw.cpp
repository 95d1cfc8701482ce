// One update of all weights of SmolLM2-135M's shape by AdamW and by AdamW with moments in 8 bits, in turns.
//
// Counters: elements/s; state_MB, the memory of the moments. Threads: --threads=N before all other arguments.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/ops/randn.h>

#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/adamw_8bit.hpp>
#include <rlalgo/tensor/tensor.hpp>

#include "../threads.hpp"

using namespace rlalgo;

namespace {

std::vector<model::Parameter> parameters(c10::ScalarType type) {
  std::vector<model::Parameter> out;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    tensor::Tensor value = at::randn(shape).mul_(0.02).to(type).requires_grad_();
    value.mutable_grad() = at::randn(shape).mul_(1e-3).to(type);
    out.push_back({name, std::move(value), shape.size() > 1});
  };
  add("model.embed_tokens.weight", {49152, 576});
  for (int layer = 0; layer < 30; ++layer) {
    const std::string name = "model.layers." + std::to_string(layer);
    add(name + ".q", {576, 576});
    add(name + ".k", {192, 576});
    add(name + ".v", {192, 576});
    add(name + ".o", {576, 576});
    add(name + ".gate", {1536, 576});
    add(name + ".up", {1536, 576});
    add(name + ".down", {576, 1536});
    add(name + ".norm", {576});
    add(name + ".norm2", {576});
  }
  return out;
}

template <class O>
void update(benchmark::State& state, c10::ScalarType type, typename O::Config config) {
  const auto trained = parameters(type);
  O optimizer(trained, std::move(config));
  std::int64_t elements = 0, bytes = 0;
  for (const model::Parameter& p : trained) elements += p.value.numel();
  for (const auto& [name, tensor] : optimizer.state())
    if (name.find(".exp_avg") != std::string::npos) bytes += static_cast<std::int64_t>(tensor.nbytes());
  for (auto _ : state) optimizer.step(1e-6);
  state.counters["elements/s"] =
      benchmark::Counter(static_cast<double>(elements * state.iterations()), benchmark::Counter::kIsRate);
  state.counters["state_MB"] = static_cast<double>(bytes) / 1e6;
}

}  // namespace

int main(int argc, char** argv) {
  benchmarks::take_threads(argc, argv);
  const auto add = [](const char* name, auto&& run) {
    benchmark::RegisterBenchmark(name, run)->Unit(benchmark::kMillisecond)->UseRealTime()->MeasureProcessCPUTime();
  };
  using c10::ScalarType;
  add("adamw", [](benchmark::State& s) { update<optim::AdamW>(s, ScalarType::Float, {}); });
  add("adamw_8bit", [](benchmark::State& s) { update<optim::AdamW8bit>(s, ScalarType::Float, {}); });
  add("adamw_8bit/embedding",
      [](benchmark::State& s) { update<optim::AdamW8bit>(s, ScalarType::Float, {.adam = {}, .whole = {}}); });
  add("adamw/bfloat16", [](benchmark::State& s) { update<optim::AdamW>(s, ScalarType::BFloat16, {}); });
  add("adamw_8bit/bfloat16", [](benchmark::State& s) { update<optim::AdamW8bit>(s, ScalarType::BFloat16, {}); });
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
