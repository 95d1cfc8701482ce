// The log-prob head (log_prob_head.hpp) by the project's own CUDA kernels: of each tile of logits one product and one kernel
// forward; one product, one kernel and a product for each gradient backward. Logits are computed again, none are kept.
//
// Products are in float32. Extra memory: a tile of at most 2²⁵ logits and a part of the weight widened to float32, whatever N.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::tensor::detail {

// Float32 all, but weight and bias, which are widened tile by tile.
struct CudaHead {
  const cuda::Kernels& own;
  Tensor hidden, weight, bias, targets;  // [N, H], [V, H], [V] or undefined, [N]
  double temperature = 1.0;
  std::int64_t tile_tokens = 0, tile_vocabulary = 0;  // 0: chosen

  static constexpr std::int64_t most_logits = std::int64_t{1} << 25U, most_tokens = 4096;

  struct Outputs {
    Tensor log_prob, log_sum;  // [N]
    Tensor entropy, greedy;    // [N], or undefined: not wanted
  };
  struct Gradients {
    Tensor hidden;  // [N, H] float32, or undefined: not wanted
    Tensor weight;  // as the weight, or undefined; `adds`: added to what is there
    Tensor bias;    // [V] float32, or undefined
    bool adds = false;
  };

  void forward(const Outputs& out) const {
    const std::int64_t tokens = hidden.size(0);
    const Tensor state = hidden.new_empty({tokens, 4});
    each_tile([&](std::int64_t v, const Tensor& w, std::int64_t n, std::int64_t count, const Tensor& tile) {
      logits(tile, v, w, n);
      launch(own, own.log_prob_tile,
             {.logits = tile.const_data_ptr<float>(),
              .targets = targets.const_data_ptr<std::int64_t>() + n,
              .state = state.mutable_data_ptr<float>() + 4 * n,
              .rows = count,
              .columns = w.size(0),
              .stride = w.size(0),
              .first_column = v},
             cuda::Kernel::log_prob, tile);
    });
    const auto memory = [](const Tensor& x) { return x.defined() ? x.mutable_data_ptr<float>() : nullptr; };
    launch(own, own.log_prob_finish,
           {.state = state.const_data_ptr<float>(),
            .log_sum = memory(out.log_sum),
            .log_prob = memory(out.log_prob),
            .entropy = memory(out.entropy),
            .greedy = memory(out.greedy),
            .rows = tokens},
           cuda::Kernel::log_prob, state);
  }

  // `log_prob`, `of_entropy` [N]: gradients of both, the latter undefined where there is none; `out`: what forward() gave.
  void backward(const Tensor& log_prob, const Tensor& of_entropy, const Outputs& out, Gradients& into) const {
    const Tensor g = log_prob.div(temperature).contiguous(),
                 s = of_entropy.defined() ? of_entropy.div(temperature).contiguous() : Tensor();
    if (into.hidden.defined()) into.hidden.zero_();
    if (hidden.size(0) == 0 && into.weight.defined() && !into.adds) into.weight.zero_();
    if (into.bias.defined()) into.bias.zero_();
    Tensor sum;  // [v, H] of the weight's gradient
    each_tile([&](std::int64_t v, const Tensor& w, std::int64_t n, std::int64_t count, const Tensor& tile) {
      logits(tile, v, w, n);
      launch(own, own.log_prob_gradient,
             {.logits = tile.const_data_ptr<float>(),
              .targets = targets.const_data_ptr<std::int64_t>() + n,
              .log_sum = out.log_sum.const_data_ptr<float>() + n,
              .entropy = s.defined() ? out.entropy.const_data_ptr<float>() + n : nullptr,
              .grad_log_prob = g.const_data_ptr<float>() + n,
              .grad_entropy = s.defined() ? s.const_data_ptr<float>() + n : nullptr,
              .grad = tile.mutable_data_ptr(),
              .rows = count,
              .columns = w.size(0),
              .stride = w.size(0),
              .grad_stride = w.size(0),
              .first_column = v},
             cuda::Kernel::log_prob, tile);
      if (into.hidden.defined()) addmm_(into.hidden.narrow(0, n, count), tile, w);
      if (into.bias.defined()) into.bias.narrow(0, v, w.size(0)).add_(tile.sum(0));
      if (!into.weight.defined()) return;
      if (n == 0) sum = w.new_empty(w.sizes());
      addmm_(sum, tile.t(), hidden.narrow(0, n, count), n == 0 ? 0.0 : 1.0);
      if (n + count < hidden.size(0)) return;
      const Tensor part = into.weight.narrow(0, v, w.size(0));
      into.adds ? part.add_(sum) : part.copy_(sum);
    });
  }

 private:
  // f(first id, weight of the tile [v, H], first token, tokens, memory [n, v]): all tokens of a part of the vocabulary first.
  template <class F>
  void each_tile(F&& f) const {
    const std::int64_t tokens = hidden.size(0), vocabulary = weight.size(0);
    if (tokens == 0) return;
    const std::int64_t step = std::min(tokens, tile_tokens > 0 ? tile_tokens : most_tokens);
    const std::int64_t columns =
        std::min(vocabulary, tile_vocabulary > 0 ? tile_vocabulary : std::max<std::int64_t>(1, most_logits / step));
    const Tensor memory = hidden.new_empty({step * columns});
    for (std::int64_t v = 0; v < vocabulary; v += columns) {
      const std::int64_t width = std::min(columns, vocabulary - v);
      const Tensor w = weight.narrow(0, v, width).to(hidden.scalar_type());
      for (std::int64_t n = 0; n < tokens; n += step) {
        const std::int64_t count = std::min(step, tokens - n);
        f(v, w, n, count, memory.narrow(0, 0, count * width).view({count, width}));
      }
    }
  }

  void logits(const Tensor& tile, std::int64_t v, const Tensor& w, std::int64_t n) const {
    addmm_(tile, hidden.narrow(0, n, tile.size(0)), w.t(), 0.0, 1.0 / temperature);
    if (bias.defined()) tile.add_(bias.narrow(0, v, w.size(0)).to(tile.scalar_type()), 1.0 / temperature);
  }
};

// Nothing where the head is not computed by kernels: another device, other dtypes, none in the program, or switched off.
[[nodiscard]] inline std::optional<CudaHead> cuda_head(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                                                       const Tensor& targets, double temperature,
                                                       std::int64_t tile_tokens = 0, std::int64_t tile_vocabulary = 0) {
  const OwnKernels& kernels = own_kernels();
  if (kernels.table == nullptr || hidden.device().type() != kernels.device) return std::nullopt;
  const auto fits = [](const Tensor& x) { return x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16; };
  if (!fits(hidden) || !fits(weight) || !weight.is_contiguous() || !targets.is_contiguous()) return std::nullopt;
  const Tensor wide = hidden.to(at::kFloat).contiguous();
  const cuda::Kernels* const own = kernels.take(cuda::Kernel::log_prob, wide);
  if (own == nullptr) return std::nullopt;
  return CudaHead{*own, wide, weight, bias, targets, temperature, tile_tokens, tile_vocabulary};
}

}  // namespace rlalgo::tensor::detail
