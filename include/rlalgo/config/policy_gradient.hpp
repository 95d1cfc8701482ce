// From a configuration to a policy-gradient method: the explicit list of what `rl: grpo` and `trl.loss_type` can mean.
//
//   loss_type   surrogate     reduction
//   grpo        ClippedRatio  SequenceMean
//   bnpo        ClippedRatio  TokenMean
//   dr_grpo     ClippedRatio  FixedLength
//   dapo        ClippedRatio  GlobalTokenCount
//
// times importance_sampling_level (token, sequence) and the KL penalty (beta 0: none, else k3). Choice happens here and
// nowhere below.
#pragma once

#include <string>
#include <utility>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/bnpo.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/dapo.hpp>
#include <rlalgo/dr_grpo.hpp>
#include <rlalgo/grpo.hpp>
#include <rlalgo/loss/any_loss.hpp>
#include <rlalgo/loss/sequence_ratio.hpp>

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

namespace detail {

template <class Ratio, class Kl, class Visit>
auto with_reduction(const RunConfig& c, typename Kl::Config kl, Visit&& visit) {
  const auto loss = [&]<class R>(typename R::Config reduction) {
    using L = loss::PolicyGradient<loss::ClippedRatio, Ratio, Kl, R>;
    return visit(
        loss::AnyLossLike<L>(L({.surrogate = clipped_ratio(c), .ratio = {}, .kl = kl, .reduction = reduction})));
  };
  const std::string& name = c.trl.loss_type;
  if (name == "grpo") return loss.template operator()<loss::SequenceMean>({});
  if (name == "bnpo") return loss.template operator()<loss::TokenMean>({});
  if (name == "dr_grpo")
    return loss.template operator()<loss::FixedLength>({.max_completion_length = c.trl.max_completion_length});
  if (name == "dapo") return loss.template operator()<loss::GlobalTokenCount>({});
  core::raise_usage("config", 22,
                    {.what = "there is no policy-gradient loss of that name",
                     .found = name,
                     .expected = "grpo, bnpo, dr_grpo or dapo",
                     .where = c.place("trl.loss_type")});
}

template <class Ratio, class Visit>
auto with_kl(const RunConfig& c, Visit&& visit) {
  if (c.beta == 0.0) return with_reduction<Ratio, loss::NoKl>(c, {}, visit);
  return with_reduction<Ratio, loss::K3Kl>(c, {.beta = c.beta, .bias_correction = c.trl.use_bias_correction_kl}, visit);
}

}  // namespace detail

// Calls `visit(loss)` with the loss that the configuration names, erased to one type per set of needs (with and without
// reference), so that a visitor that makes a trainer is compiled twice, not once per method. All results have one type.
template <class Visit>
auto with_policy_gradient(const RunConfig& c, Visit&& visit) {
  if (c.trl.importance_sampling_level == "sequence") return detail::with_kl<loss::SequenceRatio>(c, visit);
  return detail::with_kl<loss::TokenRatio>(c, visit);
}

}  // namespace rlalgo::config
