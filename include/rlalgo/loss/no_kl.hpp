// No penalty: no reference model is loaded or scored.
#pragma once

#include <rlalgo/loss/policy_terms.hpp>

namespace rlalgo::loss {

struct NoKl {
  struct Config {};
  static constexpr bool needs_reference = false;

  NoKl() = default;
  explicit NoKl(Config) {}

  Tensor operator()(const Tensor& per_token, const PolicyTerms&, Metrics&) const { return per_token; }
};

}  // namespace rlalgo::loss
