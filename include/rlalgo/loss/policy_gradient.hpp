// The policy-gradient loss, composed of four parts.
//
//   loss = Reduction( Surrogate( c, x, A ) + β·k ),   c = RatioLevel( x − o )
//
// A method of the GRPO family is a choice of parts: GRPO = ClippedRatio, TokenRatio, K3Kl or NoKl, SequenceMean; GSPO
// takes SequenceRatio; Dr. GRPO, DAPO, BNPO and LUSPO take another reduction.
//
// Shapes: Scored [N] tokens of [R] rows → scalar. The sum over the micro-batches of all ranks is the loss of the step.
// Without old log-probs the data are on-policy: o is the detached x, the ratio is 1 and carries the gradient.
// Metrics: those of the parts (clip_ratio/*, kl), and entropy, the mean over the loss tokens of the batch, nats.
// Errors: loss.1 the batch has no advantages; those of the parts.
#pragma once

#include <rlalgo/core/error.hpp>
#include <rlalgo/loss/policy_terms.hpp>

namespace rlalgo::loss {

template <class S, class L, class K, class R>
class PolicyGradient {
  static_assert(
      Surrogate<S>,
      "loss::PolicyGradient<Surrogate, RatioLevel, KlPenalty, Reduction>: the first part is not a Surrogate; it "
      "needs a Config and `Tensor operator()(const PolicyTerms&, core::Metrics&) const` (ClippedRatio is one)");
  static_assert(
      RatioLevel<L>,
      "loss::PolicyGradient<Surrogate, RatioLevel, KlPenalty, Reduction>: the second part is not a RatioLevel; it "
      "needs a Config, a constexpr `unit` and `Tensor operator()(const Tensor& log_ratio, const Scored&) const` "
      "(TokenRatio and SequenceRatio are)");
  static_assert(
      KlPenalty<K>,
      "loss::PolicyGradient<Surrogate, RatioLevel, KlPenalty, Reduction>: the third part is not a KlPenalty; it "
      "needs a Config, a constexpr `needs_reference` and `Tensor operator()(const Tensor& per_token, const "
      "PolicyTerms&, core::Metrics&) const` (NoKl and K3Kl are)");
  static_assert(
      Reduction<R>,
      "loss::PolicyGradient<Surrogate, RatioLevel, KlPenalty, Reduction>: the fourth part is not a Reduction; it "
      "needs a Config and `Tensor operator()(const Tensor& per_token, const Scored&, const Counts&) const` "
      "(SequenceMean, TokenMean, FixedLength, GlobalTokenCount and LengthWeighted are)");
  static_assert(
      !IgnoresRatio<S> || L::unit == Unit::token,
      "loss::PolicyGradient: this surrogate does not read the importance ratio, so a ratio per row would have "
      "no effect; take TokenRatio");

 public:
  struct Config {
    typename S::Config surrogate{};
    typename L::Config ratio{};
    typename K::Config kl{};
    typename R::Config reduction{};
  };

  static constexpr Needs needs{.old_log_prob = true, .reference_log_prob = K::needs_reference};
  static constexpr RowKind rows = RowKind::samples;

  PolicyGradient() : PolicyGradient(Config{}) {}
  explicit PolicyGradient(Config config)
      : surrogate_(config.surrogate), ratio_(config.ratio), kl_(config.kl), reduction_(config.reduction) {}

  Result operator()(const Scored& scored, const Counts& counts) const {
    if (!scored.advantage.defined())
      core::raise("loss", 1,
                  {.what = "a policy-gradient loss needs one advantage per row, and the batch has none",
                   .remedy = "use a sampler of rollouts with an advantage estimator"});
    Result result;
    const PolicyTerms terms = make_terms(scored);
    const Tensor per_token = kl_(surrogate_(terms, result.metrics), terms, result.metrics);  // [N]
    result.value = reduction_(per_token, scored, counts);
    if (scored.entropy.defined())
      result.metrics.mean("entropy", tensor::masked(scored.entropy.detach(), scored.mask).sum().template item<double>(),
                          scored.mask.sum().template item<double>());
    return result;
  }

 private:
  PolicyTerms make_terms(const Scored& s) const {
    const Tensor old = s.old_log_prob.defined() ? s.old_log_prob : s.log_prob.detach();
    const Tensor log_ratio = tensor::masked(s.log_prob.sub(old), s.mask);  // [N]
    const Tensor token_advantage = tensor::spread(s.advantage, s.row);     // [N]
    return {.scored = s,
            .unit = L::unit,
            .log_prob = tensor::masked(s.log_prob, s.mask),
            .log_ratio = log_ratio,
            .ratio = ratio_(log_ratio, s),
            .advantage = L::unit == Unit::row ? s.advantage : token_advantage,
            .token_advantage = token_advantage};
  }

  S surrogate_;
  L ratio_;
  K kl_;
  R reduction_;
};

}  // namespace rlalgo::loss
