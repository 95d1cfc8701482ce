// The log-prob head against the same function by plain operations: time and peak extra memory of forward + backward.
//
// Both versions run in turns inside one loop, so that a busy neighbour slows both; `ratio` is the median of the
// per-turn quotients head/materialised (below 1: the head is faster), `cpu_ratio` the same of processor time. Peak
// bytes are what the allocator held at most beyond what lived before and beyond the gradients that are the result.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <vector>

#include <rlalgo/tensor/log_prob_head.hpp>

#include "../median.hpp"

namespace {
using at::Tensor;
using benchmarks::median;

struct CountingAllocator final : c10::Allocator {
  explicit CountingAllocator(c10::Allocator* inner) : inner(inner) {}
  c10::DataPtr allocate(size_t bytes) override {
    auto* block = new Block{inner->allocate(bytes), bytes, this};
    now += static_cast<std::int64_t>(bytes);
    peak = std::max(peak, now);
    void* data = block->data.get();
    return {data, block, &release, c10::Device(c10::kCPU)};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t count) const override { default_copy_data(to, from, count); }
  struct Block {
    c10::DataPtr data;
    std::size_t bytes;
    CountingAllocator* owner;
  };
  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    block->owner->now -= static_cast<std::int64_t>(block->bytes);
    delete block;
  }
  c10::Allocator* inner;
  std::int64_t now = 0, peak = 0;
};

CountingAllocator& counter() {
  static CountingAllocator instance(c10::GetAllocator(c10::kCPU));
  return instance;
}

struct Inputs {
  Tensor hidden, weight, targets;
};

// The entropy is a metric: no gradient.
Tensor materialised(const Inputs& x, bool entropy) {
  const Tensor log_p = x.hidden.matmul(x.weight.t()).log_softmax(-1);
  if (entropy) {
    const c10::AutoGradMode no_gradient(false);
    benchmark::DoNotOptimize(log_p.exp().mul_(log_p).sum(-1).neg_());
  }
  return log_p.gather(1, x.targets.unsqueeze(1)).squeeze(1);
}

Tensor head(const Inputs& x, bool entropy) {
  return rlalgo::tensor::log_prob_head(x.hidden, x.weight, x.targets, {.entropy = entropy}).log_prob;
}

struct Measured {
  double seconds;
  double cpu_seconds;
  double peak_bytes;
};

template <class F>
Measured forward_backward(const F& score, Inputs& x, bool entropy) {
  x.hidden.mutable_grad() = Tensor();
  x.weight.mutable_grad() = Tensor();
  const std::int64_t before = counter().now;
  counter().peak = before;
  const std::clock_t cpu_start = std::clock();
  const auto start = std::chrono::steady_clock::now();
  score(x, entropy).mean().backward();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double cpu_seconds = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  const std::int64_t result = (x.hidden.numel() + x.weight.numel()) * x.hidden.element_size();
  return {seconds, cpu_seconds, static_cast<double>(counter().peak - before - result)};
}

void log_prob_head_vs_materialised(benchmark::State& state) {
  const std::int64_t n = state.range(0), h = state.range(1), v = state.range(2);
  const bool entropy = state.range(3) != 0;
  Inputs x{at::randn({n, h}).requires_grad_(), at::randn({v, h}).mul_(0.02).requires_grad_(),
           at::randint(v, {n}, at::kLong)};
  forward_backward(head, x, entropy);
  std::vector<double> ours, plain, ratios, cpu_ratios;
  double our_peak = 0, plain_peak = 0;
  for (auto _ : state) {
    const Measured a = forward_backward(head, x, entropy);
    const Measured b = forward_backward(materialised, x, entropy);
    ours.push_back(a.seconds);
    plain.push_back(b.seconds);
    ratios.push_back(a.seconds / b.seconds);
    cpu_ratios.push_back(a.cpu_seconds / b.cpu_seconds);
    our_peak = std::max(our_peak, a.peak_bytes);
    plain_peak = std::max(plain_peak, b.peak_bytes);
  }
  state.counters["head_ms"] = median(ours) * 1e3;
  state.counters["materialised_ms"] = median(plain) * 1e3;
  state.counters["ratio"] = median(ratios);
  state.counters["cpu_ratio"] = median(cpu_ratios);
  state.counters["head_peak_MB"] = our_peak / 1e6;
  state.counters["materialised_peak_MB"] = plain_peak / 1e6;
}
}  // namespace

BENCHMARK(log_prob_head_vs_materialised)
    ->ArgNames({"N", "H", "V", "entropy"})
    ->Args({256, 896, 151936, 0})
    ->Args({256, 896, 151936, 1})
    ->Args({64, 896, 151936, 0})
    ->Args({1024, 896, 151936, 0})
    ->Args({512, 576, 49152, 0})
    ->Args({512, 576, 49152, 1})
    ->Args({2000, 64, 64, 0})
    ->Args({2000, 128, 1000, 0})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

int main(int argc, char** argv) {
  c10::SetCPUAllocator(&counter(), 1);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
