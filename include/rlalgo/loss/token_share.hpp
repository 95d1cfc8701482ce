// How a loss depends on the number of tokens of the step (Counts::tokens), for steps that are trained on before all their
// completions are there.
//
//   none   the value does not read it
//   all    value = x / max(tokens, 1): with another number it is the same but for a factor, and so is its gradient
//   mixed  neither, or nobody said: such a loss needs the number before its first micro-batch
//
// A loss, or its reduction, says so with token_share(). What it says concerns its value; its metrics must not read it.
#pragma once

namespace rlalgo::loss {

enum class TokenShare { none, all, mixed };

template <class L>
[[nodiscard]] constexpr TokenShare token_share(const L& loss) {
  if constexpr (requires { loss.token_share(); })
    return loss.token_share();
  else
    return TokenShare::mixed;
}

}  // namespace rlalgo::loss
