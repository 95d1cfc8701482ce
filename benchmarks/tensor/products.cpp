// The three products of a linear map, y = x Wᵀ, ∂x = ∂y W and ∂W = ∂yᵀ x, beside LibTorch's, in turns: GFLOP/s, and `ratio`, the median
// of a turn's quotients ours/LibTorch's (above 1: ours is faster). With T tokens, W [N, K]; `threads` of OMP_NUM_THREADS. `new` shapes:
// every turn has a token more than the last, as training has other tokens in every micro-batch.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <c10/core/GradMode.h>

#include <chrono>
#include <vector>

#include <rlalgo/tensor/functions.hpp>

#include "../median.hpp"

namespace {
using at::Tensor;
using benchmarks::median;
namespace tensor = rlalgo::tensor;

enum class Which : std::int64_t { y, dx, dw };

struct Operands {
  Tensor a, b;
};
Operands operands(Which which, std::int64_t t, std::int64_t k, std::int64_t n, at::ScalarType type) {
  const Tensor x = at::randn({t, k}).to(type), w = at::randn({n, k}).to(type), g = at::randn({t, n}).to(type);
  if (which == Which::y) return {x, w.t()};
  return which == Which::dx ? Operands{g, w} : Operands{g.t(), x};
}

template <class F>
double seconds(const F& f) {
  const auto begin = std::chrono::steady_clock::now();
  benchmark::DoNotOptimize(f());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void products(benchmark::State& state, at::ScalarType type, bool new_shapes) {
  const c10::NoGradGuard off;
  const auto which = static_cast<Which>(state.range(0));
  const std::int64_t t = state.range(1), k = state.range(2), n = state.range(3);
  Operands x = operands(which, t, k, n, type);
  std::vector<double> ours, theirs, ratios;
  std::int64_t turn = 0;
  for (auto _ : state) {
    if (new_shapes) x = operands(which, t + turn, k, n, type);
    double mine = 0, other = 0;
    for (const bool own : {turn % 2 == 0, turn % 2 != 0})
      if (own)
        mine = seconds([&] { return tensor::mm(x.a, x.b); });
      else
        other = seconds([&] { return at::mm(x.a, x.b); });
    ++turn;
    ours.push_back(mine);
    theirs.push_back(other);
    ratios.push_back(other / mine);
    state.SetIterationTime(mine);
  }
  const double giga = 2e-9 * static_cast<double>(t * k * n);
  state.counters["ours"] = giga / median(ours);
  state.counters["LibTorch"] = giga / median(theirs);
  state.counters["ratio"] = median(ratios);
}

void shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"y_dx_dw", "T", "K", "N"})->UseManualTime()->Iterations(15);
  const std::vector<std::vector<std::int64_t>> maps = {
      {660, 576, 576},   {660, 576, 192}, {660, 576, 1536}, {660, 1536, 576}, {170, 576, 1536}, {1320, 576, 1536},
      {1320, 1536, 576}, {680, 128, 128}, {680, 128, 384},  {680, 384, 128},  {60, 128, 384}};
  for (const auto& map : maps)
    for (std::int64_t which = 0; which < 3; ++which) b->Args({which, map[0], map[1], map[2]});
}

BENCHMARK_CAPTURE(products, float32, at::kFloat, false)->Apply(shapes);
BENCHMARK_CAPTURE(products, bfloat16, at::kBFloat16, false)->Apply(shapes);
BENCHMARK_CAPTURE(products, bfloat16_new, at::kBFloat16, true)->Apply(shapes);
}  // namespace

BENCHMARK_MAIN();
