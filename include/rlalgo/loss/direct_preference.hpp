// Direct preference optimization: any pair objective on log-ratios to a reference, under any divergence and weighting.
//
//   loss = Σ_pairs v·objective(s_w, s_l, …) / P,   s = f(π − ρ)
//
// P counts the pairs of the whole optimizer step. v is 1 (Unweighted) or the weight of WPO (PolicyWeighted):
//   v = e_w·e_l,  e = exp( mean over the completion's tokens of [ log π(y_t) − log Σ_v p_t(v)² ] ), a constant
// Source: Rafailov et al., arXiv 2305.18290; WPO: Zhou et al., arXiv 2406.11827; length desensitisation (ld_alpha): Liu
// et al., arXiv 2409.06411: tokens beyond the shorter completion of a pair count ld_alpha, in policy and reference.
// Shapes: Scored [N] tokens of rows chosen, rejected in turn → scalar.
// Units: nats.
// Metrics: those of preference_metrics.hpp; rewards are β·(π − ρ), whatever the divergence or the length normalisation.
// Errors: loss.10 no reference log-probs; loss.11 an odd number of rows; [rlalgo.loss.13] parts chosen at run time
// (AnyObjective, AnyDivergence) that do not go together, as the types of the others would have said.
// Departures: weights of WPO are not clamped at 1 (as TRL; the paper's equation has no clamp either).
#pragma once

#include <optional>

#include <rlalgo/core/error.hpp>
#include <rlalgo/loss/divergence.hpp>
#include <rlalgo/loss/pair_terms.hpp>
#include <rlalgo/loss/preference_metrics.hpp>

namespace rlalgo::loss {

struct Unweighted {
  static constexpr bool weighs = false;
};

struct PolicyWeighted {
  static constexpr bool weighs = true;
  // [P], without graph.
  Tensor operator()(const Scored& s) const {
    const Tensor excess = tensor::masked(s.log_prob.detach().sub(s.collision).to(at::kDouble), s.mask);  // [N]
    const Tensor mean =
        tensor::row_sum(excess, s.row, s.row_length.size(0)).div(s.row_length.to(at::kDouble).clamp_min(1.0));
    return mean.view({-1, 2}).sum(1).exp();
  }
};

template <class O, class D = ReverseKl, class W = Unweighted>
class DirectPreference {
  static_assert(PairObjective<O>,
                "loss::DirectPreference<Objective, Divergence, Weighting>: the first part is not a PairObjective; it "
                "needs a Config, constexpr `uses_scores` and `per_pair`, and `Tensor operator()(const PairTerms&) "
                "const` (Sigmoid is one)");
  static_assert(Divergence<D>,
                "loss::DirectPreference<Objective, Divergence, Weighting>: the second part is not a Divergence; it "
                "needs a Config and `Tensor operator()(const Tensor& log_ratio) const` (ReverseKl is one)");
  static_assert(std::same_as<D, ReverseKl> || O::uses_scores,
                "loss::DirectPreference: this objective reads plain log-ratios, so a divergence other than ReverseKl "
                "would have no effect");
  static_assert(!W::weighs || O::per_pair,
                "loss::DirectPreference: this objective couples the pairs of a batch (AOT), so pairs cannot be "
                "weighted; take Unweighted");

 public:
  struct Config {
    double beta = 0.1;               // β > 0
    typename O::Config objective{};  //
    typename D::Config divergence{};
    std::optional<double> ld_alpha = {};  // weight of the tokens beyond the shorter completion; none: all count 1
  };

  static constexpr Needs needs{.reference_log_prob = true, .token_statistics = true, .collision = W::weighs};
  static constexpr RowKind rows = RowKind::pairs;

  explicit DirectPreference(Config config)
      : beta_(config.beta),
        ld_alpha_(config.ld_alpha),
        objective_(std::move(config.objective)),
        divergence_(std::move(config.divergence)) {
    // What a type chosen at run time does not say at compile time.
    bool reverse_kl = std::same_as<D, ReverseKl>, scores = true, pairs = true;
    if constexpr (hooks_of<D>().is_reverse_kl) reverse_kl = divergence_.is_reverse_kl();
    if constexpr (hooks_of<O>().all_use_scores) scores = objective_.all_use_scores();
    if constexpr (hooks_of<O>().all_per_pair) pairs = objective_.all_per_pair();
    if (!reverse_kl && !scores)
      core::raise("loss", 13,
                  {.what = "an objective reads plain log-ratios, so a divergence other than reverse KL would have no "
                           "effect on it",
                   .remedy = "take ReverseKl, or objectives that read scores"});
    if (W::weighs && !pairs)
      core::raise("loss", 13,
                  {.what = "an objective couples the pairs of a batch (AOT), so pairs cannot be weighted",
                   .remedy = "take Unweighted, or objectives of single pairs"});
  }

  Result operator()(const Scored& scored, const Counts& counts) const {
    PairTerms terms = make_pair_terms(scored, counts, beta_, true, ld_alpha_);
    const Tensor chosen = terms.chosen_ratio(), rejected = terms.rejected_ratio();
    terms.chosen_score = divergence_(chosen);
    terms.rejected_score = divergence_(rejected);
    Tensor losses = objective_(terms);  // [P]
    if constexpr (W::weighs) losses = losses.mul(W{}(scored));
    Result result;
    result.value = losses.sum().div(counts.rows / 2.0);
    add_token_metrics(scored, result.metrics);
    result.margins =
        add_pair_metrics(chosen.mul(beta_), rejected.mul(beta_), terms.chosen, terms.rejected, result.metrics);
    return result;
  }

 private:
  double beta_;
  std::optional<double> ld_alpha_;
  O objective_;
  D divergence_;
};

}  // namespace rlalgo::loss
