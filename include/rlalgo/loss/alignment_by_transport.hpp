// AOT: alignment of whole distributions of rewards by optimal transport in one dimension.
//
//   Aot          d = sort(π_w − π_l) − sort(ρ_w − ρ_l)
//   AotUnpaired  d = sort(r_w) − sort(r_l)
//   loss         −(1−ε) log σ(βd) − ε log σ(−βd)
//
// Source: Melnyk et al., "Distributional Preference Alignment of LLMs via Optimal Transport", arXiv 2406.05882.
// Symbols: ε → label_smoothing, β → PairTerms::beta.
// Shapes: [P] → [P]: the pairs of one micro-batch are sorted together, ascending. So, unlike every other loss, the
// value depends on how a step is split into micro-batches (as in TRL, where it also depends on the ranks).
// Errors: loss.12 ε outside [0, 0.5).
#pragma once

#include <tuple>

#include <rlalgo/loss/logistic_objectives.hpp>
#include <rlalgo/loss/pair_terms.hpp>

namespace rlalgo::loss {

namespace detail {

inline Tensor sorted(const Tensor& x) { return std::get<0>(x.sort(0)); }

inline Tensor smoothed_logistic(const Tensor& x, double epsilon) {
  const Tensor loss = log_logistic(x).mul(-(1.0 - epsilon));
  return epsilon == 0.0 ? loss : loss.sub(log_logistic(x.neg()), epsilon);
}

}  // namespace detail

class Aot {
 public:
  struct Config {
    double label_smoothing = 0.0;
  };
  static constexpr bool uses_scores = false;
  static constexpr bool per_pair = false;
  Aot() : Aot(Config{}) {}
  explicit Aot(Config config) : epsilon_(detail::checked_smoothing("aot", config.label_smoothing, 0.0, 0.5, true)) {}
  Tensor operator()(const PairTerms& t) const {
    const Tensor difference =
        detail::sorted(t.chosen.sub(t.rejected)).sub(detail::sorted(t.reference_chosen.sub(t.reference_rejected)));
    return detail::smoothed_logistic(difference.mul(t.beta), epsilon_);
  }

 private:
  double epsilon_;
};

class AotUnpaired {
 public:
  using Config = Aot::Config;
  static constexpr bool uses_scores = false;
  static constexpr bool per_pair = false;
  AotUnpaired() : AotUnpaired(Config{}) {}
  explicit AotUnpaired(Config config)
      : epsilon_(detail::checked_smoothing("aot_unpaired", config.label_smoothing, 0.0, 0.5, true)) {}
  Tensor operator()(const PairTerms& t) const {
    const Tensor difference = detail::sorted(t.chosen_ratio()).sub(detail::sorted(t.rejected_ratio()));
    return detail::smoothed_logistic(difference.mul(t.beta), epsilon_);
  }

 private:
  double epsilon_;
};

}  // namespace rlalgo::loss
