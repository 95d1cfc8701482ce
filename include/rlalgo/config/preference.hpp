// From a configuration to a preference method: the explicit list of what rl: dpo, ipo, kto, orpo, simpo, cpo mean.
//
//   dpo, ipo    DirectPreference over the objectives of dpo_loss_type with dpo_loss_weights, under f_divergence_type
//   kto         Prospect<KahnemanTversky> or Prospect<ApoZeroUnpaired> (trl.loss_type)
//   orpo        OddsRatio
//   simpo, cpo  Contrastive: sigmoid, hinge on sums; ipo, simpo on means; alphapo = simpo with cpo_alpha 0
//
// Choice happens here and nowhere below.
//
// Errors (usage): [rlalgo.config.23] there is no preference loss of that name.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/run_config.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/loss/alignment_by_transport.hpp>
#include <rlalgo/loss/chosen_likelihood.hpp>
#include <rlalgo/loss/contrastive.hpp>
#include <rlalgo/loss/direct_preference.hpp>
#include <rlalgo/loss/logistic_objectives.hpp>
#include <rlalgo/loss/mixed_objective.hpp>
#include <rlalgo/loss/odds_ratio.hpp>
#include <rlalgo/loss/pointwise_objectives.hpp>
#include <rlalgo/loss/prospect.hpp>
#include <rlalgo/loss/squared_objectives.hpp>

namespace rlalgo::config {

namespace detail {

[[nodiscard]] inline loss::AnyObjective::Term pair_objective(const std::string& name, double weight,
                                                             const PreferenceConfig& p) {
  const double epsilon = p.dpo_label_smoothing;
  if (name == "sigmoid") return {loss::Sigmoid(), weight};
  if (name == "hinge") return {loss::Hinge(), weight};
  if (name == "ipo") return {loss::Ipo(), weight};
  if (name == "exo_pair") return {loss::ExoPair({.label_smoothing = epsilon}), weight};
  if (name == "nca_pair") return {loss::NcaPair(), weight};
  if (name == "robust") return {loss::Robust({.label_smoothing = epsilon}), weight};
  if (name == "bco_pair") return {loss::BcoPair(), weight};
  if (name == "sppo_hard") return {loss::SppoHard(), weight};
  if (name == "aot") return {loss::Aot({.label_smoothing = epsilon}), weight};
  if (name == "aot_unpaired") return {loss::AotUnpaired({.label_smoothing = epsilon}), weight};
  if (name == "discopop") return {loss::DiscoPop({.tau = p.discopop_tau}), weight};
  if (name == "apo_zero") return {loss::ApoZero(), weight};
  if (name == "apo_down") return {loss::ApoDown(), weight};
  if (name == "sft") return {loss::ChosenLikelihood(), weight};
  if (name == "sigmoid_norm") return {loss::SigmoidNorm(), weight};
  core::raise_usage("config", 23, {.what = "there is no preference loss of that name", .found = name});
}

[[nodiscard]] inline loss::AnyDivergence divergence(const PreferenceConfig& p) {
  if (p.f_divergence_type == "forward_kl") return loss::AnyDivergence(loss::ForwardKl());
  if (p.f_divergence_type == "js_divergence") return loss::AnyDivergence(loss::JensenShannon());
  if (p.f_divergence_type == "alpha_divergence")
    return loss::AnyDivergence(loss::AlphaDivergence({.alpha = p.f_alpha_divergence_coef}));
  return {};
}

template <class Weighting, class Visit>
auto with_direct_preference(const RunConfig& c, Visit&& visit) {
  const PreferenceConfig& p = c.preference;
  using L = loss::DirectPreference<loss::AnyObjective, loss::AnyDivergence, Weighting>;
  typename L::Config settings{.beta = c.beta, .objective = {}, .divergence = {}, .ld_alpha = p.ld_alpha};
  const std::vector<std::string> names =
      p.dpo_loss_type.empty() ? std::vector<std::string>{"sigmoid"} : p.dpo_loss_type;
  for (std::size_t k = 0; k < names.size(); ++k)
    settings.objective.terms.push_back(
        pair_objective(names[k], p.dpo_loss_weights.empty() ? 1.0 : p.dpo_loss_weights[k], p));
  settings.divergence.score = divergence(p);
  return visit(L(std::move(settings)));
}

template <class Level, class Visit>
auto with_contrastive(const RunConfig& c, Visit&& visit) {
  const PreferenceConfig& p = c.preference;
  const std::string& name = p.cpo_loss_type;
  loss::AnyObjective::Term term{
      loss::MarginSigmoid({.gamma = name == "simpo" ? p.simpo_gamma : 0.0, .label_smoothing = p.dpo_label_smoothing})};
  if (name == "hinge") term.objective = loss::Hinge();
  if (name == "ipo") term.objective = loss::Ipo();
  using L = loss::Contrastive<loss::AnyObjective, Level>;
  return visit(L(
      {.beta = c.beta, .objective = {.terms = {std::move(term)}}, .likelihood_weight = p.cpo_alpha, .shape = p.alpha}));
}

}  // namespace detail

// Calls `visit(loss)` with the loss that the configuration names. All results have one type.
template <class Visit>
auto with_preference_loss(const RunConfig& c, Visit&& visit) {
  const PreferenceConfig& p = c.preference;
  if (c.rl == "kto" && p.kto_loss_type == "apo_zero_unpaired")
    return visit(loss::Prospect<loss::ApoZeroUnpaired>(
        {.beta = c.beta, .desirable_weight = p.kto_desirable_weight, .undesirable_weight = p.kto_undesirable_weight}));
  if (c.rl == "kto")
    return visit(loss::Prospect<loss::KahnemanTversky>(
        {.beta = c.beta, .desirable_weight = p.kto_desirable_weight, .undesirable_weight = p.kto_undesirable_weight}));
  if (c.rl == "orpo") return visit(loss::OddsRatio({.beta = c.beta}));
  if (c.rl == "simpo" || c.rl == "cpo") {
    if (p.cpo_loss_type == "simpo" || p.cpo_loss_type == "ipo")
      return detail::with_contrastive<loss::MeanLogProb>(c, visit);
    return detail::with_contrastive<loss::SummedLogProb>(c, visit);
  }
  if (p.dpo_use_weighting) return detail::with_direct_preference<loss::PolicyWeighted>(c, visit);
  return detail::with_direct_preference<loss::Unweighted>(c, visit);
}

// Whether the recipe compares with a reference model.
[[nodiscard]] inline bool needs_reference(const RunConfig& c) {
  return c.rl == "dpo" || c.rl == "ipo" || c.rl == "kto";
}

}  // namespace rlalgo::config
