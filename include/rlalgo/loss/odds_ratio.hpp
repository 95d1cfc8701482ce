// ORPO: supervised training of the chosen answer with an odds-ratio penalty on the rejected one; no reference.
//
//   p̄ = mean log-prob of the completion's tokens
//   O = (p̄_w − p̄_l) − (g(p̄_w) − g(p̄_l)),   g(t) = log(1 − e^t)
//   loss = NLL − β · mean over pairs of log σ(O)
//   NLL = token mean over the chosen sequences of the step, prompt tokens (but the first) included
//
// Source: Hong et al., "ORPO: Monolithic Preference Optimization without Reference Model", arXiv 2403.07691, eq. 6–7;
// β is the paper's λ.
// Shapes: Scored [N] tokens of rows chosen, rejected in turn → scalar, nats.
// Metrics: docs/algorithms/orpo.md: rewards are β·p̄, logps are p̄; nll_loss; log_odds_ratio = mean log σ(O) and
// log_odds_chosen = mean O (TRL's names).
// Errors: loss.11 an odd number of rows.
// Departures: g is computed in two branches in f64 and its argument kept below −1e-15, where TRL gives ∞ at
// probability 1; an empty completion has p̄ = 0/1, not NaN.
#pragma once

#include <algorithm>
#include <numbers>

#include <rlalgo/loss/pair_terms.hpp>
#include <rlalgo/loss/preference_metrics.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::loss {

namespace detail {

// log(1 − e^t) for t < 0. Each branch gets an argument of its own range, so that the other's gradient stays finite.
inline Tensor log_one_minus_exp(const Tensor& t) {
  constexpr double split = -std::numbers::ln2;
  const Tensor small = t.clamp_max(split).exp().neg().log1p();
  const Tensor large = t.clamp(split, -1e-15).expm1().neg().log();
  return tensor::where(t.lt(split), small, large);
}

}  // namespace detail

class OddsRatio {
 public:
  struct Config {
    double beta = 0.1;
  };
  static constexpr Needs needs{.prompt_likelihood = true, .token_statistics = true};
  static constexpr RowKind rows = RowKind::pairs;

  explicit OddsRatio(Config config) : config_(config) {}

  Result operator()(const Scored& scored, const Counts& counts) const {
    const PairTerms terms = make_pair_terms(scored, counts, config_.beta, false);
    const Tensor chosen = terms.chosen.div(terms.chosen_length), rejected = terms.rejected.div(terms.rejected_length);
    const Tensor log_odds =
        chosen.sub(rejected).sub(detail::log_one_minus_exp(chosen).sub(detail::log_one_minus_exp(rejected)));
    const Tensor ratio = detail::log_logistic(log_odds);  // [P]
    Result result;
    const double step_pairs = counts.rows / 2.0;
    result.value = terms.likelihood.sub(ratio, config_.beta).sum().div(step_pairs);
    const std::int64_t pairs = chosen.numel();
    add_token_metrics(scored, result.metrics, false);
    result.margins =
        add_pair_metrics(chosen.mul(config_.beta), rejected.mul(config_.beta), chosen, rejected, result.metrics);
    result.metrics.mean("nll_loss", detail::total(terms.likelihood), pairs);
    result.metrics.mean("log_odds_ratio", detail::total(ratio), pairs);
    result.metrics.mean("log_odds_chosen", detail::total(log_odds), pairs);
    return result;
  }

 private:
  Config config_;
};

}  // namespace rlalgo::loss
