// From the rows of config/methods.hpp to a policy-gradient loss, its advantages and its aggregation: the one place that
// knows the type of a part.
//
//   loss = PolicyGradient( surrogate and reduction of trl.loss_type, level of trl.importance_sampling_level,
//                          KL penalty: none with beta 0 or where the reward holds it, else k3,
//                          weights: top_entropy_quantile, off_policy_mask_threshold,
//                                   with completions of a server the importance-sampling correction )
//          with the entropy bonus of entropy_coef around it
//   advantages: trl.advantage_estimator, trl.scale_rewards; aggregation: trl.multi_objective_aggregation
//
// What a recipe fixes (rloo: level, estimator, aggregation) no key changes. Choice happens here and nowhere below.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include <rlalgo/advantage/any_estimator.hpp>
#include <rlalgo/advantage/batch_whitened.hpp>
#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/advantage/leave_one_out.hpp>
#include <rlalgo/advantage/pass_through.hpp>
#include <rlalgo/aggregation/any_aggregation.hpp>
#include <rlalgo/aggregation/normalize_then_sum.hpp>
#include <rlalgo/aggregation/sum_minus_kl.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/config/entropy.hpp>
#include <rlalgo/config/feature_matching.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/methods.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/feature/matching_advantage.hpp>
#include <rlalgo/loss/any_loss.hpp>
#include <rlalgo/loss/any_parts.hpp>
#include <rlalgo/loss/cispo.hpp>
#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/completion_ratio.hpp>
#include <rlalgo/loss/entropy_bonus.hpp>
#include <rlalgo/loss/fixed_length.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/k3_kl.hpp>
#include <rlalgo/loss/length_weighted.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/off_policy_mask.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/row_mean.hpp>
#include <rlalgo/loss/sampling_correction.hpp>
#include <rlalgo/loss/sapo.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/loss/sequence_ratio.hpp>
#include <rlalgo/loss/sequence_token_ratio.hpp>
#include <rlalgo/loss/token_mean.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/loss/top_entropy.hpp>
#include <rlalgo/loss/vespo.hpp>
#include <rlalgo/loss/with_cross_entropy.hpp>

namespace rlalgo::config {

[[nodiscard]] inline loss::ClippedRatio::Config clipped_ratio(const RunConfig& c) {
  return {
      .epsilon_low = c.trl.epsilon, .epsilon_high = c.trl.epsilon_high.value_or(c.trl.epsilon), .delta = c.trl.delta};
}

using AnyEstimator = advantage::AnyEstimator;

[[nodiscard]] inline AnyEstimator group_relative(const RunConfig& c) {
  using advantage::GroupRelative, advantage::Scale;
  if (c.trl.scale_rewards == "group") return AnyEstimator(GroupRelative<Scale::group>());
  if (c.trl.scale_rewards == "batch") return AnyEstimator(GroupRelative<Scale::batch>());
  return AnyEstimator(GroupRelative<Scale::none>());
}

using AnyAggregation = aggregation::AnyAggregation<AnyEstimator>;

[[nodiscard]] inline AnyEstimator estimator(const RunConfig& c) {
  switch (estimator_of(c).part) {
    case EstimatorPart::leave_one_out:
      return AnyEstimator(advantage::LeaveOneOut({.normalize = c.trl.normalize_advantages}));
    case EstimatorPart::batch_whitened:
      return AnyEstimator(advantage::BatchWhitened({.group_baseline = false}));
    case EstimatorPart::batch_whitened_groups:
      return AnyEstimator(advantage::BatchWhitened());
    case EstimatorPart::pass_through:
      return AnyEstimator(advantage::PassThrough());
    case EstimatorPart::group_relative:
      break;
  }
  // normalize_then_sum normalises each function by its group, whatever scale_rewards says.
  if (aggregation_of(c) == AggregationPart::normalize_then_sum) return AnyEstimator(advantage::GroupRelative<>());
  return group_relative(c);
}

[[nodiscard]] inline AnyAggregation reward_aggregation(const RunConfig& c) {
  if (estimates_from_matching(c))
    return AnyAggregation(feature::MatchingAdvantage<feature::AnyGroupEstimator>(matching_estimator(c)));
  switch (aggregation_of(c)) {
    case AggregationPart::sum_minus_kl:
      return AnyAggregation(aggregation::SumMinusKl({.beta = c.beta, .range = c.trl.reward_clip_range}));
    case AggregationPart::normalize_then_sum:
      return AnyAggregation(aggregation::NormalizeThenSum());
    case AggregationPart::sum_then_normalize:
      break;
  }
  return AnyAggregation(aggregation::SumThenNormalize());
}

// Completions come from a server or of older weights, and the difference between their log-probs and ours is corrected
// for.
[[nodiscard]] inline std::optional<loss::SamplingCorrection::Config> sampling_correction(const RunConfig& c) {
  const TrlConfig& t = c.trl;
  if (!corrects_sampling(c)) return std::nullopt;
  const std::string& mode = t.vllm_importance_sampling_mode;
  return loss::SamplingCorrection::Config{
      .unit = mode.starts_with("token") ? loss::Unit::token : loss::Unit::row,
      .mode = mode.ends_with("truncate") ? loss::CorrectionMode::truncate : loss::CorrectionMode::mask,
      .minimum = t.vllm_importance_sampling_clip_min,
      .maximum = t.vllm_importance_sampling_clip_max};
}

namespace detail {

[[nodiscard]] inline loss::AnySurrogate::Config surrogate(const RunConfig& c) {
  const TrlConfig& t = c.trl;
  switch (objective_of(c).surrogate) {
    case SurrogatePart::cispo:
      return loss::AnySurrogate::of(loss::Cispo({.epsilon_high = t.epsilon_high.value_or(t.epsilon)}));
    case SurrogatePart::sapo:
      return loss::AnySurrogate::of(
          loss::Sapo({.temperature_positive = t.sapo_temperature_pos, .temperature_negative = t.sapo_temperature_neg}));
    case SurrogatePart::vespo:
      return loss::AnySurrogate::of(loss::Vespo({.k_positive = t.vespo_k_pos,
                                                 .lambda_positive = t.vespo_lambda_pos,
                                                 .k_negative = t.vespo_k_neg,
                                                 .lambda_negative = t.vespo_lambda_neg}));
    case SurrogatePart::clipped_ratio:
      break;
  }
  return loss::AnySurrogate::of(loss::ClippedRatio(clipped_ratio(c)));
}

[[nodiscard]] inline loss::AnyReduction::Config reduction(const RunConfig& c) {
  using loss::AnyReduction;
  if (level_of(c) == LevelPart::completion) return AnyReduction::of(loss::RowMean());
  switch (objective_of(c).reduction) {
    case ReductionPart::token_mean:
      return AnyReduction::of(loss::TokenMean());
    case ReductionPart::fixed_length:
      return AnyReduction::of(loss::FixedLength({.max_completion_length = c.trl.max_completion_length}));
    case ReductionPart::global_token_count:
      return AnyReduction::of(loss::GlobalTokenCount());
    case ReductionPart::length_weighted:
      return AnyReduction::of(loss::LengthWeighted());
    case ReductionPart::sequence_mean:
      break;
  }
  return AnyReduction::of(loss::SequenceMean());
}

[[nodiscard]] inline loss::AnyWeights::Config weights(const RunConfig& c) {
  loss::AnyWeights::Config out;
  if (c.trl.top_entropy_quantile < 1.0)
    out.calls.push_back(loss::AnyWeights::of(loss::TopEntropy({.share = c.trl.top_entropy_quantile})));
  if (c.trl.off_policy_mask_threshold)
    out.calls.push_back(loss::AnyWeights::of(loss::OffPolicyMask({.threshold = *c.trl.off_policy_mask_threshold})));
  return out;
}

// The loss as composed, or with the bonus that `coefficient` (null: none) scales, behind one type.
template <class Erased, class L>
[[nodiscard]] Erased with_bonus(const RunConfig& c, typename L::Config config, const EntropyCoefficient& coefficient) {
  if (!coefficient) return Erased(L(std::move(config)));
  using Bonus = loss::EntropyBonus<L>;
  const bool step = objective_of(c).bonus == BonusScope::step;
  return Erased(Bonus({.objective = std::move(config),
                       .coefficient = coefficient,
                       .share = c.trl.top_entropy_quantile,
                       .scope = step ? Bonus::Scope::step : Bonus::Scope::micro_batch}));
}

// Feature matching adds the likelihood of ground truths; rows of other recipes bring no answers.
template <class Erased>
[[nodiscard]] Erased with_likelihood(const RunConfig& c, Erased policy) {
  if (!matches_features(c)) return policy;
  return Erased(loss::WithCrossEntropy<Erased>(
      {.policy = c.ebft.rl_coef, .cross_entropy = c.ebft.ce_coef, .prefix = "ebft/"}, std::move(policy)));
}

template <class Ratio, class Kl, class Visit>
auto with_correction(const RunConfig& c, typename Kl::Config kl, const EntropyCoefficient& coefficient, Visit&& visit) {
  using namespace loss;
  using Erased = AnyLoss<Needs{.old_log_prob = true,
                               .reference_log_prob = Kl::needs_reference,
                               .sampling_log_prob = true,
                               .entropy = true,
                               .answer_likelihood = true},
                         RowKind::samples>;
  if (const auto correction = sampling_correction(c)) {
    using L = PolicyGradient<AnySurrogate, Ratio, Kl, AnyReduction, AnyWeights, SamplingCorrection>;
    return visit(with_likelihood(c, with_bonus<Erased, L>(c,
                                                          {.surrogate = surrogate(c),
                                                           .ratio = {},
                                                           .kl = kl,
                                                           .reduction = reduction(c),
                                                           .weights = {weights(c), *correction}},
                                                          coefficient)));
  }
  using L = PolicyGradient<AnySurrogate, Ratio, Kl, AnyReduction, AnyWeights>;
  return visit(with_likelihood(
      c, with_bonus<Erased, L>(
             c, {.surrogate = surrogate(c), .ratio = {}, .kl = kl, .reduction = reduction(c), .weights = {weights(c)}},
             coefficient)));
}

template <class Ratio, class Visit>
auto with_kl(const RunConfig& c, const EntropyCoefficient& coefficient, Visit&& visit) {
  if (c.beta == 0.0 || recipe_of(c).penalty_in_reward)
    return with_correction<Ratio, loss::NoKl>(c, {}, coefficient, visit);
  return with_correction<Ratio, loss::K3Kl>(c, {.beta = c.beta, .bias_correction = c.trl.use_bias_correction_kl},
                                            coefficient, visit);
}

}  // namespace detail

// Calls `visit(loss)` with the loss that the configuration names, erased to one type per set of needs (with and without
// reference), so that a visitor that makes a trainer is compiled twice, not once per method. All results have one type.
template <class Visit>
auto with_policy_gradient(const RunConfig& c, const EntropyCoefficient& coefficient, Visit&& visit) {
  switch (level_of(c)) {
    case LevelPart::completion:
      return detail::with_kl<loss::CompletionRatio>(c, coefficient, visit);
    case LevelPart::sequence:
      return detail::with_kl<loss::SequenceRatio>(c, coefficient, visit);
    case LevelPart::sequence_token:
      return detail::with_kl<loss::SequenceTokenRatio>(c, coefficient, visit);
    case LevelPart::token:
      break;
  }
  return detail::with_kl<loss::TokenRatio>(c, coefficient, visit);
}

}  // namespace rlalgo::config
