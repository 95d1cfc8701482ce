// Steps that are trained on while their completions are made: what must hold, and how the gradient of such a step becomes
// that of the step as a whole.
//
// Samples and micro-batches of a step are known before its first backward; the number of its tokens T is not. So gradients are those
// of the sum over tokens (Counts::tokens is 1), and are divided once by T when the last completion is there: against the step as a
// whole a gradient differs by one rounding at most where the loss divides by the tokens (loss::TokenShare::all), and not at all
// where it does not. A loss that divides by the rows (TokenShare::rows) is assumed to have one for each sample; where episodes have
// several it is scaled likewise.
//
// Errors: [rlalgo.trainer.27] the method needs the whole batch before its first gradient (usage).
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include <c10/core/GradMode.h>

#include <rlalgo/advantage/concept.hpp>
#include <rlalgo/aggregation/concept.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/loss/token_share.hpp>
#include <rlalgo/model/policy.hpp>

namespace rlalgo::trainer {

template <class L, class A, class G>
void require_streamable(const L& loss, const A& estimator, const G& aggregation) {
  const auto refuse = [](const std::string& what, const std::string& expected) {
    core::raise_usage("trainer", 27,
                      {.what = "a step cannot be trained on while its completions are made: " + what,
                       .expected = expected,
                       .remedy = "set sampler::PrefetchConfig::stream_groups to 0"});
  };
  if (!advantage::within_groups(estimator) || !aggregation::within_groups(aggregation))
    refuse("its advantages are of the whole batch", "an estimator and an aggregation that say within_groups()");
  if (loss::token_share(loss) == loss::TokenShare::mixed || loss::active_needs(loss).answer_likelihood)
    refuse("its loss has parts with several denominators, or does not say which it has",
           "a loss whose token_share() is none, all or rows");
}

// What gradients and loss that were made with `assumed` counts are multiplied by.
template <class L>
[[nodiscard]] double rescaling(const L& loss, const loss::Counts& assumed, const loss::Counts& actual) {
  switch (loss::token_share(loss)) {
    case loss::TokenShare::all:
      return std::max(assumed.tokens, 1.0) / std::max(actual.tokens, 1.0);
    case loss::TokenShare::rows:
      return std::max(assumed.rows, 1.0) / std::max(actual.rows, 1.0);
    default:
      return 1.0;
  }
}

inline void scale_gradients(std::span<const model::Parameter> parameters, double factor) {
  if (factor == 1.0) return;
  const c10::AutoGradMode off(false);
  for (const model::Parameter& p : parameters)
    if (p.value.grad().defined()) p.value.mutable_grad().mul_(factor);
}

}  // namespace rlalgo::trainer
