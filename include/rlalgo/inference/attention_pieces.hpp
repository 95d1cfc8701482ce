// How much attention over pages takes beside its results, where LibTorch's operators compute it: they gather pages and keep whole scores.
#pragma once

#include <cstdint>

namespace rlalgo::inference {

// Elements at a time; one sequence, or one row of one, is a piece where it alone has more.
struct AttentionPieces {
  std::int64_t gathered = std::int64_t{1} << 25U;  // keys and values
  std::int64_t scores = std::int64_t{1} << 25U;    // heads · rows · positions
};

}  // namespace rlalgo::inference
