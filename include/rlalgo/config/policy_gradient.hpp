// From a configuration to a policy-gradient method: the explicit list of what `rl` and the `trl` keys can mean.
//
//   loss_type   surrogate     reduction          with importance_sampling_level
//   grpo        ClippedRatio  SequenceMean       token, sequence (GSPO), sequence_token (GSPO-token)
//   bnpo        ClippedRatio  TokenMean          likewise
//   dr_grpo     ClippedRatio  FixedLength        likewise
//   dapo        ClippedRatio  GlobalTokenCount   likewise
//   luspo       ClippedRatio  LengthWeighted     likewise
//   cispo       Cispo         GlobalTokenCount   token, sequence
//   sapo        Sapo          SequenceMean       token, sequence
//   vespo       Vespo         GlobalTokenCount   token
//   rl: rloo    ClippedRatio  SequenceMean       of the whole completion
//
// times the KL penalty (beta 0: none, else k3), the weights (top_entropy_quantile, off_policy_mask_threshold), and with
// completions of a server the importance-sampling correction; entropy_coef adds the entropy bonus around the loss.
// Advantages: advantage_estimator, scale_rewards; aggregation: multi_objective_aggregation, which `rl: gdpo` presets to
// normalize_then_sum. RLOO: leave-one-out advantages of rewards that contain the KL penalty. Choice happens here and
// nowhere below.
//
// Errors (usage): [rlalgo.config.22] there is no policy-gradient loss of that name.
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
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/core/error.hpp>
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
#include <rlalgo/loss/sampling_correction.hpp>
#include <rlalgo/loss/sapo.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/loss/sequence_ratio.hpp>
#include <rlalgo/loss/sequence_token_ratio.hpp>
#include <rlalgo/loss/token_mean.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/loss/top_entropy.hpp>
#include <rlalgo/loss/vespo.hpp>

namespace rlalgo::config {

[[nodiscard]] inline loss::ClippedRatio::Config clipped_ratio(const RunConfig& c) {
  return {
      .epsilon_low = c.trl.epsilon, .epsilon_high = c.trl.epsilon_high.value_or(c.trl.epsilon), .delta = c.trl.delta};
}

[[nodiscard]] inline advantage::GroupRelative::Config group_relative(const RunConfig& c) {
  using advantage::Scale;
  return {.scale = c.trl.scale_rewards == "group"   ? Scale::group
                   : c.trl.scale_rewards == "batch" ? Scale::batch
                                                    : Scale::none};
}

using AnyEstimator = advantage::AnyEstimator;
using AnyAggregation = aggregation::AnyAggregation<AnyEstimator>;

[[nodiscard]] inline AnyEstimator estimator(const RunConfig& c) {
  if (c.rl == "rloo") return AnyEstimator(advantage::LeaveOneOut({.normalize = c.trl.normalize_advantages}));
  const std::string& name = c.trl.advantage_estimator;
  if (name == "leave_one_out") return AnyEstimator(advantage::LeaveOneOut({.normalize = c.trl.normalize_advantages}));
  if (name == "reinforce_pp") return AnyEstimator(advantage::BatchWhitened({.group_baseline = false}));
  if (name == "reinforce_pp_baseline") return AnyEstimator(advantage::BatchWhitened());
  if (name == "pass_through") return AnyEstimator(advantage::PassThrough());
  // normalize_then_sum normalises each function by its group, whatever scale_rewards says.
  if (c.trl.multi_objective_aggregation == "normalize_then_sum") return AnyEstimator(advantage::GroupRelative());
  return AnyEstimator(advantage::GroupRelative(group_relative(c)));
}

[[nodiscard]] inline AnyAggregation reward_aggregation(const RunConfig& c) {
  if (c.rl == "rloo")
    return AnyAggregation(aggregation::SumMinusKl({.beta = c.beta, .range = c.trl.reward_clip_range}));
  if (c.trl.multi_objective_aggregation == "normalize_then_sum") return AnyAggregation(aggregation::NormalizeThenSum());
  return AnyAggregation(aggregation::SumThenNormalize());
}

// Completions come from a server, and the difference between its log-probs and ours is corrected for.
[[nodiscard]] inline std::optional<loss::SamplingCorrection::Config> sampling_correction(const RunConfig& c) {
  const TrlConfig& t = c.trl;
  if (c.rl == "rloo" || !t.generates_elsewhere() || !t.vllm_importance_sampling_correction) return std::nullopt;
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
  if (t.loss_type == "cispo")
    return loss::AnySurrogate::of(loss::Cispo({.epsilon_high = t.epsilon_high.value_or(t.epsilon)}));
  if (t.loss_type == "sapo")
    return loss::AnySurrogate::of(
        loss::Sapo({.temperature_positive = t.sapo_temperature_pos, .temperature_negative = t.sapo_temperature_neg}));
  if (t.loss_type == "vespo")
    return loss::AnySurrogate::of(loss::Vespo({.k_positive = t.vespo_k_pos,
                                               .lambda_positive = t.vespo_lambda_pos,
                                               .k_negative = t.vespo_k_neg,
                                               .lambda_negative = t.vespo_lambda_neg}));
  return loss::AnySurrogate::of(loss::ClippedRatio(clipped_ratio(c)));
}

[[nodiscard]] inline loss::AnyReduction::Config reduction(const RunConfig& c) {
  using loss::AnyReduction;
  const std::string& name = c.trl.loss_type;
  if (c.rl == "rloo" || name == "grpo" || name == "sapo") return AnyReduction::of(loss::SequenceMean());
  if (name == "bnpo") return AnyReduction::of(loss::TokenMean());
  if (name == "dr_grpo")
    return AnyReduction::of(loss::FixedLength({.max_completion_length = c.trl.max_completion_length}));
  if (name == "dapo" || name == "cispo" || name == "vespo") return AnyReduction::of(loss::GlobalTokenCount());
  if (name == "luspo") return AnyReduction::of(loss::LengthWeighted());
  core::raise_usage("config", 22,
                    {.what = "there is no policy-gradient loss of that name",
                     .found = name,
                     .expected = "grpo, bnpo, dr_grpo, dapo, luspo, cispo, sapo or vespo",
                     .where = c.place("trl.loss_type")});
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
  const std::string& type = c.trl.loss_type;
  const bool counts_all = type == "dapo" || type == "cispo" || type == "vespo";
  return Erased(Bonus({.objective = std::move(config),
                       .coefficient = coefficient,
                       .share = c.trl.top_entropy_quantile,
                       .scope = counts_all ? Bonus::Scope::step : Bonus::Scope::micro_batch}));
}

template <class Ratio, class Kl, class Visit>
auto with_correction(const RunConfig& c, typename Kl::Config kl, const EntropyCoefficient& coefficient, Visit&& visit) {
  using namespace loss;
  using Erased = AnyLoss<
      Needs{
          .old_log_prob = true, .reference_log_prob = Kl::needs_reference, .sampling_log_prob = true, .entropy = true},
      RowKind::samples>;
  if (const auto correction = sampling_correction(c)) {
    using L = PolicyGradient<AnySurrogate, Ratio, Kl, AnyReduction, AnyWeights, SamplingCorrection>;
    return visit(with_bonus<Erased, L>(c,
                                       {.surrogate = surrogate(c),
                                        .ratio = {},
                                        .kl = kl,
                                        .reduction = reduction(c),
                                        .weights = {weights(c), *correction}},
                                       coefficient));
  }
  using L = PolicyGradient<AnySurrogate, Ratio, Kl, AnyReduction, AnyWeights>;
  return visit(with_bonus<Erased, L>(
      c, {.surrogate = surrogate(c), .ratio = {}, .kl = kl, .reduction = reduction(c), .weights = {weights(c)}},
      coefficient));
}

template <class Ratio, class Visit>
auto with_kl(const RunConfig& c, const EntropyCoefficient& coefficient, Visit&& visit) {
  if (c.beta == 0.0) return with_correction<Ratio, loss::NoKl>(c, {}, coefficient, visit);
  return with_correction<Ratio, loss::K3Kl>(c, {.beta = c.beta, .bias_correction = c.trl.use_bias_correction_kl},
                                            coefficient, visit);
}

}  // namespace detail

// Calls `visit(loss)` with the loss that the configuration names, erased to one type per set of needs (with and without
// reference), so that a visitor that makes a trainer is compiled twice, not once per method. All results have one type.
template <class Visit>
auto with_policy_gradient(const RunConfig& c, const EntropyCoefficient& coefficient, Visit&& visit) {
  if (c.rl == "rloo") return detail::with_correction<loss::CompletionRatio, loss::NoKl>(c, {}, nullptr, visit);
  const std::string& level = c.trl.importance_sampling_level;
  if (level == "sequence") return detail::with_kl<loss::SequenceRatio>(c, coefficient, visit);
  if (level == "sequence_token") return detail::with_kl<loss::SequenceTokenRatio>(c, coefficient, visit);
  return detail::with_kl<loss::TokenRatio>(c, coefficient, visit);
}

}  // namespace rlalgo::config
