// The vocabulary of policy-gradient losses: the quantities their parts compute with, and what each part is.
//
//   x, o, f   log-probs of the sampled tokens: current policy (with graph), old policy, reference
//   ℓ = x − o                       log-ratio of a token
//   c                               importance ratio: of a token [N], or of a whole row [R] (its RatioLevel decides)
//   A                               advantage of a row
//   w                               weights of tokens that do not depend on the ratio: masks, corrections
//   loss = Reduction( Surrogate(c, x, A)·w + β·k )
//
// Tokens whose mask is 0 enter as x = ℓ = 0, so whatever they hold cannot reach a value or a gradient.
#pragma once

#include <concepts>
#include <cstdint>

#include <rlalgo/loss/concept.hpp>
#include <rlalgo/loss/hooks.hpp>
#include <rlalgo/loss/metrics.hpp>
#include <rlalgo/tensor/masked.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::loss {

enum class Unit { token, row };  // what one importance ratio belongs to

struct PolicyTerms {
  const Scored& scored;
  Unit unit;                         // of ratio and advantage
  Tensor log_prob;                   // [N] x
  Tensor log_ratio;                  // [N] ℓ
  Tensor ratio;                      // [N] or [R] c, with graph
  Tensor advantage;                  // like ratio
  Tensor token_advantage;            // [N]
  Tensor sampling_ratio{};           // ρ for a surrogate that takes it into a weight of its own, else undefined
  Unit sampling_unit = Unit::token;  // [N] or [R]

  [[nodiscard]] std::int64_t rows() const { return scored.row_length.size(0); }
  // A tensor like ratio, as one value per token.
  [[nodiscard]] Tensor per_token(const Tensor& x) const {
    return unit == Unit::row ? tensor::spread(x, scored.row) : x;
  }
};

// The importance ratio: log-ratios [N] → c in its unit.
template <class T>
concept RatioLevel = requires(const T& level, const Tensor& log_ratio, const Scored& scored) {
  typename T::Config;
  requires std::constructible_from<T, typename T::Config>;
  { T::unit } -> std::convertible_to<Unit>;
  { level(log_ratio, scored) } -> std::same_as<Tensor>;
};

// The policy's loss per token [N], to be minimised; reports its own metrics.
template <class T>
concept Surrogate = requires(const T& surrogate, const PolicyTerms& terms, Metrics& metrics) {
  typename T::Config;
  requires std::constructible_from<T, typename T::Config>;
  { surrogate(terms, metrics) } -> std::same_as<Tensor>;
};

// Whether a surrogate takes the ratio between generator and trainer into a weight of its own.
template <class T>
[[nodiscard]] constexpr bool takes_sampling_ratio(const T& surrogate) {
  if constexpr (hooks_of<T>().takes_sampling_ratio)
    return surrogate.takes_sampling_ratio();
  else
    return false;
}

// What the surrogate's loss of each token is multiplied with, without gradient: [N], or [R] where its unit()
// (Hooks::unit) is the row.
template <class T>
concept TokenWeight = requires(const T& weight, const PolicyTerms& terms, Metrics& metrics) {
  typename T::Config;
  requires std::constructible_from<T, typename T::Config>;
  { T::needs } -> std::convertible_to<Needs>;
  { weight(terms, metrics) } -> std::same_as<Tensor>;
};

// What keeps the policy near a reference: the policy's loss per token [N] → the same with β·k added.
template <class T>
concept KlPenalty = requires(const T& kl, const Tensor& per_token, const PolicyTerms& terms, Metrics& metrics) {
  typename T::Config;
  requires std::constructible_from<T, typename T::Config>;
  { T::needs_reference } -> std::convertible_to<bool>;
  { kl(per_token, terms, metrics) } -> std::same_as<Tensor>;
};

// Losses per token [N] → scalar, with denominators from the counts of the whole step.
template <class T>
concept Reduction = requires(const T& reduction, const Tensor& per_token, const Scored& scored, const Counts& counts) {
  typename T::Config;
  requires std::constructible_from<T, typename T::Config>;
  { reduction(per_token, scored, counts) } -> std::same_as<Tensor>;
};

}  // namespace rlalgo::loss
