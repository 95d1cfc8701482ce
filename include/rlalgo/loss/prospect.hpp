// KTO: learning from single completions marked desirable or not, by the value function of prospect theory.
//
//   r = π − ρ,   z = max(0, mean over the rows of the step of log π/ρ of mismatched completions), a constant
//   KahnemanTversky   desirable 1 − σ(β(r − z)),   undesirable 1 − σ(β(z − r))
//   ApoZeroUnpaired   desirable 1 − σ(βr),         undesirable σ(βr);   z = 0, no mismatched completions are scored
//   loss = Σ_rows λ·(…) / R,   λ = desirable_weight or undesirable_weight
//
// Source: Ethayarajh et al., "KTO: Model Alignment as Prospect Theoretic Optimization", arXiv 2402.01306, eq. 8;
// D'Oosterlinck et al., arXiv 2408.06266.
// Symbols: λ_D, λ_U → desirable_weight, undesirable_weight; the mismatched completion of a row is that of the row
// before it among the rows of its optimizer step, in dataset order; the first row of a step takes the last one's.
// Shapes: Scored [N] tokens of R rows → scalar; R counts the rows of the whole optimizer step.
// Units: nats.
// Metrics: docs/algorithms/kto.md. A class that is absent from a step has no metrics in it.
// Errors: loss.10 no reference log-probs.
// Departures: z is one number per optimizer step and all ranks, not one per micro-batch, so that neither the split nor
// the order of rows changes the loss (TRL: per micro-batch). A weight of 0 is 0 (axolotl makes it 1).
#pragma once

#include <algorithm>

#include <rlalgo/loss/pair_terms.hpp>
#include <rlalgo/loss/preference_metrics.hpp>

namespace rlalgo::loss {

// What a row is worth: r and z → losses of a desirable and of an undesirable row, [R] each.
struct KahnemanTversky {
  static constexpr bool needs_mismatched = true;
  [[nodiscard]] Tensor desirable(const Tensor& r, double z, double beta) const { return r.sub(z).mul(-beta).sigmoid(); }
  [[nodiscard]] Tensor undesirable(const Tensor& r, double z, double beta) const {
    return r.sub(z).mul(beta).sigmoid();
  }
};

struct ApoZeroUnpaired {
  static constexpr bool needs_mismatched = false;
  [[nodiscard]] Tensor desirable(const Tensor& r, double /*z*/, double beta) const { return r.mul(-beta).sigmoid(); }
  [[nodiscard]] Tensor undesirable(const Tensor& r, double /*z*/, double beta) const { return r.mul(beta).sigmoid(); }
};

template <class Value = KahnemanTversky>
class Prospect {
 public:
  struct Config {
    double beta = 0.1;
    double desirable_weight = 1.0;
    double undesirable_weight = 1.0;
  };
  static constexpr Needs needs{
      .reference_log_prob = true, .token_statistics = true, .mismatched = Value::needs_mismatched};
  static constexpr RowKind rows = RowKind::unpaired;

  explicit Prospect(Config config) : config_(config) {}

  Result operator()(const Scored& scored, const Counts& counts) const {
    const double z =
        Value::needs_mismatched ? std::max(0.0, counts.mismatched_log_ratio / std::max(counts.rows, 1.0)) : 0.0;
    const Tensor policy = detail::row_log_prob(scored.log_prob, scored, {});  // [R]
    const Tensor r = policy.sub(detail::reference_row_log_prob(scored, {}));  // [R]
    const Tensor desirable = scored.desirable.to(at::kDouble);                // [R]
    const Tensor undesirable = desirable.neg().add(1.0);                      // [R]
    const Value value;
    const Tensor losses =
        value.desirable(r, z, config_.beta)
            .mul(desirable.mul(config_.desirable_weight))
            .add(value.undesirable(r, z, config_.beta).mul(undesirable.mul(config_.undesirable_weight)));
    Result result;
    result.value = losses.sum().div(std::max(counts.rows, 1.0));
    const auto rows = static_cast<double>(policy.numel());
    result.metrics.mean("kl", z * rows, rows);
    add_token_metrics(scored, result.metrics, false);
    add_class_metrics(r.mul(config_.beta), policy, desirable, undesirable, counts, result.metrics);
    return result;
  }

 private:
  static void add_class_metrics(const Tensor& reward, const Tensor& log_prob, const Tensor& desirable,
                                const Tensor& undesirable, const Counts& counts, Metrics& metrics) {
    const Tensor n_desirable = detail::total(desirable), n_undesirable = detail::total(undesirable);
    const Tensor chosen = detail::total(reward.mul(desirable)), turned_down = detail::total(reward.mul(undesirable));
    metrics.mean("rewards/chosen", chosen, n_desirable, n_desirable);
    metrics.mean("logps/chosen", detail::total(log_prob.mul(desirable)), n_desirable, n_desirable);
    metrics.mean("rewards/rejected", turned_down, n_undesirable, n_undesirable);
    metrics.mean("logps/rejected", detail::total(log_prob.mul(undesirable)), n_undesirable, n_undesirable);
    // The difference of the two means of the whole step: shares of it add up over the parts.
    const double rejected = counts.rows - counts.desirable;
    if (counts.desirable > 0 && rejected > 0)
      metrics.mean("rewards/margins", chosen.div(counts.desirable).sub(turned_down.div(rejected)),
                   n_desirable.add(n_undesirable).div(counts.rows));
  }

  Config config_;
};

}  // namespace rlalgo::loss
