// Objectives that read one number of a pair: the scaled margin x = β(s_w − s_l) (loss/pair_terms.hpp).
//
//   Sigmoid      −log σ(x)                                                   Rafailov et al., arXiv 2305.18290, eq. 7
//   Hinge        max(0, 1 − x)                                               Zhao et al. (SLiC), arXiv 2305.10425
//   ExoPair      σ(x)[log σ(x) − log(1−ε)] + σ(−x)[log σ(−x) − log ε]        Ji et al. (EXO), arXiv 2402.00856, eq. 16
//   Robust       [−(1−ε) log σ(x) + ε log σ(−x)] / (1−2ε)                    Chowdhury et al., arXiv 2403.00409, eq. 12
//   DiscoPop     (1−m)(−log σ(x)) + m·e^{−x},  m = σ(x/τ)                    Lu et al., arXiv 2406.08414
//   SigmoidNorm  −log σ(β(s_w/|w| − s_l/|l|))                                Lambert et al. (Tülu 3), arXiv 2411.15124
//
// Shapes: [P] → [P], nats. ε is label_smoothing, τ is discopop_tau.
// Errors: [rlalgo.loss.12] ε outside its range (ExoPair: 0 < ε < 1; Robust: 0 ≤ ε < 0.5).
// Departures: the exponential of DiscoPop is taken of log σ(x/τ) − x, so that no ∞·0 arises at very negative margins;
// Robust refuses ε ≥ 0.5, where TRL only warns and divides by zero or flips the sign of the loss.
#pragma once

#include <cmath>
#include <string>

#include <rlalgo/core/error.hpp>
#include <rlalgo/loss/pair_terms.hpp>

namespace rlalgo::loss {

struct Sigmoid {
  struct Config {};
  static constexpr bool uses_scores = true;
  static constexpr bool per_pair = true;
  Sigmoid() = default;
  explicit Sigmoid(Config) {}
  Tensor operator()(const PairTerms& t) const { return detail::log_logistic(t.margin()).neg(); }
};

struct Hinge {
  struct Config {};
  static constexpr bool uses_scores = true;
  static constexpr bool per_pair = true;
  Hinge() = default;
  explicit Hinge(Config) {}
  Tensor operator()(const PairTerms& t) const { return t.margin().neg().add(1.0).clamp_min(0.0); }
};

namespace detail {

inline double checked_smoothing(const std::string& loss, double epsilon, double least, double most, bool with_least) {
  const bool fits = (with_least ? epsilon >= least : epsilon > least) && epsilon < most;
  if (!fits)
    core::raise_usage("loss", 12,
                      {.what = "label_smoothing does not fit the loss " + loss,
                       .found = std::to_string(epsilon),
                       .expected = (with_least ? "from " : "more than ") + std::to_string(least) + " and less than " +
                                   std::to_string(most)});
  return epsilon;
}

}  // namespace detail

class ExoPair {
 public:
  struct Config {
    double label_smoothing = 0.001;  // ε: the share of wrongly labelled pairs; 0 has no finite loss
  };
  static constexpr bool uses_scores = true;
  static constexpr bool per_pair = true;
  ExoPair() : ExoPair(Config{}) {}
  explicit ExoPair(Config config)
      : epsilon_(detail::checked_smoothing("exo_pair", config.label_smoothing, 0.0, 1.0, false)) {}
  Tensor operator()(const PairTerms& t) const {
    const Tensor x = t.margin();
    const Tensor win = detail::log_logistic(x).sub(std::log1p(-epsilon_));
    const Tensor lose = detail::log_logistic(x.neg()).sub(std::log(epsilon_));
    return x.sigmoid().mul(win).add(x.neg().sigmoid().mul(lose));
  }

 private:
  double epsilon_;
};

class Robust {
 public:
  struct Config {
    double label_smoothing = 0.0;  // ε: the rate at which labels are flipped
  };
  static constexpr bool uses_scores = true;
  static constexpr bool per_pair = true;
  Robust() : Robust(Config{}) {}
  explicit Robust(Config config)
      : epsilon_(detail::checked_smoothing("robust", config.label_smoothing, 0.0, 0.5, true)) {}
  Tensor operator()(const PairTerms& t) const {
    const Tensor x = t.margin();
    return detail::log_logistic(x)
        .mul(-(1.0 - epsilon_))
        .add(detail::log_logistic(x.neg()), epsilon_)
        .div(1.0 - 2.0 * epsilon_);
  }

 private:
  double epsilon_;
};

class DiscoPop {
 public:
  struct Config {
    double tau = 0.05;
  };
  static constexpr bool uses_scores = true;
  static constexpr bool per_pair = true;
  DiscoPop() : DiscoPop(Config{}) {}
  explicit DiscoPop(Config config) : tau_(config.tau) {}
  Tensor operator()(const PairTerms& t) const {
    const Tensor x = t.margin();
    const Tensor scaled = x.div(tau_);
    const Tensor logistic = scaled.neg().sigmoid().mul(detail::log_logistic(x).neg());
    return logistic.add(detail::log_logistic(scaled).sub(x).exp());
  }

 private:
  double tau_;
};

struct SigmoidNorm {
  struct Config {};
  static constexpr bool uses_scores = true;
  static constexpr bool per_pair = true;
  SigmoidNorm() = default;
  explicit SigmoidNorm(Config) {}
  Tensor operator()(const PairTerms& t) const {
    const Tensor mean = t.chosen_score.div(t.chosen_length).sub(t.rejected_score.div(t.rejected_length));
    return detail::log_logistic(mean.mul(t.beta)).neg();
  }
};

}  // namespace rlalgo::loss
