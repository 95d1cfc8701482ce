// The log-prob head (log_prob_head.hpp) by the project's own CUDA kernels: of each tile of logits one product and one kernel
// forward; one product, one kernel and a product for each gradient backward. Logits are computed again, none are kept.
//
// Products of bfloat16 states with a bfloat16 weight take them as they are, and the gradient of the logits rounded to bfloat16; all are
// added in float32. Else products are in float32.
// Extra memory, whatever the tokens and the vocabulary are: at most 2²⁴ logits in float32 and their gradients in bfloat16; of the weight's
// gradient a part of 2²⁴ elements in float32, where it is narrower, or of the weight, where it is widened; of the gradient of
// the states as much. So 235 MB.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>
#include <rlalgo/tensor/wide_product.hpp>

namespace rlalgo::tensor::detail {

// Each float32 or bfloat16.
struct CudaHead {
  const cuda::Kernels& own;
  Tensor hidden, weight, bias, targets;  // [N, H], [V, H], [V] or undefined, [N]
  double temperature = 1.0;
  std::int64_t tile_tokens = 0, tile_vocabulary = 0;  // 0: chosen

  static constexpr std::int64_t most_elements = std::int64_t{1} << 24U, most_tokens = 4096;
  std::int64_t most = most_elements;  // of a tile, and of what is summed in float32

  // Float32.
  struct Outputs {
    Tensor log_prob, log_sum;  // [N]
    Tensor entropy, greedy;    // [N], or undefined: not wanted
  };
  // Undefined: not wanted.
  struct Gradients {
    Tensor hidden;  // [N, H], as the states
    Tensor weight;  // [V, H], float32 or bfloat16; `adds`: added to what is there
    Tensor bias;    // [V] float32
    bool adds = false;
  };

  void forward(const Outputs& out) const {
    const std::int64_t tokens = hidden.size(0);
    const Tensor state = wide({tokens, 4});
    each_tile(0, tokens, [&](std::int64_t v, const Tensor& w, std::int64_t n, const Tensor& rows, const Tensor& tile) {
      logits(tile, v, w, rows);
      launch(own, own.log_prob_tile,
             {.logits = tile.const_data_ptr<float>(),
              .targets = targets.const_data_ptr<std::int64_t>() + n,
              .state = state.mutable_data_ptr<float>() + 4 * n,
              .rows = tile.size(0),
              .columns = tile.size(1),
              .stride = tile.size(1),
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
  // A gradient of the weight that is narrower than float32 is rounded once for each block of tokens, of which there is one up to
  // 2²⁴ / H tokens.
  void backward(const Tensor& log_prob, const Tensor& of_entropy, const Outputs& out, Gradients& into) const {
    const Tensor g = log_prob.div(temperature).contiguous(),
                 s = of_entropy.defined() ? of_entropy.div(temperature).contiguous() : Tensor();
    const std::int64_t tokens = hidden.size(0), step = tokens_of_tile(), columns = columns_of_tile();
    if (tokens == 0 && into.weight.defined() && !into.adds) into.weight.zero_();
    if (into.bias.defined()) into.bias.zero_();
    const bool rounds_states = into.hidden.defined() && into.hidden.scalar_type() != at::kFloat,
               rounds_weight = into.weight.defined() && into.weight.scalar_type() != at::kFloat;
    const std::int64_t block =
        rounds_states ? std::max(step, most / hidden.size(1) / step * step) : std::max<std::int64_t>(tokens, 1);
    const Tensor narrow = is_narrow() && tokens > 0 ? hidden.new_empty({step * columns}) : Tensor(),
                 part = rounds_weight && tokens > 0 ? wide({columns, hidden.size(1)}) : Tensor(),
                 states = rounds_states && tokens > 0 ? wide({std::min(block, tokens), hidden.size(1)}) : Tensor();
    for (std::int64_t begin = 0; begin < tokens; begin += block) {
      const std::int64_t end = std::min(begin + block, tokens);
      const bool adds = into.adds || begin > 0;
      Tensor of_states;  // [block, H]
      if (into.hidden.defined())
        of_states =
            (rounds_states ? states.narrow(0, 0, end - begin) : into.hidden.narrow(0, begin, end - begin)).zero_();
      each_tile(begin, end,
                [&](std::int64_t v, const Tensor& w, std::int64_t n, const Tensor& rows, const Tensor& tile) {
                  const std::int64_t count = tile.size(0), width = tile.size(1);
                  const Tensor grad = narrow.defined() ? narrow.narrow(0, 0, count * width).view({count, width}) : tile;
                  logits(tile, v, w, rows);
                  launch(own, own.log_prob_gradient,
                         {.logits = tile.const_data_ptr<float>(),
                          .targets = targets.const_data_ptr<std::int64_t>() + n,
                          .log_sum = out.log_sum.const_data_ptr<float>() + n,
                          .entropy = s.defined() ? out.entropy.const_data_ptr<float>() + n : nullptr,
                          .grad_log_prob = g.const_data_ptr<float>() + n,
                          .grad_entropy = s.defined() ? s.const_data_ptr<float>() + n : nullptr,
                          .grad = grad.mutable_data_ptr(),
                          .rows = count,
                          .columns = width,
                          .stride = width,
                          .grad_stride = width,
                          .first_column = v,
                          .element = element_of(grad)},
                         cuda::Kernel::log_prob, tile);
                  if (of_states.defined()) addmm_wide_(of_states.narrow(0, n - begin, count), grad, w, 1.0);
                  if (into.bias.defined()) into.bias.narrow(0, v, width).add_(grad.sum(0, false, at::kFloat));
                  if (!into.weight.defined()) return;
                  const Tensor gradient = into.weight.narrow(0, v, width);
                  if (!rounds_weight) return addmm_wide_(gradient, grad.t(), rows, n == begin && !adds ? 0.0 : 1.0);
                  const Tensor sum = part.narrow(0, 0, width);
                  addmm_wide_(sum, grad.t(), rows, n == begin ? 0.0 : 1.0);
                  if (n + count == end) adds ? gradient.add_(sum) : gradient.copy_(sum);
                });
      if (rounds_states) into.hidden.narrow(0, begin, end - begin).copy_(of_states);
    }
  }

 private:
  [[nodiscard]] bool is_narrow() const {
    return hidden.scalar_type() == at::kBFloat16 && weight.scalar_type() == at::kBFloat16;
  }
  [[nodiscard]] Tensor wide(at::IntArrayRef sizes) const {
    return hidden.new_empty(sizes, hidden.options().dtype(at::kFloat));
  }

  [[nodiscard]] std::int64_t tokens_of_tile() const {
    const std::int64_t tokens = std::clamp<std::int64_t>(most / hidden.size(1), 1, most_tokens);
    return std::clamp<std::int64_t>(tile_tokens > 0 ? tile_tokens : tokens, 1,
                                    std::max<std::int64_t>(hidden.size(0), 1));
  }
  // Of the vocabulary; a multiple of 64, which tensor cores are fastest with, where it is chosen.
  [[nodiscard]] std::int64_t columns_of_tile() const {
    if (tile_vocabulary > 0) return std::min(tile_vocabulary, weight.size(0));
    const std::int64_t columns = most / std::max(tokens_of_tile(), hidden.size(1));
    return std::min(std::max<std::int64_t>(1, columns > 64 ? columns / 64 * 64 : columns), weight.size(0));
  }

  // f(first id, weight of the tile [v, H], first token, states [n, H], memory [n, v]) for tokens from `begin` to `end`: all of them of a
  // part of the vocabulary first.
  template <class F>
  void each_tile(std::int64_t begin, std::int64_t end, F&& f) const {
    if (begin == end) return;
    const std::int64_t vocabulary = weight.size(0), step = tokens_of_tile(), columns = columns_of_tile();
    const auto type = is_narrow() ? at::kBFloat16 : at::kFloat;
    const Tensor memory = wide({step * columns});
    for (std::int64_t v = 0; v < vocabulary; v += columns) {
      const std::int64_t width = std::min(columns, vocabulary - v);
      const Tensor w = weight.narrow(0, v, width).to(type);
      for (std::int64_t n = begin; n < end; n += step) {
        const std::int64_t count = std::min(step, end - n);
        f(v, w, n, hidden.narrow(0, n, count).to(type), memory.narrow(0, 0, count * width).view({count, width}));
      }
    }
  }

  void logits(const Tensor& tile, std::int64_t v, const Tensor& w, const Tensor& rows) const {
    addmm_wide_(tile, rows, w.t(), 0.0, 1.0 / temperature);
    if (bias.defined()) tile.add_(bias.narrow(0, v, w.size(0)).to(tile.scalar_type()), 1.0 / temperature);
  }
};

// Nothing where the head is not computed by kernels: another device, other dtypes, none in the program, or switched off. They know no
// cap of logits: who has one does not ask.
[[nodiscard]] inline std::optional<CudaHead> cuda_head(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                                                       const Tensor& targets, double temperature,
                                                       std::int64_t tile_tokens = 0, std::int64_t tile_vocabulary = 0) {
  const OwnKernels& kernels = own_kernels();
  if (kernels.table == nullptr || hidden.device().type() != kernels.device) return std::nullopt;
  const auto fits = [](const Tensor& x) { return x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16; };
  if (!fits(hidden) || !fits(weight) || !weight.is_contiguous() || !targets.is_contiguous()) return std::nullopt;
  const Tensor states = hidden.contiguous();
  const cuda::Kernels* const own = kernels.take(cuda::Kernel::log_prob, states);
  if (own == nullptr) return std::nullopt;
  return CudaHead{*own, states, weight, bias, targets, temperature, tile_tokens, tile_vocabulary};
}

}  // namespace rlalgo::tensor::detail
