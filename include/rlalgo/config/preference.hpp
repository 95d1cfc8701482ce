// From the rows of config/methods.hpp to a preference loss: the one place that knows the type of a part.
//
//   direct       DirectPreference over the objectives of dpo_loss_type with dpo_loss_weights, under f_divergence_type
//   prospect     Prospect<KahnemanTversky>, or Prospect<ApoZeroUnpaired> without mismatched completions
//   odds_ratio   OddsRatio
//   contrastive  Contrastive over one objective, on sums or means
//
// Choice happens here and nowhere below.
//
// Errors (usage): [rlalgo.config.23] there is no preference loss of that name.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/methods.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/loss/alignment_by_transport.hpp>
#include <rlalgo/loss/any_loss.hpp>
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

[[nodiscard]] inline loss::AnyObjective::Term pair_objective(PairPart part, double weight, double margin,
                                                             const PreferenceConfig& p) {
  const double epsilon = p.dpo_label_smoothing;
  switch (part) {
    case PairPart::sigmoid:
      return {loss::Sigmoid(), weight};
    case PairPart::hinge:
      return {loss::Hinge(), weight};
    case PairPart::ipo:
      return {loss::Ipo(), weight};
    case PairPart::exo_pair:
      return {loss::ExoPair({.label_smoothing = epsilon}), weight};
    case PairPart::nca_pair:
      return {loss::NcaPair(), weight};
    case PairPart::robust:
      return {loss::Robust({.label_smoothing = epsilon}), weight};
    case PairPart::bco_pair:
      return {loss::BcoPair(), weight};
    case PairPart::sppo_hard:
      return {loss::SppoHard(), weight};
    case PairPart::aot:
      return {loss::Aot({.label_smoothing = epsilon}), weight};
    case PairPart::aot_unpaired:
      return {loss::AotUnpaired({.label_smoothing = epsilon}), weight};
    case PairPart::discopop:
      return {loss::DiscoPop({.tau = p.discopop_tau}), weight};
    case PairPart::apo_zero:
      return {loss::ApoZero(), weight};
    case PairPart::apo_down:
      return {loss::ApoDown(), weight};
    case PairPart::sft:
      return {loss::ChosenLikelihood(), weight};
    case PairPart::sigmoid_norm:
      return {loss::SigmoidNorm(), weight};
    case PairPart::margin_sigmoid:
      break;
  }
  return {loss::MarginSigmoid({.gamma = margin, .label_smoothing = epsilon}), weight};
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
  const std::vector<PairObjective> objectives = pair_objectives_of(c);
  for (std::size_t k = 0; k < objectives.size(); ++k)
    settings.objective.terms.push_back(
        pair_objective(objectives[k].part, p.dpo_loss_weights.empty() ? 1.0 : p.dpo_loss_weights[k], 0.0, p));
  settings.divergence = divergence(p).config();
  return visit(loss::AnyLossLike<L>(L(std::move(settings))));
}

template <class Value, class Visit>
auto with_prospect(const RunConfig& c, Visit&& visit) {
  using L = loss::Prospect<Value>;
  return visit(loss::AnyLossLike<L>(L({.beta = c.beta,
                                       .desirable_weight = c.preference.kto_desirable_weight,
                                       .undesirable_weight = c.preference.kto_undesirable_weight})));
}

template <class Level, class Visit>
auto with_contrastive(const RunConfig& c, const PreferenceLoss& row, Visit&& visit) {
  const PreferenceConfig& p = c.preference;
  using L = loss::Contrastive<loss::AnyObjective, Level>;
  loss::AnyObjective::Term term = pair_objective(row.objective, 1.0, row.margin ? p.simpo_gamma : 0.0, p);
  return visit(loss::AnyLossLike<L>(L({.beta = c.beta,
                                       .objective = {.terms = {std::move(term)}},
                                       .likelihood_weight = row.likelihood ? p.cpo_alpha : 0.0,
                                       .shape = p.alpha})));
}

}  // namespace detail

// Calls `visit(loss)` with the loss that the configuration names, erased to one type per set of needs. All results have
// one type.
template <class Visit>
auto with_preference_loss(const RunConfig& c, Visit&& visit) {
  switch (recipe_of(c).loss) {
    case PreferenceFamilyLoss::prospect:
      return needs_mismatched(c) ? detail::with_prospect<loss::KahnemanTversky>(c, visit)
                                 : detail::with_prospect<loss::ApoZeroUnpaired>(c, visit);
    case PreferenceFamilyLoss::odds_ratio:
      return visit(loss::AnyLossLike<loss::OddsRatio>(loss::OddsRatio({.beta = c.beta})));
    case PreferenceFamilyLoss::contrastive: {
      const PreferenceLoss row = preference_loss_of(c);
      return row.mean ? detail::with_contrastive<loss::MeanLogProb>(c, row, visit)
                      : detail::with_contrastive<loss::SummedLogProb>(c, row, visit);
    }
    case PreferenceFamilyLoss::direct:
      break;
  }
  return c.preference.dpo_use_weighting ? detail::with_direct_preference<loss::PolicyWeighted>(c, visit)
                                        : detail::with_direct_preference<loss::Unweighted>(c, visit);
}

}  // namespace rlalgo::config
