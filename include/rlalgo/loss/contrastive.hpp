// CPO, SimPO, AlphaPO: preference losses on the policy's own log-probs, without a reference.
//
//   t = log-prob of a completion: sum of its tokens (SummedLogProb) or their mean (MeanLogProb)
//   R(t) = (1 − e^{−a·t})/a for shape a ≠ 0 (AlphaPO), else t;    D = R(t_w) − R(t_l)
//   loss = mean over pairs of objective(βD) + α·NLL,   NLL = token mean over the chosen completions of the step
//
//   CPO     SummedLogProb, MarginSigmoid{γ = 0}, α = 1          Xu et al., arXiv 2401.08417
//   SimPO   MeanLogProb, MarginSigmoid{γ}, α = 0                 Meng et al., arXiv 2405.14734; y = βD − γ
//   AlphaPO SimPO with a shape                                   Gupta et al., arXiv 2501.03884
//
// MarginSigmoid: −(1−ε) log σ(βD − γ) − ε log σ(−(βD − γ)).
// Shapes: Scored [N] tokens of rows chosen, rejected in turn → scalar, nats.
// Metrics: docs/algorithms/cpo.md: rewards are β·R(t); logps are t; nll_loss (0 where α = 0).
// Errors: loss.11 an odd number of rows; loss.12 ε outside [0, 0.5).
#pragma once

#include <rlalgo/loss/alignment_by_transport.hpp>
#include <rlalgo/loss/pair_terms.hpp>
#include <rlalgo/loss/preference_metrics.hpp>

namespace rlalgo::loss {

class MarginSigmoid {
 public:
  struct Config {
    double gamma = 0.0;            // γ: the margin that the scaled difference should have; not scaled by β
    double label_smoothing = 0.0;  // ε
  };
  static constexpr bool uses_scores = true;
  static constexpr bool per_pair = true;
  MarginSigmoid() : MarginSigmoid(Config{}) {}
  explicit MarginSigmoid(Config config)
      : gamma_(config.gamma),
        epsilon_(detail::checked_smoothing("of cpo and simpo", config.label_smoothing, 0.0, 0.5, true)) {}
  Tensor operator()(const PairTerms& t) const { return detail::smoothed_logistic(t.margin().sub(gamma_), epsilon_); }

 private:
  double gamma_, epsilon_;
};

// How the tokens of a completion become one number.
struct SummedLogProb {
  Tensor operator()(const Tensor& sum, const Tensor& /*length*/) const { return sum; }
};
struct MeanLogProb {
  Tensor operator()(const Tensor& sum, const Tensor& length) const { return sum.div(length); }
};

template <class O, class Level>
class Contrastive {
  static_assert(PairObjective<O>,
                "loss::Contrastive<Objective, Level>: the first part is not a PairObjective; it needs a Config, "
                "constexpr `uses_scores` and `per_pair`, and `Tensor operator()(const PairTerms&) const`");
  static_assert(O::uses_scores,
                "loss::Contrastive: this objective compares with a reference, and there is none here; take "
                "MarginSigmoid, Hinge or Ipo, or loss::DirectPreference");

 public:
  struct Config {
    double beta = 0.1;
    typename O::Config objective{};
    double likelihood_weight = 1.0;  // α (cpo_alpha)
    double shape = 0.0;              // a of AlphaPO; 0: R(t) = t
  };
  static constexpr Needs needs{.token_statistics = true};
  static constexpr RowKind rows = RowKind::pairs;

  explicit Contrastive(Config config) : config_(config), objective_(std::move(config.objective)) {}

  Result operator()(const Scored& scored, const Counts& counts) const {
    PairTerms terms = make_pair_terms(scored, counts, config_.beta, false);
    const Tensor chosen = Level{}(terms.chosen, terms.chosen_length);
    const Tensor rejected = Level{}(terms.rejected, terms.rejected_length);
    terms.chosen_score = shaped(chosen);
    terms.rejected_score = shaped(rejected);
    terms.chosen_length = terms.chosen_length.new_ones(terms.chosen_length.sizes());
    terms.rejected_length = terms.chosen_length;
    Tensor losses = objective_(terms);  // [P]
    const bool likelihood = config_.likelihood_weight != 0.0;
    if (likelihood) losses = losses.add(terms.likelihood, config_.likelihood_weight);
    Result result;
    result.value = losses.sum().div(counts.rows / 2.0);
    add_token_metrics(scored, result.metrics, false);
    result.margins = add_pair_metrics(terms.chosen_score.mul(config_.beta), terms.rejected_score.mul(config_.beta),
                                      chosen, rejected, result.metrics);
    const Metrics::Number likelihoods = likelihood ? Metrics::Number(detail::total(terms.likelihood)) : 0;
    result.metrics.mean("nll_loss", likelihoods, chosen.numel());
    return result;
  }

 private:
  [[nodiscard]] Tensor shaped(const Tensor& t) const {
    return config_.shape == 0.0 ? t : t.mul(-config_.shape).expm1().div(-config_.shape);
  }

  Config config_;
  O objective_;
};

}  // namespace rlalgo::loss
