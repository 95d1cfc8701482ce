// The policy-gradient loss, composed of four parts and any number of token weights.
//
//   loss = Reduction( Surrogate( c, x, A )·Π w + β·k ),   c = RatioLevel( x − o )
//
// A method of the GRPO family is a choice of parts: GRPO = ClippedRatio, TokenRatio, K3Kl or NoKl, SequenceMean; GSPO
// takes SequenceRatio; Dr. GRPO, DAPO, BNPO and LUSPO take another reduction. Weights (SamplingCorrection,
// OffPolicyMask, TopEntropy) drop or scale tokens of the surrogate, never of the KL term, and leave the denominators
// alone.
//
// Shapes: Scored [N] tokens of [R] rows → scalar. The sum over the micro-batches of all ranks is the loss of the step.
// Without old log-probs the data are on-policy: o is the detached x, the ratio is 1 and carries the gradient.
// Metrics: those of the parts (clip_ratio/*, kl), and entropy, the mean over the loss tokens of the batch, nats.
// Errors: [rlalgo.loss.1] the batch has no advantages; those of the parts.
#pragma once

#include <tuple>
#include <utility>

#include <rlalgo/core/error.hpp>
#include <rlalgo/loss/policy_terms.hpp>
#include <rlalgo/loss/token_share.hpp>

namespace rlalgo::loss {

template <class S, class L, class K, class R, class... W>
class PolicyGradient {
  static_assert(
      Surrogate<S>,
      "loss::PolicyGradient<Surrogate, RatioLevel, KlPenalty, Reduction>: the first part is not a Surrogate; it "
      "needs a Config and `Tensor operator()(const PolicyTerms&, Metrics&) const` (ClippedRatio is one)");
  static_assert(
      RatioLevel<L>,
      "loss::PolicyGradient<Surrogate, RatioLevel, KlPenalty, Reduction>: the second part is not a RatioLevel; it "
      "needs a Config, a constexpr `unit` and `Tensor operator()(const Tensor& log_ratio, const Scored&) const` "
      "(TokenRatio and SequenceRatio are)");
  static_assert(
      KlPenalty<K>,
      "loss::PolicyGradient<Surrogate, RatioLevel, KlPenalty, Reduction>: the third part is not a KlPenalty; it "
      "needs a Config, a constexpr `needs_reference` and `Tensor operator()(const Tensor& per_token, const "
      "PolicyTerms&, Metrics&) const` (NoKl and K3Kl are)");
  static_assert(
      Reduction<R>,
      "loss::PolicyGradient<Surrogate, RatioLevel, KlPenalty, Reduction>: the fourth part is not a Reduction; it "
      "needs a Config and `Tensor operator()(const Tensor& per_token, const Scored&, const Counts&) const` "
      "(SequenceMean, TokenMean, FixedLength, GlobalTokenCount and LengthWeighted are)");
  static_assert(
      !hooks_of<S>().ignores_ratio || L::unit == Unit::token,
      "loss::PolicyGradient: this surrogate does not read the importance ratio, so a ratio per row would have "
      "no effect; take TokenRatio");
  static_assert((TokenWeight<W> && ...),
                "loss::PolicyGradient<Surrogate, RatioLevel, KlPenalty, Reduction, Weights...>: a weight is not a "
                "TokenWeight; it "
                "needs a Config, constexpr `needs` and `Tensor operator()(const PolicyTerms&, Metrics&) const` "
                "(SamplingCorrection, OffPolicyMask and TopEntropy are)");

 public:
  struct Config {
    typename S::Config surrogate{};
    typename L::Config ratio{};
    typename K::Config kl{};
    typename R::Config reduction{};
    std::tuple<typename W::Config...> weights{};
  };

  static constexpr Needs needs =
      (Needs{.old_log_prob = true, .reference_log_prob = K::needs_reference} | ... | W::needs);
  static constexpr RowKind rows = RowKind::samples;
  static constexpr Hooks hooks{.corrects_sampling = true, .token_share = true};
  [[nodiscard]] static constexpr bool corrects_sampling() { return (false || ... || hooks_of<W>().is_sampling_ratio); }

  [[nodiscard]] TokenShare token_share() const { return loss::token_share(reduction_); }

  explicit PolicyGradient(Config config)
      : surrogate_(config.surrogate),
        ratio_(config.ratio),
        kl_(config.kl),
        reduction_(config.reduction),
        weights_(std::apply([](const auto&... c) { return std::tuple<W...>(W(c)...); }, config.weights)) {}

  Result operator()(const Scored& scored, const Counts& counts) const {
    if (!scored.advantage.defined())
      core::raise("loss", 1,
                  {.what = "a policy-gradient loss needs one advantage per row, and the batch has none",
                   .remedy = "use a sampler of rollouts with an advantage estimator"});
    Result result;
    PolicyTerms terms = make_terms(scored);
    const Tensor weight = weigh(terms, result.metrics);
    Tensor per_token = surrogate_(terms, result.metrics);  // [N]
    if (weight.defined()) per_token = per_token.mul(weight);
    per_token = kl_(per_token, terms, result.metrics);
    result.value = reduction_(per_token, scored, counts);
    if (scored.entropy.defined())
      result.metrics.mean("entropy", tensor::masked(scored.entropy.detach(), scored.mask).sum(), scored.mask.sum());
    return result;
  }

 private:
  // Π w as [N]; undefined when there is no weight. A ratio that the surrogate takes itself goes into the terms instead.
  Tensor weigh([[maybe_unused]] PolicyTerms& terms, [[maybe_unused]] Metrics& metrics) const {
    Tensor product;
    const auto apply = [&]<class V>(const V& part) {
      const Tensor w = part(terms, metrics);
      if constexpr (hooks_of<V>().is_sampling_ratio) {
        if (takes_sampling_ratio(surrogate_)) {
          terms.sampling_ratio = w;
          terms.sampling_unit = part.unit();
          return;
        }
      }
      const Tensor spread = per_row(part) ? tensor::spread(w, terms.scored.row) : w;
      product = product.defined() ? product.mul(spread) : spread;
    };
    std::apply([&](const auto&... part) { (apply(part), ...); }, weights_);
    return product;
  }

  template <class V>
  static bool per_row(const V& part) {
    if constexpr (hooks_of<V>().unit) return part.unit() == Unit::row;
    return false;
  }

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
  std::tuple<W...> weights_;
};

}  // namespace rlalgo::loss
