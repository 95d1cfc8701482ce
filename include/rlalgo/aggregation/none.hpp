// The aggregation of methods without rewards: those that learn from a fixed dataset of answers.
#pragma once

namespace rlalgo::aggregation {

struct None {};

}  // namespace rlalgo::aggregation
