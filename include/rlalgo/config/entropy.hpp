// From a configuration to the coefficient of the entropy bonus: entropy_coef, or steered by use_adaptive_entropy.
#pragma once

#include <memory>

#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/loss/entropy_bonus.hpp>

namespace rlalgo::config {

// The coefficient of the entropy bonus, shared by the loss and what steers it; null where there is no bonus.
using EntropyCoefficient = std::shared_ptr<loss::EntropyCoefficient>;

[[nodiscard]] inline EntropyCoefficient entropy_coefficient(const RunConfig& c) {
  const TrlConfig& t = c.trl;
  if (recipe_of(c).plain || !t.pays_entropy()) return nullptr;
  if (!t.use_adaptive_entropy) return std::make_shared<loss::EntropyCoefficient>(t.entropy_coef);
  return std::make_shared<loss::EntropyCoefficient>(t.entropy_coef,
                                                    loss::EntropyCoefficient::Adaptive{.minimum = t.entropy_coef_min,
                                                                                       .maximum = t.entropy_coef_max,
                                                                                       .step = t.entropy_coef_delta,
                                                                                       .target = t.entropy_target});
}

}  // namespace rlalgo::config
