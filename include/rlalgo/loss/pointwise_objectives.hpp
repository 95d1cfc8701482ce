// Objectives that judge chosen and rejected by themselves, not only their difference (loss/pair_terms.hpp).
//
//   NcaPair  −log σ(βr_w) − ½ log σ(−βr_w) − ½ log σ(−βr_l)        Chen et al., arXiv 2402.05369
//   BcoPair  −log σ(βr_w) − log σ(−βr_l)                           Jung et al. (BCO), arXiv 2404.04656, without the
//                                                                  running mean of rewards
//   ApoZero  1 − σ(βr_w) + σ(βr_l)                                 D'Oosterlinck et al. (APO), arXiv 2408.06266
//   ApoDown  σ(βr_w) + 1 − σ(β(r_w − r_l))                         the same
//
// Shapes: [P] → [P]. 1 − σ(z) is computed as σ(−z), which keeps its digits at both ends.
#pragma once

#include <rlalgo/loss/pair_terms.hpp>

namespace rlalgo::loss {

struct NcaPair {
  struct Config {};
  static constexpr bool uses_scores = false;
  static constexpr bool per_pair = true;
  NcaPair() = default;
  explicit NcaPair(Config) {}
  Tensor operator()(const PairTerms& t) const {
    const Tensor chosen = t.chosen_ratio().mul(t.beta), rejected = t.rejected_ratio().mul(t.beta);
    return detail::log_logistic(chosen)
        .add(detail::log_logistic(chosen.neg()), 0.5)
        .add(detail::log_logistic(rejected.neg()), 0.5)
        .neg();
  }
};

struct BcoPair {
  struct Config {};
  static constexpr bool uses_scores = false;
  static constexpr bool per_pair = true;
  BcoPair() = default;
  explicit BcoPair(Config) {}
  Tensor operator()(const PairTerms& t) const {
    return detail::log_logistic(t.chosen_ratio().mul(t.beta))
        .add(detail::log_logistic(t.rejected_ratio().mul(-t.beta)))
        .neg();
  }
};

struct ApoZero {
  struct Config {};
  static constexpr bool uses_scores = false;
  static constexpr bool per_pair = true;
  ApoZero() = default;
  explicit ApoZero(Config) {}
  Tensor operator()(const PairTerms& t) const {
    return t.chosen_ratio().mul(-t.beta).sigmoid().add(t.rejected_ratio().mul(t.beta).sigmoid());
  }
};

struct ApoDown {
  struct Config {};
  static constexpr bool uses_scores = false;
  static constexpr bool per_pair = true;
  ApoDown() = default;
  explicit ApoDown(Config) {}
  Tensor operator()(const PairTerms& t) const {
    const Tensor chosen = t.chosen_ratio().mul(t.beta), rejected = t.rejected_ratio().mul(t.beta);
    return chosen.sigmoid().add(rejected.sub(chosen).sigmoid());
  }
};

}  // namespace rlalgo::loss
