// The log-prob head: log-probabilities (and entropies) of given tokens under a linear head, without the logits.
//
//   l_nv = (h_n·w_v + b_v)/T,   log_prob_n = l_{n,target_n} − log Σ_v exp l_nv,   entropy_n = −Σ_v p_nv log p_nv
//
// Runs over tiles of tokens × vocabulary with an online log-sum-exp; backward recomputes each tile (up to `cache_bytes`
// of tiles are kept instead) and adds it to the gradients:
//   ∂/∂l_nv = g_n (1[v = target_n] − p_nv) − e_n p_nv (log p_nv + entropy_n),   g, e = gradients of log_prob, entropy
// Never more than one tile plus the kept tiles is in memory, whatever N is.
//
// Shapes: hidden [N, H], weight [V, H], bias [V] or undefined, targets [N] int64; log_prob, entropy [N], nats.
// Dtypes: float32, float64; bfloat16 and float16 inputs are widened tile by tile, results and sums are float32.
// Errors: tensor.1 shapes or dtypes do not fit, tensor.2 target outside the vocabulary, tensor.3 temperature ≤ 0.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/error.hpp>
#include <rlalgo/tensor/custom_gradient.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::tensor {

struct LogProbOptions {
  double temperature = 1.0;       // > 0; logits are divided by it
  bool entropy = false;           // also return the entropy
  bool entropy_gradient = false;  // … with graph
  // Tiling: vocabulary entries per tile, elements per tile, and how much of the logits backward may find ready.
  std::int64_t tile_vocabulary = 2048;
  std::int64_t tile_elements = std::int64_t{1} << 20;
  std::int64_t cache_bytes = std::int64_t{40} << 20;
};

struct LogProbs {
  Tensor log_prob;  // [N]
  Tensor entropy;   // [N], undefined unless asked for
};

namespace log_prob_head_detail {

struct Range {
  std::int64_t begin;
  std::int64_t size;
};

inline std::string text(c10::IntArrayRef sizes) {
  std::ostringstream out;
  out << sizes;
  return out.str();
}

// Everything forward leaves for backward.
class Head {
 public:
  Head(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets,
       const LogProbOptions& options)
      : hidden_(hidden.detach()),
        weight_(weight.detach()),
        bias_(bias.defined() ? bias.detach() : bias),
        targets_(targets),
        options_(options) {
    check();
    const auto promoted = c10::promoteTypes(hidden.scalar_type(), weight.scalar_type());
    compute_ = promoted == c10::ScalarType::Double ? c10::ScalarType::Double : c10::ScalarType::Float;
    tokens_ = hidden_.size(0);
    vocabulary_ = weight_.size(0);
    tile_vocabulary_ = std::clamp<std::int64_t>(options.tile_vocabulary, 1, vocabulary_);
    tile_tokens_ =
        std::clamp<std::int64_t>(options.tile_elements / tile_vocabulary_, 1, std::max<std::int64_t>(tokens_, 1));
  }

  // Returns [2, N] (log_prob, entropy) or [1, N].
  Tensor forward(bool keep_tiles) {
    const auto options = hidden_.options().dtype(compute_);
    Tensor out = hidden_.new_empty({options_.entropy ? 2 : 1, tokens_}, options);
    Tensor maximum = hidden_.new_empty({tokens_, 1}, options);                        // running max of the logits
    Tensor sum = hidden_.new_empty({tokens_, 1}, options);                            // Σ exp(l − max)
    Tensor moment = hidden_.new_empty({options_.entropy ? tokens_ : 0, 1}, options);  // Σ exp(l − max)(l − max)
    Tensor chosen = hidden_.new_empty({tokens_, 1}, options);                         // l of the target
    std::int64_t budget = keep_tiles ? options_.cache_bytes : 0;
    Buffer scratch(*this), powers(*this);
    for (const Range v : ranges(vocabulary_, tile_vocabulary_)) {
      const Tensor w = widen(weight_.narrow(0, v.begin, v.size));  // [v, H]
      const bool first = v.begin == 0;
      for (const Range n : ranges(tokens_, tile_tokens_)) {
        Tensor tile = scratch.view(n.size, v.size);  // [n, v]
        const std::int64_t bytes = tile.numel() * tile.element_size();
        if (bytes <= budget) {
          budget -= bytes;
          const Tensor kept = hidden_.new_empty({n.size, v.size}, options);
          logits(kept, n, v, w);
          kept_.push_back(kept);
          tile.copy_(kept);
        } else {
          budget = 0;  // tiles are kept in order, without gaps
          logits(tile, n, v, w);
        }
        const auto [index, inside] = target_in(n, v);
        Tensor target = chosen.narrow(0, n.begin, n.size);
        target.copy_(first ? tile.gather(1, index) : tile.gather(1, index).where(inside, target));
        // Move the running sums to the new maximum.
        Tensor m = maximum.narrow(0, n.begin, n.size), z = sum.narrow(0, n.begin, n.size);
        Tensor e = options_.entropy ? moment.narrow(0, n.begin, n.size) : Tensor();
        const Tensor peak = tile.amax(1, true);
        if (first) {
          m.copy_(peak);
          z.zero_();
          if (e.defined()) e.zero_();
        } else {
          const Tensor raised = m.maximum(peak);
          const Tensor shift = m.sub(raised);
          const Tensor factor = shift.exp();
          if (e.defined()) e.addcmul_(shift, z).mul_(factor);
          z.mul_(factor);
          m.copy_(raised);
        }
        tile.sub_(m);
        if (e.defined()) {
          Tensor power = powers.view(n.size, v.size).copy_(tile).exp_();
          z.add_(power.sum(1, true));
          e.add_(tile.mul_(power).sum(1, true));
        } else {
          z.add_(tile.exp_().sum(1, true));
        }
      }
    }
    log_sum_ = maximum.add(sum.log());  // [N, 1]
    out.select(0, 0).copy_(chosen.sub_(log_sum_).squeeze(1));
    if (options_.entropy) {
      entropy_ = sum.log().sub_(moment.div_(sum));  // [N, 1]
      out.select(0, 1).copy_(entropy_.squeeze(1));
    }
    return out;
  }

  enum Input : std::size_t { hidden_input, weight_input, bias_input };

  void require(bool hidden, bool weight, bool bias) { required_ = {hidden, weight, bias}; }

  // The gradient of one input; the first call of a backward pass computes all of them in one sweep over the tiles.
  Tensor gradient(std::size_t input, const Tensor& grad_out, Tensor zeros) {
    if (!ready_[input].defined()) backward(grad_out, input, std::move(zeros));
    return std::exchange(ready_[input], Tensor());
  }

 private:
  // One tile of scratch memory, viewed contiguously at the size of the moment.
  class Buffer {
   public:
    explicit Buffer(const Head& head) : head_(head) {}
    Tensor view(std::int64_t rows, std::int64_t columns) {
      if (!memory_.defined())
        memory_ = head_.hidden_.new_empty({head_.tile_tokens_ * head_.tile_vocabulary_},
                                          head_.hidden_.options().dtype(head_.compute_));
      return memory_.narrow(0, 0, rows * columns).view({rows, columns});
    }

   private:
    const Head& head_;
    Tensor memory_;
  };

  static std::vector<Range> ranges(std::int64_t total, std::int64_t step) {
    std::vector<Range> out;
    for (std::int64_t begin = 0; begin < total; begin += step) out.push_back({begin, std::min(step, total - begin)});
    return out;
  }

  [[nodiscard]] Tensor widen(const Tensor& x) const { return x.to(compute_); }

  void logits(Tensor tile, Range n, Range v, const Tensor& w) const {
    tile.addmm_(widen(hidden_.narrow(0, n.begin, n.size)), w.t(), 0.0, 1.0 / options_.temperature);
    if (bias_.defined()) tile.add_(widen(bias_.narrow(0, v.begin, v.size)), 1.0 / options_.temperature);
  }

  // Column of each target within the vocabulary tile, and whether it lies there. [n, 1] each
  [[nodiscard]] std::pair<Tensor, Tensor> target_in(Range n, Range v) const {
    const Tensor column = targets_.narrow(0, n.begin, n.size).sub(v.begin).unsqueeze(1);
    const Tensor index = column.clamp(0, v.size - 1);
    return {index, index.eq(column)};
  }

  void backward(const Tensor& grad_out, std::size_t input, Tensor zeros) {
    const c10::NoGradGuard no_grad;
    const bool narrow_weight = weight_.scalar_type() != compute_;
    // Sums in the compute dtype: the engine's buffer where it has that dtype.
    const auto buffer = [&](std::size_t i, const Tensor& like) {
      if (!required_[i]) return Tensor();
      if (i == input && like.scalar_type() == compute_) return zeros;
      return like.new_zeros(like.sizes(), like.options().dtype(compute_));
    };
    Tensor grad_hidden = buffer(hidden_input, hidden_);
    Tensor grad_bias = bias_.defined() ? buffer(bias_input, bias_) : Tensor();
    Tensor grad_weight;
    if (required_[weight_input]) grad_weight = input == weight_input ? zeros : weight_.new_zeros(weight_.sizes());

    const Tensor g = grad_out.select(0, 0).to(compute_).unsqueeze(1).div(options_.temperature);  // [N, 1]
    Tensor s;                                                                                    // [N, 1]
    if (options_.entropy && options_.entropy_gradient)
      s = grad_out.select(0, 1).to(compute_).unsqueeze(1).div(options_.temperature);
    const Tensor minus_g = g.neg();
    Buffer scratch(*this), powers(*this);
    std::size_t tile_index = 0;
    for (const Range v : ranges(vocabulary_, tile_vocabulary_)) {
      const Tensor w = widen(weight_.narrow(0, v.begin, v.size));  // [v, H]
      Tensor grad_w;                                               // [v, H]
      if (grad_weight.defined())
        grad_w = narrow_weight ? w.new_zeros(w.sizes()) : grad_weight.narrow(0, v.begin, v.size);
      for (const Range n : ranges(tokens_, tile_tokens_)) {
        Tensor tile = scratch.view(n.size, v.size);
        if (tile_index < kept_.size()) {
          tile.copy_(kept_[tile_index]);
        } else {
          logits(tile, n, v, w);
        }
        ++tile_index;
        tile.sub_(log_sum_.narrow(0, n.begin, n.size));  // log p
        if (s.defined()) {
          // −p·(g + s·(log p + entropy))
          Tensor power = powers.view(n.size, v.size).copy_(tile).exp_();
          const Tensor slope = s.narrow(0, n.begin, n.size);
          const Tensor offset = entropy_.narrow(0, n.begin, n.size).mul(slope).add_(g.narrow(0, n.begin, n.size));
          tile.mul_(slope).add_(offset).mul_(power).neg_();
        } else {
          tile.exp_().mul_(minus_g.narrow(0, n.begin, n.size));
        }
        const auto [index, inside] = target_in(n, v);
        tile.scatter_add_(1, index, g.narrow(0, n.begin, n.size).mul(inside));
        if (grad_hidden.defined()) grad_hidden.narrow(0, n.begin, n.size).addmm_(tile, w);
        if (grad_w.defined()) grad_w.addmm_(tile.t(), widen(hidden_.narrow(0, n.begin, n.size)));
        if (grad_bias.defined()) grad_bias.narrow(0, v.begin, v.size).add_(tile.sum(0));
      }
      if (grad_w.defined() && narrow_weight) grad_weight.narrow(0, v.begin, v.size).copy_(grad_w);
    }
    if (grad_hidden.defined()) ready_[hidden_input] = grad_hidden.to(hidden_.scalar_type());
    if (grad_weight.defined()) ready_[weight_input] = grad_weight;
    if (grad_bias.defined()) ready_[bias_input] = grad_bias.to(bias_.scalar_type());
  }

  void check() const {
    const auto misfit = [](const std::string& what, const std::string& found, const std::string& expected) {
      core::raise("tensor", 1, {.what = what, .found = found, .expected = expected});
    };
    if (hidden_.dim() != 2 || weight_.dim() != 2 || hidden_.size(1) != weight_.size(1) || weight_.size(0) == 0)
      misfit("hidden states and head weight do not fit", text(hidden_.sizes()) + " and " + text(weight_.sizes()),
             "[N, H] and [V, H]");
    if (targets_.dim() != 1 || targets_.size(0) != hidden_.size(0) || targets_.scalar_type() != c10::ScalarType::Long)
      misfit("targets do not fit the hidden states",
             text(targets_.sizes()) + " " + c10::toString(targets_.scalar_type()),
             text(hidden_.sizes().slice(0, 1)) + " Long");
    if (bias_.defined() && (bias_.dim() != 1 || bias_.size(0) != weight_.size(0)))
      misfit("head bias does not fit the head weight", text(bias_.sizes()), text(weight_.sizes().slice(0, 1)));
    if (!hidden_.is_floating_point() || !weight_.is_floating_point())
      misfit("hidden states and head weight must be floating point",
             std::string(c10::toString(hidden_.scalar_type())) + " and " + c10::toString(weight_.scalar_type()),
             "Float, Double, BFloat16 or Half");
    if (!(options_.temperature > 0.0) || !std::isfinite(options_.temperature))
      core::raise("tensor", 3,
                  {.what = "temperature of the log-prob head",
                   .found = std::to_string(options_.temperature),
                   .expected = "a finite number above 0"});
    if (targets_.size(0) == 0) return;
    const std::int64_t low = targets_.min().item<std::int64_t>(), high = targets_.max().item<std::int64_t>();
    if (low < 0 || high >= weight_.size(0))
      core::raise("tensor", 2,
                  {.what = "target token outside the vocabulary",
                   .found = std::to_string(low < 0 ? low : high),
                   .expected = "0 … " + std::to_string(weight_.size(0) - 1),
                   .remedy = "check that tokenizer and model belong together"});
  }

  Tensor hidden_, weight_, bias_, targets_;
  LogProbOptions options_;
  c10::ScalarType compute_ = c10::ScalarType::Float;
  std::int64_t tokens_ = 0, vocabulary_ = 0, tile_tokens_ = 1, tile_vocabulary_ = 1;
  Tensor log_sum_, entropy_;        // [N, 1]
  std::vector<Tensor> kept_;        // the first tiles of logits, vocabulary-major
  std::array<bool, 3> required_{};  // by Input
  std::array<Tensor, 3> ready_;     // gradients computed and not yet fetched
};

}  // namespace log_prob_head_detail

inline LogProbs log_prob_head(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                              const LogProbOptions& options = {}, const Tensor& bias = {}) {
  const std::vector<Tensor> inputs = {hidden, weight, bias};
  const bool graph = needs_gradient(inputs);
  const auto head = std::make_shared<log_prob_head_detail::Head>(hidden, weight, bias, targets, options);
  Tensor out;
  {
    const c10::NoGradGuard no_grad;
    out = head->forward(graph);
  }
  head->require(hidden.requires_grad(), weight.requires_grad(), bias.defined() && bias.requires_grad());
  if (graph)
    out = attach_gradient(out, inputs, [head](std::size_t input, const Tensor& grad, Tensor zeros) {
      return head->gradient(input, grad, std::move(zeros));
    });
  LogProbs result{out.select(0, 0), {}};
  if (options.entropy) result.entropy = options.entropy_gradient ? out.select(0, 1) : out.select(0, 1).detach();
  return result;
}

}  // namespace rlalgo::tensor
