// The estimator of methods without advantages: those that learn from a fixed dataset of answers.
#pragma once

namespace rlalgo::advantage {

struct None {
  struct Config {};
};

}  // namespace rlalgo::advantage
