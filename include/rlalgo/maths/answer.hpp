// The final answer of a text, read as mathematics, and whether two of them agree.
//
//   const auto gold = solution_answer("$\\frac{1}{2}$");       // nothing when the text holds no answer
//   const auto offered = completion_answer("… \\boxed{0.5}");
//   agrees(*gold, *offered)  →  true; nothing when the solution cannot be read
//
// Read: integers of any length, decimals, fractions, mixed numbers, percentages, units, powers, roots, logarithms and
// trigonometric functions, factorials and binomials, π e i ∞, symbols with indices, functions f(x), finite sets,
// tuples, intervals and their unions, equations, inequalities, ±, matrices, words in \text{…}. Not read: integrals,
// sums, limits, logic, set builders, periods over decimals, "…" (detail/parse.hpp). A solution that is not read
// agrees with the same text only; beside any other completion the answer is "not known".
// Each call does a bounded number of small operations (detail/work.hpp; ten million and a hundred a byte: tenths
// of a second); beyond that there is no answer, or none that agrees, and `gave_up` is set, as after math-verify's seconds.
// Source: trl.rewards.accuracy_reward over math-verify 0.9 (Kydlíček): where answers are looked for, what is dropped,
// and how values are compared.
// Departures: docs/departures.md, "Maths answers".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <rlalgo/maths/detail/node.hpp>

namespace rlalgo::maths {

struct Answer {
  std::string text;       // normalized, as found
  detail::NodePtr value;  // null: not read
  [[nodiscard]] bool read() const noexcept { return value != nullptr; }
};

// The answer of a completion: its last box, else the last formula that is announced as the answer. Nothing: none is.
[[nodiscard]] std::optional<Answer> completion_answer(std::string_view text, bool* gave_up = nullptr);

// The answer of a dataset's solution: any formula or number, the best announced and the last of these. Nothing: none.
[[nodiscard]] std::optional<Answer> solution_answer(std::string_view text, bool* gave_up = nullptr);

// Whether a completion's answer (none: no answer was found) is the solution's. Nothing when the solution was not read
// and the texts differ.
[[nodiscard]] std::optional<bool> agrees(const Answer& gold, const std::optional<Answer>& answer,
                                         bool* gave_up = nullptr);

}  // namespace rlalgo::maths

#ifndef RLALGO_COMPILED
#include <rlalgo/maths/detail/answer_impl.hpp>
#endif
