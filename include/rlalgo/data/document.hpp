// A text of strided training as token ids: what is continued at its anchors, and whose likelihood is trained.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <rlalgo/data/rollout.hpp>

namespace rlalgo::data {

struct Document {
  std::int64_t row = 0;                      // in the dataset
  std::vector<TokenId> ids = {};             // no padding
  std::vector<std::uint8_t> loss_mask = {};  // [ids] 1 = its likelihood is trained; index 0 has no predictor
  std::optional<std::int64_t> prompt_length = std::nullopt;  // where the text is prompt and answer
};

}  // namespace rlalgo::data
