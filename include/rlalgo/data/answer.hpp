// The host-side data of preference learning: one answer to one prompt, ready to be scored. No torch.
//
// A pair is two answers in turn, chosen and rejected; an unpaired example is one answer with its label.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <rlalgo/data/rollout.hpp>

namespace rlalgo::data {

inline constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

struct Answer {
  std::int64_t row = 0;                         // index of the pair or example in the dataset
  bool desirable = true;                        // chosen, or labelled true
  std::vector<TokenId> ids{};                   // prompt, then completion
  std::int64_t prompt_tokens = 0;               // of ids; at least 1
  std::vector<TokenId> mismatched{};            // KTO: the completion of another row, to the same prompt; else empty
  std::vector<float> reference_log_probs = {};  // [completion] or empty
  double reference_row = unknown;               // Σ over the completion as computed before training; NaN = not known
  double mismatched_reference = unknown;        // the same for `mismatched`
  double mismatched_log_ratio = 0.0;            // log π/ρ of `mismatched` under the current weights

  [[nodiscard]] std::span<const TokenId> prompt() const {
    return std::span(ids).first(static_cast<std::size_t>(prompt_tokens));
  }
  [[nodiscard]] std::span<const TokenId> completion() const {
    return std::span(ids).subspan(static_cast<std::size_t>(prompt_tokens));
  }
  [[nodiscard]] std::int64_t tokens() const { return static_cast<std::int64_t>(ids.size()); }
  [[nodiscard]] std::int64_t completion_tokens() const { return tokens() - prompt_tokens; }
};

}  // namespace rlalgo::data
