// How a loss depends on the numbers of tokens and of rows of the step (Counts), for steps that are trained on before all
// their completions are there.
//
//   none   the value reads neither
//   all    value = x / max(tokens, 1): with another number it is the same but for a factor, and so is its gradient
//   rows   value = x / max(rows, 1): likewise
//   mixed  none of these, or nobody said: such a loss needs the numbers before its first micro-batch
//
// A loss, or its reduction, says so with token_share() (hooks.hpp). What it says concerns its value; its metrics must not read it.
#pragma once

#include <rlalgo/loss/hooks.hpp>

namespace rlalgo::loss {

enum class TokenShare { none, all, rows, mixed };

template <class L>
[[nodiscard]] constexpr TokenShare token_share(const L& loss) {
  if constexpr (hooks_of<L>().token_share)
    return loss.token_share();
  else
    return TokenShare::mixed;
}

}  // namespace rlalgo::loss
