// Objectives that pull log-ratios towards a target instead of pushing them apart (loss/pair_terms.hpp).
//
//   Ipo       ( s_w/|w| − s_l/|l| − 1/(2β) )²                Azar et al., arXiv 2310.12036, eq. 17; β is the paper's τ
//   SppoHard  ( s_w − 1/(2β) )² + ( s_l + 1/(2β) )²          Wu et al. (SPPO), arXiv 2405.00675, with hard labels
//
// Shapes: [P] → [P].
// Departure of Ipo from the paper, with TRL and its authors: log-ratios are means over the completion's tokens.
#pragma once

#include <rlalgo/loss/pair_terms.hpp>

namespace rlalgo::loss {

struct Ipo {
  struct Config {};
  static constexpr bool uses_scores = true;
  static constexpr bool per_pair = true;
  Ipo() = default;
  explicit Ipo(Config) {}
  Tensor operator()(const PairTerms& t) const {
    const Tensor mean = t.chosen_score.div(t.chosen_length).sub(t.rejected_score.div(t.rejected_length));
    return mean.sub(0.5 / t.beta).square();
  }
};

struct SppoHard {
  struct Config {};
  static constexpr bool uses_scores = false;
  static constexpr bool per_pair = true;
  SppoHard() = default;
  explicit SppoHard(Config) {}
  Tensor operator()(const PairTerms& t) const {
    const double target = 0.5 / t.beta;
    return t.chosen_ratio().sub(target).square().add(t.rejected_ratio().add(target).square());
  }
};

}  // namespace rlalgo::loss
