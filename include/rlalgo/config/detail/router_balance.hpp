// How much the load-balancing loss of a model with experts weighs in a run's loss (model/router_load.hpp).
//
// trl.router_aux_loss_coef where it is written; else as TRL: config.json's router_aux_loss_coef, of ORPO, CPO and SimPO only
// where output_router_logits is true. Energy-based fine-tuning has none unless the key is written.
//
// Errors: [rlalgo.config.49] (usage) the key is written, and is below 0 or the model has no experts, or the step is trained on in pieces.
#pragma once

#include <string>

#include <rlalgo/config/feature_matching.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/decoder_config.hpp>

namespace rlalgo::config::detail {

[[nodiscard]] inline double router_aux_loss_coef(const RunConfig& c, const model::DecoderConfig& model) {
  bool experts = false;
  for (const model::LayerSpec& spec : model.specs) experts = experts || spec.experts.count > 0;
  const auto refuse = [&](const std::string& what, double found) {
    core::raise_usage("config", 49,
                      {.what = what,
                       .found = "trl.router_aux_loss_coef: " + std::to_string(found),
                       .where = c.base_model,
                       .remedy = "set trl.router_aux_loss_coef: 0"});
  };
  const double written = c.trl.router_aux_loss_coef.value_or(0.0);
  if (!(written >= 0.0)) refuse("the weight of the load-balancing loss is below 0", written);
  if (!experts) {
    if (written != 0.0) refuse("the model has no experts whose use could be balanced", written);
    return 0.0;
  }
  const bool asks = c.rl == "orpo" || c.rl == "cpo" || c.rl == "simpo" ? model.output_router_logits
                                                                       : c.rl != "ebft" && !matches_features(c);
  const double used = c.trl.router_aux_loss_coef.value_or(asks ? model.router_aux_loss_coef : 0.0);
  if (used != 0.0 && c.trl.groups_in_a_piece() > 0)
    refuse("the use of experts cannot be balanced where a step is trained on in pieces (streaming_partial_batch)",
           used);
  return used;
}

}  // namespace rlalgo::config::detail
