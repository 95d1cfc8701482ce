// IPO: pairs of answers with a bounded target for their difference, so that certain preferences do not run away.
//
//   L(θ) = E [ ( log-ratio(y_w)/|y_w| − log-ratio(y_l)/|y_l| − 1/(2β) )² ],   log-ratio = log π_θ/π_ref
//
// Source: Azar et al., "A General Theoretical Paradigm to Understand Learning from Human Preferences", arXiv
// 2310.12036, eq. 17.
// Symbols: τ of the paper → method.beta; |y| → tokens of the completion.
// Reduction: mean over the pairs of the optimizer step and all ranks.
// Metrics: docs/algorithms/ipo.md; rewards and logps are sums over tokens, not means.
// Errors: those of dpo.hpp.
// Departures from the paper, with TRL and its authors: log-ratios are means over tokens.
#pragma once

#include <rlalgo/dpo.hpp>

namespace rlalgo {

using Ipo = BasicDpo<loss::Ipo>;

}  // namespace rlalgo
