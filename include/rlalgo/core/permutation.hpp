// The permutation that torch.randperm(n, generator=seeded) draws on a CPU, without torch.
//
// A Fisher–Yates shuffle over 32-bit Mersenne Twister outputs, so that data order equals that of a run of TRL with the
// same seed (its samplers permute with torch's CPU generator).
// Source: the algorithm of ATen's randperm for CPU tensors with n < 2^32 / 20. Successive calls on one generator give
// successive epochs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace rlalgo::core {

[[nodiscard]] inline std::vector<std::size_t> permutation(std::size_t n, std::mt19937& generator) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = 0; i + 1 < n; ++i) std::swap(order[i], order[i + generator() % (n - i)]);
  return order;
}

}  // namespace rlalgo::core
