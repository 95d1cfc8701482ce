// The permutation that NumPy's default_rng(seed).permutation(n) draws.
//
// Hugging Face `datasets` shuffles with it, so axolotl's merged-dataset order for a given seed is reproduced row by
// row. Generator: SeedSequence → PCG64 (128-bit LCG, XSL-RR output); Fisher–Yates from the end with Lemire's bounded
// draw.
// Sources: O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for Random Number
// Generation", HMC-CS-2014-0905; NumPy's SeedSequence (after O'Neill's seed_seq_fe). n is below 2^32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rlalgo::data {

namespace detail {

// NumPy's SeedSequence with one 64-bit entropy word and a pool of four.
class SeedSequence {
 public:
  explicit SeedSequence(std::uint64_t seed);

  // Four 64-bit words of state.
  [[nodiscard]] std::array<std::uint64_t, 4> state() const;

 private:
  static std::uint32_t mix(std::uint32_t x, std::uint32_t y);
  std::array<std::uint32_t, 4> pool_{};
};

class Pcg64 {
 public:
  explicit Pcg64(std::uint64_t seed);

  std::uint64_t next64();
  // Low half first, high half kept for the next call.
  std::uint32_t next32();
  // Uniform in [0, last]: the low bits under the smallest mask that covers `last`, drawn again while too large.
  std::uint32_t bounded(std::uint32_t last);

 private:
  __extension__ using Wide = unsigned __int128;
  void step();
  Wide state_ = 0;
  Wide increment_ = 0;
  bool has_half_ = false;
  std::uint32_t half_ = 0;
};

}  // namespace detail

[[nodiscard]] std::vector<std::size_t> numpy_permutation(std::size_t n, std::uint64_t seed);

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/numpy_permutation_impl.hpp>
#endif
