// Definitions of log_prob_head.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/tensor/custom_gradient.hpp>
#include <rlalgo/tensor/detail/bfloat16_kernel.hpp>
#include <rlalgo/tensor/detail/cuda_head.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/log_prob_head.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::tensor {

namespace detail {

RLALGO_INLINE std::string text(c10::IntArrayRef sizes) {
  std::ostringstream out;
  out << sizes;
  return out.str();
}

inline std::optional<CudaHead> head_by_kernels(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                                               const Tensor& targets, const LogProbOptions& options) {
  if (options.cap > 0.0) return std::nullopt;  // they know none
  return cuda_head(hidden, weight, bias, targets, options.temperature, options.tile_tokens, options.tile_vocabulary);
}

RLALGO_INLINE LogProbTiles::LogProbTiles(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                                         const Tensor& targets, const LogProbOptions& options)
    : hidden_(hidden.detach()),
      weight_(weight.detach()),
      bias_(bias.defined() ? bias.detach() : bias),
      targets_(targets.to(hidden.device())),
      required_{hidden.requires_grad(), weight.requires_grad(), bias.defined() && bias.requires_grad()},
      options_(options),
      hidden_version_(hidden_._version()),
      weight_version_(weight_._version()) {
  options_.entropy = options_.entropy || options_.entropy_gradient;
  check(targets);
  if (options.adds_weight_gradient && required_.weight && required_.hidden && weight.is_leaf()) leaf_ = weight;
  const auto promoted = c10::promoteTypes(hidden.scalar_type(), weight.scalar_type());
  compute_ = promoted == c10::ScalarType::Double ? c10::ScalarType::Double : c10::ScalarType::Float;
  tokens_ = hidden_.size(0);
  vocabulary_ = weight_.size(0);
  if (tokens_ > 0 && options_.cap == 0.0 && hidden.is_cpu() && hidden.scalar_type() == c10::ScalarType::BFloat16 &&
      weight.scalar_type() == c10::ScalarType::BFloat16 && weight_.is_contiguous() && has_bfloat16_kernel()) {
    narrow_ = std::make_unique<Bfloat16Head>(
        hidden_.contiguous(), weight_, bias_.defined() ? widen(bias_) : Tensor(), targets_,
        Bfloat16Head::Options{options_.temperature, options_.entropy, options_.greedy, options_.tile_tokens,
                              options_.tile_vocabulary});
    return;
  }
  choose_tiles();
  // On a device tiles are widened as they come: no copy of all states lies there until the backward pass.
  if (hidden.is_cpu()) states_ = whole_rows() ? widen(hidden_) : widen(hidden_).t().contiguous().t();
}

RLALGO_INLINE Tensor LogProbTiles::forward(bool keep) {
  if (narrow_) return narrow_->forward();
  Tensor out = hidden_.new_empty({options_.entropy ? 2 : 1, tokens_}, hidden_.options().dtype(compute_));
  if (options_.greedy) greedy_ = hidden_.new_empty({tokens_}, out.options());
  // The copies of the hidden states that backward makes count, too: what is extra stays the same for any N. On a device it makes none.
  const std::int64_t copies =
      hidden_.is_cpu() ? 2 * tokens_ * hidden_.size(1) * static_cast<std::int64_t>(c10::elementSize(compute_)) : 0;
  budget_ = keep ? std::max<std::int64_t>(options_.cache_bytes - copies, 0) : 0;
  keeps_ = keep;
  kept_.clear();
  if (const auto head = head_by_kernels(hidden_, weight_, bias_, targets_, options_)) {
    log_sum_ = hidden_.new_empty({tokens_, 1}, out.options());
    if (options_.entropy) entropy_ = out.select(0, 1).unsqueeze(1);
    head->forward({out.select(0, 0), log_sum_, entropy_, greedy_});
    return out;
  }
  if (whole_rows())
    forward_rows(out);
  else
    forward_tiles(out);
  return out;
}

RLALGO_INLINE std::vector<Tensor> LogProbTiles::backward(const Tensor& grad_out) {
  const c10::NoGradGuard no_grad;
  if (hidden_._version() != hidden_version_ || weight_._version() != weight_version_)
    core::raise("tensor", 5,
                {.what = "hidden states or head weight were changed in place between forward and backward",
                 .remedy = "update parameters after the backward pass"});
  if (narrow_) return backward_narrow(grad_out);
  if (const auto head = head_by_kernels(hidden_, weight_, bias_, targets_, options_)) {
    CudaHead::Gradients into{.adds = leaf_.defined() && leaf_.grad().defined()};
    if (required_.hidden) into.hidden = hidden_.new_empty(hidden_.sizes());
    if (required_.weight) into.weight = into.adds ? leaf_.grad() : weight_.new_empty(weight_.sizes());
    if (required_.bias) into.bias = hidden_.new_empty({vocabulary_}, log_sum_.options());
    const bool of_entropy = options_.entropy && options_.entropy_gradient;
    head->backward(grad_out.select(0, 0), of_entropy ? grad_out.select(0, 1) : Tensor(),
                   {.log_prob = {}, .log_sum = log_sum_, .entropy = entropy_, .greedy = {}}, into);
    if (leaf_.defined()) leaf_.mutable_grad() = into.weight;
    return {into.hidden, leaf_.defined() ? Tensor() : into.weight,
            required_.bias ? into.bias.to(bias_.scalar_type()) : Tensor()};
  }
  const Tensor g = grad_out.select(0, 0).to(compute_).unsqueeze(1).div(options_.temperature);  // [N, 1]
  Tensor s;                                                                                    // [N, 1]
  if (options_.entropy && options_.entropy_gradient)
    s = grad_out.select(0, 1).to(compute_).unsqueeze(1).div(options_.temperature);
  // Without entropy, ∂/∂l = −g (p − 1[target]): the factor −g is applied to the short sides of the products.
  const auto factored = [&](const Tensor& states, const Tensor& of) {
    return s.defined() ? widen(states) : widen(states).mul(of.neg());
  };
  const Tensor states = hidden_.is_cpu() && required_.weight ? factored(hidden_, g) : Tensor();  // [N, H]
  const bool narrow_weight = weight_.scalar_type() != compute_, narrow_states = hidden_.scalar_type() != compute_;
  Tensor grad_hidden, grad_weight, grad_bias;
  if (required_.hidden) grad_hidden = hidden_.new_empty(hidden_.sizes());
  const bool shares = gradient_memory_.defined();
  const bool adds = leaf_.defined() && leaf_.grad().defined();
  if (required_.weight)
    grad_weight = adds           ? leaf_.grad()
                  : tokens_ == 0 ? weight_.new_zeros(weight_.sizes())
                  : shares       ? std::exchange(gradient_memory_, Tensor())
                                 : weight_.new_empty(weight_.sizes());
  if (required_.bias) grad_bias = g.new_zeros({vocabulary_});
  Buffer scratch(*this), powers(*this);
  // On a device the gradient of narrow states is summed in float32 for so many tokens at a time, and the weight's rounded as often.
  const bool in_blocks = required_.hidden && narrow_states && !hidden_.is_cpu() && !shares;
  const std::int64_t block_tokens =
      in_blocks ? std::max(tile_tokens_, CudaHead::most_elements / hidden_.size(1) / tile_tokens_ * tile_tokens_)
                : std::max<std::int64_t>(tokens_, 1);
  const auto tiles_of_tokens = ranges(tokens_, tile_tokens_).size();
  for (const Range block : ranges(tokens_, block_tokens)) {
    const auto of_block = [&](const Tensor& x) { return x.narrow(0, block.begin, block.size); };
    Tensor sum;  // [block, H] of the gradient of the states
    if (required_.hidden)
      sum = narrow_states ? g.new_zeros({block.size, hidden_.size(1)}) : of_block(grad_hidden).zero_();
    const bool adds_here = adds || block.begin > 0;
    std::size_t first_tile = static_cast<std::size_t>(block.begin / tile_tokens_);  // of these tokens
    for (const Range v : ranges(vocabulary_, tile_vocabulary_)) {
      const Tensor w = widen(weight_.narrow(0, v.begin, v.size));  // [v, H]
      // While logits of later tokens still lie in the gradient's memory, it is summed up elsewhere.
      const bool apart = narrow_weight || (shares && tile_tokens_ < tokens_);
      Tensor grad_w;  // [v, H]
      if (required_.weight) grad_w = apart ? w.new_empty(w.sizes()) : grad_weight.narrow(0, v.begin, v.size);
      std::size_t tile_index = std::exchange(first_tile, first_tile + tiles_of_tokens);
      for (const Range in_block : ranges(block.size, tile_tokens_)) {
        const Range n{block.begin + in_block.begin, in_block.size};
        Tensor tile = scratch.view(n.size, v.size);
        const auto rows = [&](const Tensor& x) { return x.narrow(0, n.begin, n.size); };
        log_probabilities(tile, tile_index++, n, v, w);
        const Tensor slope = options_.cap > 0.0 ? slope_of_cap(tile, n) : Tensor();
        const auto [index, inside] = target_in(n, v);
        if (s.defined()) {
          Tensor power = powers.view(n.size, v.size).copy_(tile).exp_();
          tile.mul_(rows(s)).add_(rows(entropy_).mul(rows(s)).add_(rows(g))).mul_(power).neg_();
          tile.scatter_add_(1, index, rows(g).mul(inside));
        } else {
          tile.exp_().scatter_add_(1, index, inside.to(compute_).neg_());
        }
        if (slope.defined()) tile.mul_(slope);
        if (required_.hidden) addmm_(sum.narrow(0, in_block.begin, n.size), tile, w);
        if (required_.weight)
          addmm_(grad_w, tile.t(), states.defined() ? rows(states) : factored(rows(hidden_), rows(g)),
                 in_block.begin == 0 && (apart || !adds_here) ? 0.0 : 1.0);
        if (required_.bias)
          grad_bias.narrow(0, v.begin, v.size).add_((s.defined() ? tile : tile.mul_(rows(g).neg())).sum(0));
      }
      if (required_.weight && apart) {
        Tensor total = grad_weight.narrow(0, v.begin, v.size);
        adds_here ? total.add_(grad_w) : total.copy_(grad_w);
      }
    }
    if (!required_.hidden) continue;
    if (!s.defined()) sum.mul_(of_block(g)).neg_();
    if (narrow_states) of_block(grad_hidden).copy_(sum);
  }
  if (shares || apart_from_gradient_) kept_.clear();
  gradient_memory_ = Tensor();
  if (leaf_.defined()) leaf_.mutable_grad() = std::exchange(grad_weight, Tensor());
  if (required_.bias) grad_bias = grad_bias.to(bias_.scalar_type());
  return {grad_hidden, grad_weight, grad_bias};
}

RLALGO_INLINE std::vector<Tensor> LogProbTiles::backward_narrow(const Tensor& grad_out) {
  const bool adds = leaf_.defined() && leaf_.grad().defined();
  const Bfloat16Head::Gradients out{
      .hidden = required_.hidden ? hidden_.new_empty(hidden_.sizes()) : Tensor(),
      .weight = !required_.weight ? Tensor()
                : adds            ? leaf_.grad()
                                  : weight_.new_empty(weight_.sizes()),
      .bias = required_.bias ? bias_.new_empty({vocabulary_}, bias_.options().dtype(compute_)) : Tensor()};
  const bool of_entropy = options_.entropy && options_.entropy_gradient;
  narrow_->backward(grad_out.select(0, 0), of_entropy ? grad_out.select(0, 1) : Tensor(), adds, out);
  if (leaf_.defined()) leaf_.mutable_grad() = out.weight;
  return {out.hidden, leaf_.defined() ? Tensor() : out.weight,
          required_.bias ? out.bias.to(bias_.scalar_type()) : Tensor()};
}

RLALGO_INLINE std::vector<Range> LogProbTiles::ranges(std::int64_t total, std::int64_t step) {
  std::vector<Range> out;
  for (std::int64_t begin = 0; begin < total; begin += step) out.push_back({begin, std::min(step, total - begin)});
  return out;
}

RLALGO_INLINE void LogProbTiles::forward_rows(Tensor& out) {
  const Tensor w = widen(weight_);
  Buffer scratch(*this);
  if (options_.entropy) entropy_ = out.select(0, 1).unsqueeze(1);
  for (const Range n : ranges(tokens_, tile_tokens_)) {
    Tensor tile = scratch.view(n.size, vocabulary_);
    logits(tile, n, Range{0, vocabulary_}, w);
    const Tensor log_p = tile.log_softmax(1);
    out.select(0, 0)
        .narrow(0, n.begin, n.size)
        .copy_(log_p.gather(1, targets_.narrow(0, n.begin, n.size).unsqueeze(1)).squeeze(1));
    if (options_.greedy)
      greedy_.narrow(0, n.begin, n.size).copy_(out.select(0, 0).narrow(0, n.begin, n.size).ge(log_p.amax(1)));
    if (options_.entropy)
      entropy_.narrow(0, n.begin, n.size).copy_(tile.copy_(log_p).exp_().mul_(log_p).sum(1, true).neg_());
    kept_.push_back(spend(tile.numel()) ? log_p : Tensor());
  }
}

RLALGO_INLINE void LogProbTiles::forward_tiles(Tensor& out) {
  const auto options = out.options();
  Tensor maximum = hidden_.new_empty({tokens_, 1}, options);                        // running max of the logits
  Tensor sum = hidden_.new_empty({tokens_, 1}, options);                            // Σ exp(l − max)
  Tensor moment = hidden_.new_empty({options_.entropy ? tokens_ : 0, 1}, options);  // Σ exp(l − max)(l − max)
  Tensor chosen = hidden_.new_zeros({tokens_, 1}, options);                         // l of the target
  Buffer scratch(*this), powers(*this);
  if (keeps_ && required_.weight && weight_.scalar_type() == compute_ && weight_.is_contiguous()) {
    apart_from_gradient_ = leaf_.defined() && leaf_.grad().defined();
    if (!apart_from_gradient_) gradient_memory_ = weight_.new_empty(weight_.sizes());
  }
  for (const Range v : ranges(vocabulary_, tile_vocabulary_)) {
    const Tensor w = widen(weight_.narrow(0, v.begin, v.size));  // [v, H]
    const bool first = v.begin == 0;
    for (const Range n : ranges(tokens_, tile_tokens_)) {
      Tensor tile = scratch.view(n.size, v.size);  // [n, v]
      kept_.push_back(room_for(n, v));
      const Tensor raw = kept_.back().defined() ? kept_.back() : tile;
      logits(raw, n, v, w);
      const auto [index, inside] = target_in(n, v);
      chosen.narrow(0, n.begin, n.size).add_(raw.gather(1, index).masked_fill_(inside.eq(0), 0.0));
      // Move the running sums to the new maximum.
      Tensor m = maximum.narrow(0, n.begin, n.size), z = sum.narrow(0, n.begin, n.size);
      Tensor e = options_.entropy ? moment.narrow(0, n.begin, n.size) : Tensor();
      const Tensor peak = raw.amax(1, true);
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
      subtract_into(tile, raw, m);
      if (e.defined()) {
        Tensor power = powers.view(n.size, v.size).copy_(tile).exp_();
        z.add_(power.sum(1, true));
        e.add_(tile.mul_(power).sum(1, true));
      } else {
        z.add_(tile.exp_().sum(1, true));
      }
    }
  }
  if (options_.greedy) greedy_.copy_(chosen.ge(maximum).squeeze(1));
  log_sum_ = maximum.add(sum.log());
  out.select(0, 0).copy_(chosen.sub_(log_sum_).squeeze(1));
  if (options_.entropy) {
    entropy_ = sum.log().sub_(moment.div_(sum));
    out.select(0, 1).copy_(entropy_.squeeze(1));
  }
}

RLALGO_INLINE bool LogProbTiles::spend(std::int64_t elements) {
  const std::int64_t bytes = elements * static_cast<std::int64_t>(c10::elementSize(compute_));
  const bool fits = bytes <= budget_;
  budget_ = fits ? budget_ - bytes : 0;
  return fits;
}

RLALGO_INLINE Tensor LogProbTiles::room_for(Range n, Range v) {
  if (gradient_memory_.defined() && n.begin + n.size <= weight_.size(1))
    return gradient_memory_.narrow(0, v.begin, v.size)
        .view({-1})
        .narrow(0, n.begin * v.size, n.size * v.size)
        .view({v.size, n.size})
        .t();
  const bool would_share = apart_from_gradient_ && hidden_.is_cpu() && n.begin + n.size <= weight_.size(1);
  if (!would_share && (!keeps_ || !spend(n.size * v.size))) return {};
  return hidden_.new_empty({v.size, n.size}, hidden_.options().dtype(compute_)).t();
}

RLALGO_INLINE void LogProbTiles::logits(Tensor tile, Range n, Range v, const Tensor& w) const {
  const double divisor = options_.cap > 0.0 ? options_.cap : options_.temperature;
  const Tensor states =
      states_.defined() ? states_.narrow(0, n.begin, n.size) : widen(hidden_.narrow(0, n.begin, n.size));
  addmm_(tile, states, w.t(), 0.0, 1.0 / divisor);
  if (bias_.defined()) tile.add_(widen(bias_.narrow(0, v.begin, v.size)), 1.0 / divisor);
  if (options_.cap > 0.0) tile.tanh_().mul_(options_.cap / options_.temperature);
}

RLALGO_INLINE Tensor LogProbTiles::slope_of_cap(const Tensor& log_p, Range n) const {
  const Tensor bent = log_p.add(log_sum_.narrow(0, n.begin, n.size)).mul_(options_.temperature / options_.cap);
  return bent.mul_(bent).neg_().add_(1.0);
}

RLALGO_INLINE void LogProbTiles::log_probabilities(Tensor& tile, std::size_t tile_index, Range n, Range v,
                                                   const Tensor& w) const {
  const bool kept = tile_index < kept_.size() && kept_[tile_index].defined();
  if (!kept) logits(tile, n, v, w);
  if (!whole_rows())
    subtract_into(tile, kept ? kept_[tile_index] : tile, log_sum_.narrow(0, n.begin, n.size));
  else
    tile.copy_(kept ? kept_[tile_index] : tile.log_softmax(1));
}

RLALGO_INLINE std::pair<Tensor, Tensor> LogProbTiles::target_in(Range n, Range v) const {
  const Tensor column = targets_.narrow(0, n.begin, n.size).sub(v.begin).unsqueeze(1);
  const Tensor index = column.clamp(0, v.size - 1);
  return {index, index.eq(column)};
}

RLALGO_INLINE void LogProbTiles::choose_tiles() {
  constexpr std::int64_t elements = std::int64_t{1} << 19;
  std::int64_t tokens = options_.tile_tokens, vocabulary = options_.tile_vocabulary;
  if (tokens <= 0) tokens = std::max<std::int64_t>(512, elements / vocabulary_);
  // On a device states are widened tile by tile.
  if (!hidden_.is_cpu())
    tokens = std::min(tokens, std::max<std::int64_t>(1, 8 * elements / std::max<std::int64_t>(1, hidden_.size(1))));
  tile_tokens_ = std::clamp<std::int64_t>(tokens, 1, std::max<std::int64_t>(tokens_, 1));
  if (vocabulary <= 0) {
    vocabulary = elements / tile_tokens_;
    // A narrow weight is widened tile by tile: bound that copy too.
    if (weight_.scalar_type() != compute_)
      vocabulary =
          std::min(vocabulary, std::max<std::int64_t>(256, 2 * elements / std::max<std::int64_t>(1, weight_.size(1))));
  }
  tile_vocabulary_ = std::clamp<std::int64_t>(vocabulary, 1, vocabulary_);
}

RLALGO_INLINE void LogProbTiles::check(const Tensor& targets) const {
  const auto misfit = [](const std::string& what, const std::string& found, const std::string& expected) {
    core::raise("tensor", 1, {.what = what, .found = found, .expected = expected});
  };
  if (hidden_.dim() != 2 || weight_.dim() != 2 || hidden_.size(1) != weight_.size(1) || weight_.size(0) == 0)
    misfit("hidden states and head weight do not fit", text(hidden_.sizes()) + " and " + text(weight_.sizes()),
           "[N, H] and [V, H]");
  if (targets_.dim() != 1 || targets_.size(0) != hidden_.size(0) || targets_.scalar_type() != c10::ScalarType::Long)
    misfit("targets do not fit the hidden states", text(targets_.sizes()) + " " + c10::toString(targets_.scalar_type()),
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
  if (targets.size(0) == 0 || !targets.is_cpu()) return;
  const Tensor here = targets.contiguous();
  require_targets({here.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(here.numel())}, weight_.size(0));
}

}  // namespace detail

RLALGO_INLINE void require_targets(std::span<const std::int64_t> targets, std::int64_t vocabulary) {
  if (targets.empty()) return;
  const auto [low, high] = std::minmax_element(targets.begin(), targets.end());
  if (*low >= 0 && *high < vocabulary) return;
  core::raise("tensor", 2,
              {.what = "target token outside the vocabulary",
               .found = std::to_string(*low < 0 ? *low : *high),
               .expected = "0 … " + std::to_string(vocabulary - 1),
               .remedy = "check that tokenizer and model belong together"});
}

RLALGO_INLINE LogProbs log_prob_head(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                                     const LogProbOptions& options, const Tensor& bias) {
  const std::vector<Tensor> inputs = {hidden, weight, bias};
  const bool graph = needs_gradient(inputs);
  const auto head = std::make_shared<detail::LogProbTiles>(hidden, weight, bias, targets, options);
  Tensor out;
  {
    const c10::NoGradGuard no_grad;
    out = head->forward(graph);
  }
  if (graph) {
    const Tensor through = head->adds_weight_gradient() ? Tensor() : weight;
    out = attach_gradient(out, {hidden, through, bias}, [head](const Tensor& grad) { return head->backward(grad); });
  }
  LogProbs result{out.select(0, 0), {}, head->greedy()};
  if (out.size(0) == 2) result.entropy = options.entropy_gradient ? out.select(0, 1) : out.select(0, 1).detach();
  return result;
}

}  // namespace rlalgo::tensor
