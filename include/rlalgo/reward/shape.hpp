// Rewards for the shape of a completion: its length, its repetitions, its thinking tags.
//
//   soft_overlong   n ≤ L−C: 0;  L−C < n ≤ L: (L−C−n)/C;  n > L: −1;  C = 0: a step at L
//   repetition      (1 − distinct/total n-grams)·max_penalty over token ids; 0 below n tokens
//   think_format    1 iff the text starts with <think>, has no second one, and has </think> after it
//
// Source: soft_overlong DAPO, arXiv 2503.14476, eq. (13); all three as in trl.rewards (get_soft_overlong_punishment,
// get_repetition_penalty_reward, think_format_reward). n = number of completion tokens, end token included.
// At n = L the penalty is already −1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace rlalgo::reward {

struct SoftOverlong {
  std::int64_t max_completion_length = 0;  // L
  std::int64_t cache = 0;                  // C, the soft zone before it

  [[nodiscard]] double operator()(std::int64_t length) const {
    if (length <= max_completion_length - cache) return 0.0;
    if (length > max_completion_length) return -1.0;
    return static_cast<double>(max_completion_length - cache - length) / static_cast<double>(cache);
  }
};

struct Repetition {
  std::size_t ngram = 3;
  double max_penalty = -1.0;  // ≤ 0

  [[nodiscard]] double operator()(std::span<const std::int32_t> ids) const {
    if (ids.size() < ngram || ngram == 0) return 0.0;
    const std::size_t total = ids.size() - ngram + 1;
    std::set<std::vector<std::int32_t>> distinct;
    for (std::size_t i = 0; i < total; ++i)
      distinct.emplace(ids.begin() + static_cast<std::ptrdiff_t>(i),
                       ids.begin() + static_cast<std::ptrdiff_t>(i + ngram));
    const double repeated = 1.0 - static_cast<double>(distinct.size()) / static_cast<double>(total);
    return repeated > 0 ? repeated * max_penalty : 0.0;  // not −0
  }
};

[[nodiscard]] inline double think_format(const std::string& text) {
  constexpr const char* open = "<think>";
  if (!text.starts_with(open) || text.find(open, 1) != std::string::npos) return 0.0;
  return text.find("</think>") != std::string::npos ? 1.0 : 0.0;
}

}  // namespace rlalgo::reward
