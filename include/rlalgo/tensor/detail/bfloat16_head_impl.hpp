// Definitions of bfloat16_head.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/cpu/attention_rows.hpp>
#include <rlalgo/cpu/logit_rows.hpp>
#include <rlalgo/cpu/products.hpp>
#include <rlalgo/tensor/detail/bfloat16_head.hpp>
#include <rlalgo/tensor/detail/bfloat16_kernel.hpp>
#include <rlalgo/tensor/detail/block_products.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/on_threads.hpp>

namespace rlalgo::tensor::detail {

inline constexpr std::int64_t block_words = 64, stretch_words = 512;

RLALGO_INLINE Bfloat16Head::Bfloat16Head(Tensor hidden, Tensor weight, Tensor bias, const Tensor& targets,
                                         Options options)
    : hidden_(std::move(hidden)),
      weight_(std::move(weight)),
      options_(options),
      tokens_(hidden_.size(0)),
      words_(weight_.size(0)),
      width_(weight_.size(1)) {
  constexpr std::int64_t panel = 32;
  const std::int64_t chunk = options_.tile_tokens > 0 ? options_.tile_tokens : 512;
  chunk_ = (std::min(chunk, std::max<std::int64_t>(tokens_, 1)) + panel - 1) / panel * panel;
  if (bias.defined()) bias_ = bias.mul(1.0 / options_.temperature).contiguous();
  const auto* const target = targets.const_data_ptr<std::int64_t>();
  for (std::int64_t n = 0; n < tokens_; ++n) by_target_.emplace_back(target[n], n);
  std::sort(by_target_.begin(), by_target_.end());
}

RLALGO_INLINE Bfloat16Head::Range Bfloat16Head::targets_in(std::int64_t begin, std::int64_t end) const {
  const auto at = [&](std::int64_t word) {
    return std::lower_bound(by_target_.begin(), by_target_.end(), std::pair(word, std::int64_t{0})) -
           by_target_.begin();
  };
  return {at(begin), at(end)};
}

RLALGO_INLINE std::int64_t Bfloat16Head::stretches() const { return (words_ + stretch_words - 1) / stretch_words; }

#if defined(__x86_64__)

namespace rows = cpu::lanes::rows;
namespace logit_rows = cpu::lanes::logit_rows;
static_assert(cpu::amx::Bfloat16::tile_columns == 32 && cpu::avx512::Bfloat16::tile_columns == 32);

template <class Kernel>
void Bfloat16Head::reduce(const Tensor& maximum, const Tensor& sum, const Tensor& moment, float* chosen) const {
  using Blocks = BlockProducts<Kernel>;
  using Number = typename Blocks::Number;
  const auto* const w = weight_.const_data_ptr<Number>();
  const float* const bias = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr;
  cpu::tiles::Room states;
  const auto hidden =
      Blocks::pack_right(Blocks::strided(hidden_.const_data_ptr<Number>(), width_, 1), tokens_, width_, states);
  const auto row_of = [&](const Tensor& x, std::int64_t stretch) {
    return x.defined() ? x.mutable_data_ptr<float>() + stretch * tokens_ : nullptr;
  };
  const auto inverse = static_cast<float>(1.0 / options_.temperature);
  on_threads(stretches(), [&](std::int64_t stretch) {
    thread_local cpu::tiles::Room left_room, products;
    [[maybe_unused]] const typename Kernel::Scope scope;
    float* const top = row_of(maximum, stretch);
    float* const total = row_of(sum, stretch);
    float* const first_moment = row_of(moment, stretch);
    std::fill_n(top, tokens_, -std::numeric_limits<float>::infinity());
    std::fill_n(total, tokens_, 0.0f);
    if (first_moment != nullptr) std::fill_n(first_moment, tokens_, 0.0f);
    float* const block = products.of(block_words * chunk_);
    const std::int64_t last = std::min(words_, (stretch + 1) * stretch_words);
    for (std::int64_t word = stretch * stretch_words; word < last; word += block_words) {
      const std::int64_t count = std::min(block_words, last - word);
      const float* const left =
          Blocks::pack_left(Blocks::strided(w + word * width_, width_, 1), count, width_, left_room);
      const Range targets = targets_in(word, word + count);
      for (std::int64_t n = 0; n < tokens_; n += chunk_) {
        const std::int64_t some = std::min(chunk_, tokens_ - n);
        Blocks::multiply(count, left, hidden.from(n), some, width_, block, chunk_, false);
        const logit_rows::Block logits{block, chunk_, count, some, bias == nullptr ? nullptr : bias + word, inverse};
        if (first_moment != nullptr)
          logit_rows::reduce<true>(logits, top + n, total + n, first_moment + n);
        else
          logit_rows::reduce<false>(logits, top + n, total + n, nullptr);
        for (std::int64_t i = targets.begin; i < targets.end; ++i) {
          const auto [target, token] = by_target_[static_cast<std::size_t>(i)];
          if (token < n || token >= n + some) continue;
          chosen[token] =
              block[(target - word) * chunk_ + token - n] * inverse + (bias == nullptr ? 0.0f : bias[target]);
        }
      }
    }
  });
}

template <class Kernel>
void Bfloat16Head::differentiate(const float* of_log_prob, const float* of_entropy, bool adds,
                                 const Gradients& gradients) const {
  using Blocks = BlockProducts<Kernel>;
  using Number = typename Blocks::Number;
  const auto* const w = weight_.const_data_ptr<Number>();
  const auto* const h = hidden_.const_data_ptr<Number>();
  const float* const bias = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr;
  const float* const log_prob = log_prob_.const_data_ptr<float>();
  const cpu::LogitTokens tokens{log_sum_.const_data_ptr<float>(), of_log_prob, of_entropy,
                                of_entropy == nullptr ? nullptr : entropy_.const_data_ptr<float>()};
  const auto inverse = static_cast<float>(1.0 / options_.temperature);
  const bool of_hidden = gradients.hidden.defined(), of_weight = gradients.weight.defined();
  const std::int64_t panels = Blocks::up(width_, Blocks::width) / Blocks::width;
  cpu::tiles::Room states, states_by_row;
  const auto hidden = Blocks::pack_right(Blocks::strided(h, width_, 1), tokens_, width_, states);
  // h with tokens as terms, a chunk after the other.
  const std::int64_t chunk_panel = Blocks::width * Blocks::steps(chunk_), chunk_floats = panels * chunk_panel;
  float* const by_row = states_by_row.of(Blocks::up(tokens_, chunk_) / chunk_ * chunk_floats);
  for (std::int64_t n = 0; of_weight && n < tokens_; n += chunk_)
    Blocks::pack_panels(Blocks::strided(h + n * width_, 1, width_), width_, std::min(chunk_, tokens_ - n), chunk_panel,
                        by_row + n / chunk_ * chunk_floats);
  // A tile of words: ∂/∂l [tile, stride], and w with words as terms, a stretch after the other.
  constexpr std::int64_t elements = std::int64_t{1} << 21U;
  const std::int64_t wanted =
      options_.tile_words > 0 ? options_.tile_words : elements / std::max<std::int64_t>(1, tokens_);
  const std::int64_t tile = std::clamp(Blocks::up(wanted, block_words), block_words, Blocks::up(words_, block_words));
  const std::int64_t stride = Blocks::up(tokens_, 32), stretch = std::min(tile, stretch_words);
  const std::int64_t stretch_panel = Blocks::width * Blocks::steps(stretch), stretch_floats = panels * stretch_panel;
  cpu::tiles::Room of_logits, weights_by_row, sums;
  auto* const slopes = reinterpret_cast<Number*>(of_logits.of(tile * stride / 2));
  float* const transposed =
      of_hidden ? weights_by_row.of(Blocks::up(tile, stretch) / stretch * stretch_floats) : nullptr;
  float* const grad_hidden = of_hidden ? sums.of(tokens_ * width_) : nullptr;

  // ∂/∂l of a block of words from `word` on, number `at` of its tile, and what follows from it alone.
  const auto of_words = [&](std::int64_t word, std::int64_t at, std::int64_t count) {
    thread_local cpu::tiles::Room left_room, products, grad_room;
    float* const block = products.of(block_words * chunk_);
    Number* const own = slopes + at * stride;
    const float* const left =
        Blocks::pack_left(Blocks::strided(w + word * width_, width_, 1), count, width_, left_room);
    for (std::int64_t n = 0; n < tokens_; n += chunk_) {
      const std::int64_t some = std::min(chunk_, tokens_ - n);
      Blocks::multiply(count, left, hidden.from(n), some, width_, block, chunk_, false);
      const logit_rows::Block logits{block, chunk_, count, some, bias == nullptr ? nullptr : bias + word, inverse};
      if (of_entropy != nullptr)
        logit_rows::differentiate<true>(logits, tokens.from(n), own + n, stride);
      else
        logit_rows::differentiate<false>(logits, tokens.from(n), own + n, stride);
    }
    const Range targets = targets_in(word, word + count);
    for (std::int64_t i = targets.begin; i < targets.end; ++i) {
      const auto [target, token] = by_target_[static_cast<std::size_t>(i)];
      own[(target - word) * stride + token] = Number(tokens.of_target(token, log_prob[token]));
    }
    if (of_weight) {
      float* const grad = grad_room.of(block_words * width_);
      for (std::int64_t n = 0; n < tokens_; n += chunk_) {
        const std::int64_t some = std::min(chunk_, tokens_ - n);
        Blocks::multiply(Blocks::strided(own + n, stride, 1), count, {by_row + n / chunk_ * chunk_floats, chunk_panel},
                         width_, some, grad, width_, n > 0, left_room);
      }
      auto* const out = gradients.weight.mutable_data_ptr<Number>() + word * width_;
      for (std::int64_t v = 0; v < count; ++v)
        rows::put<Number>(grad + v * width_, 1.0f, adds, out + v * width_, width_);
    }
    if (of_hidden)
      Blocks::pack_panels(Blocks::strided(w + word * width_, 1, width_), width_, count, stretch_panel,
                          transposed + at / stretch * stretch_floats + Blocks::steps(at % stretch) * Blocks::width);
    if (gradients.bias.defined())
      for (std::int64_t v = 0; v < count; ++v)
        gradients.bias.mutable_data_ptr<float>()[word + v] = logit_rows::total(own + v * stride, tokens_);
  };
  constexpr std::int64_t block_tokens = block_words / Blocks::height * Blocks::height;
  for (std::int64_t begin = 0; begin < words_; begin += tile) {
    const std::int64_t end = std::min(words_, begin + tile);
    on_stretches(end - begin, block_words, [&](std::int64_t from, std::int64_t to) {
      [[maybe_unused]] const typename Kernel::Scope scope;
      of_words(begin + from, from, to - from);
    });
    if (!of_hidden) continue;
    on_stretches(tokens_, block_tokens, [&](std::int64_t from, std::int64_t to) {
      thread_local cpu::tiles::Room left_room;
      [[maybe_unused]] const typename Kernel::Scope scope;
      for (std::int64_t at = 0; at < end - begin; at += stretch) {
        const std::int64_t depth = std::min(stretch, end - begin - at);
        Blocks::multiply(Blocks::strided(slopes + at * stride + from, 1, stride), to - from,
                         {transposed + at / stretch * stretch_floats, stretch_panel}, width_, depth,
                         grad_hidden + from * width_, width_, begin + at > 0, left_room);
      }
    });
  }
  if (of_hidden)
    for (std::int64_t n = 0; n < tokens_; ++n)
      rows::put<Number>(grad_hidden + n * width_, 1.0f, false, gradients.hidden.mutable_data_ptr<Number>() + n * width_,
                        width_);
}

RLALGO_INLINE Tensor Bfloat16Head::forward() {
  const auto options = hidden_.options().dtype(at::kFloat);
  const Tensor out = empty({options_.entropy ? 2 : 1, tokens_}, options), chosen = zeros({tokens_}, options);
  const Tensor maximum = empty({stretches(), tokens_}, options), sum = empty({stretches(), tokens_}, options);
  const Tensor moment = options_.entropy ? empty({stretches(), tokens_}, options) : Tensor();
  with_bfloat16_kernel(
      [&]<class Kernel>(Kernel) { reduce<Kernel>(maximum, sum, moment, chosen.mutable_data_ptr<float>()); });
  const Tensor top = maximum.amax(0);     // [N]
  const Tensor shift = maximum.sub(top);  // [stretches, N]
  const Tensor factor = shift.exp();
  const Tensor all = factor.mul(sum).sum(0);
  log_sum_ = top.add(all.log());
  if (options_.greedy) greedy_ = chosen.ge(top).to(at::kFloat);
  out.select(0, 0).copy_(chosen.sub(log_sum_));
  log_prob_ = out.select(0, 0).clone();
  if (options_.entropy) {
    entropy_ = all.log().sub(factor.mul(moment.add(shift.mul(sum))).sum(0).div(all));
    out.select(0, 1).copy_(entropy_);
  }
  return out;
}

RLALGO_INLINE void Bfloat16Head::backward(const Tensor& of_log_prob, const Tensor& of_entropy, bool adds,
                                          const Gradients& gradients) {
  const auto over_temperature = [&](const Tensor& x) { return x.mul(1.0 / options_.temperature).contiguous(); };
  const Tensor g = over_temperature(of_log_prob), s = of_entropy.defined() ? over_temperature(of_entropy) : Tensor();
  with_bfloat16_kernel([&]<class Kernel>(Kernel) {
    differentiate<Kernel>(g.const_data_ptr<float>(), s.defined() ? s.const_data_ptr<float>() : nullptr, adds,
                          gradients);
  });
}

#else

RLALGO_INLINE Tensor Bfloat16Head::forward() { return {}; }
RLALGO_INLINE void Bfloat16Head::backward(const Tensor&, const Tensor&, bool, const Gradients&) {}

#endif

}  // namespace rlalgo::tensor::detail
