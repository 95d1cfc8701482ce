// Numbers in 8 bits: blocks of 256, each with its largest magnitude, and a code of 256 values that is finest near 0.
//
//   s = max |x| of the block;   c(x) = the nearest qᵢ to x/s, halfway between two the smaller;   x̂ = q_c(x) · s
//   q: 0, 1, and the middles of 2ⁱ (signed, with both signs) or 2ⁱ⁺¹ (unsigned) equal parts of 10ⁱ⁻⁶·[0.1, 1], i = 0 … 6
//
// Source: Dettmers, Lewis, Shleifer & Zettlemoyer, "8-bit Optimizers via Block-wise Quantization", arXiv 2110.02861,
// sections 2.1, 2.2 and appendix "dynamic tree quantization". The values q and the halves between them are bitsandbytes'
// (0.50, create_dynamic_map on a processor with AVX2 or later; quantize_blockwise in Python and on GPUs) to the bit. x/s
// is x · (1/s) in float32, as there; where 1/s overflows (s below 2⁻¹²⁸) it is divided. The least magnitude above 0 is
// 5.5e-7 (signed) or 3.25e-7 (unsigned) of s: anything up to half of it becomes 0. Not followed: bitsandbytes' C++
// library for CPUs looks codes up in 65,536 even steps, so that there is nothing between −1e-5 and 1e-5 of s, nor 0.
//
// Numbers that are not finite give some code, never a read outside of the tables. Host only, no torch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <rlalgo/core/compiled.hpp>

namespace rlalgo::tensor {

class DynamicCode {
 public:
  static constexpr std::size_t block = 256;

  // For numbers of both signs (first moments), and for those of none (second moments).
  [[nodiscard]] static const DynamicCode& with_sign();
  [[nodiscard]] static const DynamicCode& without_sign();

  // The numbers that codes stand for, in rising order.
  [[nodiscard]] std::span<const float, 256> values() const { return values_; }

  // The code of a number in [−1, 1], or in [0, 1] without sign.
  [[nodiscard]] std::uint8_t nearest(float x) const;

  // One block, of 256 numbers or fewer; returns s.
  float quantize(std::span<const float> numbers, std::span<std::uint8_t> codes) const;
  void dequantize(std::span<const std::uint8_t> codes, float s, std::span<float> numbers) const {
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = values_[codes[i]] * s;
  }

 private:
  // What all numbers with the same sign, exponent and first 7 bits of the fraction have in common: two codes at most.
  struct Bin {
    float bound;        // the greatest number with the smaller one
    std::uint8_t code;  // that
  };

  explicit DynamicCode(bool sign);
  [[nodiscard]] std::size_t bin_of(float x) const;

  std::array<float, 256> values_{};
  std::vector<Bin> bins_;  // positive numbers by magnitude, then negative ones
};

}  // namespace rlalgo::tensor

#ifndef RLALGO_COMPILED
#include <rlalgo/tensor/detail/blockwise_8bit_impl.hpp>
#endif
