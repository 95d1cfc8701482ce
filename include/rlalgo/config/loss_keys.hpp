// What online methods learn from rewards: advantages, surrogate, ratios, penalty, entropy bonus. Unset numbers have TRL's defaults; the
// words are the rows of config/methods.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <rlalgo/config/key.hpp>
#include <rlalgo/config/methods.hpp>

namespace rlalgo::config {

struct LossConfig {
  std::string advantage_estimator = "group_relative";
  std::string loss_type = "dapo";
  std::optional<double> beta;  // see RunConfig::beta
  double epsilon = 0.2;
  std::optional<double> epsilon_high;  // epsilon unless set
  std::optional<double> delta;         // two-sided clip
  std::string importance_sampling_level = "token";
  bool mask_truncated_completions = false;
  bool normalize_advantages = false;
  double top_entropy_quantile = 1.0;  // 1 = off
  std::optional<double> off_policy_mask_threshold;
  double sapo_temperature_pos = 1.0;
  double sapo_temperature_neg = 1.05;
  double vespo_k_pos = 2.0;
  double vespo_lambda_pos = 3.0;
  double vespo_k_neg = 3.0;
  double vespo_lambda_neg = 2.0;
  double entropy_coef = 0.0;
  bool use_adaptive_entropy = false;
  double entropy_coef_min = 0.0;
  double entropy_coef_max = 1.0;
  double entropy_coef_delta = 0.005;
  double entropy_target = 0.2;  // nats
  [[nodiscard]] bool pays_entropy() const { return entropy_coef != 0.0 || use_adaptive_entropy; }
  bool sync_ref_model = false;
  double ref_model_mixup_alpha = 0.9;
  std::int64_t ref_model_sync_steps = 64;
  bool use_bias_correction_kl = false;
  bool skip_zero_advantage_batches = false;
  std::optional<double> router_aux_loss_coef;  // config.json's unless set
  std::string router_replay = "disabled";
  bool disable_dropout = false;
};

// clang-format off
// Of every recipe: an adapter has dropout, and nothing else.
[[nodiscard]] inline Key dropout_key(LossConfig& l) {
  return key("trl.disable_dropout", l.disable_dropout, "`lora_dropout` counts as 0, as in TRL").only_if_written();
}

// Of every recipe: a model has experts, or not (config/detail/router_balance.hpp).
[[nodiscard]] inline Key balance_key(LossConfig& l) {
  return key("trl.router_aux_loss_coef", l.router_aux_loss_coef, "models with experts: weight of the load-balancing loss, metric "
      "`aux_loss`, as in TRL: the mean over micro-batches. `rl: orpo`, `cpo`, `simpo`: 0 unless config.json has `output_router_logits: "
      "true`. With a weight other than 0 a row's tokens cannot be shared by ranks, nor a step trained on in pieces").within(at_least(0))
      .shows("config.json's, 0.001 there");
}

// Of every recipe that has a penalty or a temperature of its own.
[[nodiscard]] inline Key beta_key(LossConfig& l) {
  return key("trl.beta", l.beta, "weight of the KL penalty; 0 loads no reference model").within(at_least(0)).shows("`rl_beta`, else 0");
}

[[nodiscard]] inline Keys loss_keys(LossConfig& l) {
  constexpr std::string_view online = "grpo gdpo ebft", clipped = "grpo bnpo dr_grpo dapo luspo";
  constexpr std::string_view clipped_or_capped = "grpo bnpo dr_grpo dapo luspo cispo";
  const Gate adaptive = where([&l] { return l.use_adaptive_entropy; }, "trl.use_adaptive_entropy is not on");
  const Gate synced = where([&l] { return l.sync_ref_model; }, "trl.sync_ref_model is not on");
  const Range exponent = at_least(0).to(80).meaning("beyond, the weight leaves float32");
  return {
    key("trl.advantage_estimator", l.advantage_estimator, "how rewards become advantages (a key of ours)").one_of(names_of(estimators()))
        .of_recipe("grpo gdpo"),
    key("trl.loss_type", l.loss_type, "surrogate and reduction").one_of(names_of(policy_objectives())).of_recipe(online),
    beta_key(l),
    dropout_key(l),
    balance_key(l),
    key("trl.router_replay", l.router_replay, "models with experts: `R3` = training passes the experts that generation chose, as verl's (R3): a "
        "rounding apart does not change who computes. Weights of the experts are the trainer's own. Metric `router/replay_mismatch`: share "
        "of the experts that the trainer would not have chosen. References choose for themselves (ours)").one_of({"disabled", "R3"}),
    key("trl.epsilon", l.epsilon, "how far the ratio may move before it is clipped").within(above(0).to(1)).of_loss(clipped_or_capped),
    key("trl.epsilon_high", l.epsilon_high, "the same upwards").within(positive).shows("`epsilon`").of_loss(clipped_or_capped),
    key("trl.delta", l.delta, "cap of the ratio where the advantage is negative").within(above(1).meaning("usually more than 1 + "
        "epsilon_high")).of_recipe(online).of_loss(clipped),
    key("trl.importance_sampling_level", l.importance_sampling_level, "what one ratio belongs to; `sequence` is GSPO, `sequence_token` "
        "the same with a gradient per token").one_of(names_of(ratio_levels())).of_recipe(online),
    key("trl.mask_truncated_completions", l.mask_truncated_completions, "completions without an end are not trained on"),
    key("trl.use_bias_correction_kl", l.use_bias_correction_kl, "the penalty is weighted by the ratio of each token"),
    key("trl.skip_zero_advantage_batches", l.skip_zero_advantage_batches, "rows of advantage 0 are not computed; only where the gradient "
        "stays the same (no KL penalty, entropy bonus or `top_entropy_quantile`, not `bnpo`)").free({"the same gradients"}),
    key("trl.top_entropy_quantile", l.top_entropy_quantile, "share of tokens, by entropy, that the surrogate trains on")
        .within(fraction.meaning("1 = all tokens")).of_recipe(online),
    key("trl.off_policy_mask_threshold", l.off_policy_mask_threshold, "completions of negative advantage that moved further, in nats per "
        "token, are dropped").within(any_number).of_recipe(online),
    key("trl.sapo_temperature_pos", l.sapo_temperature_pos, "steepness of the gate where the advantage is positive").within(positive)
        .of_loss("sapo"),
    key("trl.sapo_temperature_neg", l.sapo_temperature_neg, "steepness of the gate elsewhere").within(positive).of_loss("sapo"),
    key("trl.vespo_k_pos", l.vespo_k_pos, "κ where the advantage is positive").within(exponent).of_loss("vespo"),
    key("trl.vespo_lambda_pos", l.vespo_lambda_pos, "λ where the advantage is positive").within(exponent).of_loss("vespo"),
    key("trl.vespo_k_neg", l.vespo_k_neg, "κ elsewhere").within(exponent).of_loss("vespo"),
    key("trl.vespo_lambda_neg", l.vespo_lambda_neg, "λ elsewhere").within(exponent).of_loss("vespo"),
    key("trl.entropy_coef", l.entropy_coef, "weight of the entropy bonus").within(any_number).of_recipe(online),
    key("trl.use_adaptive_entropy", l.use_adaptive_entropy, "the weight follows a target entropy, by the next four").of_recipe(online),
    key("trl.entropy_coef_min", l.entropy_coef_min, "least weight").within(any_number).when(adaptive),
    key("trl.entropy_coef_max", l.entropy_coef_max, "largest weight").within(any_number).when(adaptive),
    key("trl.entropy_coef_delta", l.entropy_coef_delta, "change of the weight in a step").within(positive).when(adaptive),
    key("trl.entropy_target", l.entropy_target, "entropy of a token").within(at_least(0).in("nats")).when(adaptive),
    key("trl.sync_ref_model", l.sync_ref_model, "the reference follows the policy, by the next two"),
    key("trl.ref_model_mixup_alpha", l.ref_model_mixup_alpha, "share of the policy in the new reference").within(fraction).when(synced),
    key("trl.ref_model_sync_steps", l.ref_model_sync_steps, "optimizer steps between two of them").within(count(1)).when(synced),
    key("trl.normalize_advantages", l.normalize_advantages, "leave-one-out advantages are divided by their deviation over the batch")
        .of_estimator("leave_one_out"),
  };
}
// clang-format on

}  // namespace rlalgo::config
