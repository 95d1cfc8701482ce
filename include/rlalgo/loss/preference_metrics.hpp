// The metrics that preference losses have in common, under TRL's names; exact over any split into micro-batches.
//
//   entropy                     mean over the completion tokens of all rows, nats
//   logits/chosen, …/rejected   mean over vocabulary and completion tokens of the raw logits
//   mean_token_accuracy         share of chosen completion tokens that have the highest logit
//   rewards/chosen, …/rejected  mean over the pairs of the rewards that the loss defines
//   rewards/accuracies          share of pairs whose chosen reward is the greater one; ties count 0
//   rewards/margins             mean of chosen − rejected
//   logps/chosen, …/rejected    mean over the pairs of the completions' log-probs
#pragma once

#include <cstdint>
#include <string>

#include <rlalgo/loss/concept.hpp>
#include <rlalgo/loss/metrics.hpp>
#include <rlalgo/tensor/masked.hpp>

namespace rlalgo::loss {

namespace detail {

inline Tensor total(const Tensor& x) { return x.detach().to(at::kDouble).sum(); }

// Σ values·weights / Σ weights as a metric.
inline void weighted_mean(Metrics& metrics, const std::string& name, const Tensor& values, const Tensor& weights) {
  if (!values.defined()) return;
  metrics.mean(name, total(tensor::masked(values.detach(), weights)), total(weights));
}

}  // namespace detail

// Entropy, logits and accuracy, as far as the scorer computed them; `desirable` rows are the chosen ones.
inline void add_token_metrics(const Scored& s, Metrics& metrics, bool accuracy = true) {
  detail::weighted_mean(metrics, "entropy", s.entropy, s.mask);
  if (!s.mean_logit.defined()) return;
  const Tensor chosen = s.mask.mul(tensor::spread(s.desirable, s.row));
  const Tensor rejected = s.mask.sub(chosen);
  detail::weighted_mean(metrics, "logits/chosen", s.mean_logit, chosen);
  detail::weighted_mean(metrics, "logits/rejected", s.mean_logit, rejected);
  if (accuracy) detail::weighted_mean(metrics, "mean_token_accuracy", s.greedy, chosen);
}

// Rewards and log-probs of pairs [P] each; returns the margins [P].
inline Tensor add_pair_metrics(const Tensor& chosen_reward, const Tensor& rejected_reward,
                               const Tensor& chosen_log_prob, const Tensor& rejected_log_prob, Metrics& metrics) {
  const std::int64_t pairs = chosen_reward.numel();
  const Tensor margin = chosen_reward.detach().sub(rejected_reward.detach());
  metrics.mean("rewards/chosen", detail::total(chosen_reward), pairs);
  metrics.mean("rewards/rejected", detail::total(rejected_reward), pairs);
  metrics.mean("rewards/accuracies", detail::total(margin.gt(0)), pairs);
  metrics.mean("rewards/margins", detail::total(margin), pairs);
  metrics.mean("logps/chosen", detail::total(chosen_log_prob), pairs);
  metrics.mean("logps/rejected", detail::total(rejected_log_prob), pairs);
  return margin;
}

}  // namespace rlalgo::loss
