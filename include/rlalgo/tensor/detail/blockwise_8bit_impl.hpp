// Definitions of blockwise_8bit.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <range/v3/view/sliding.hpp>
#include <range/v3/view/zip.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/tensor/blockwise_8bit.hpp>

namespace rlalgo::tensor {

namespace detail {

inline constexpr std::uint32_t least_exponent = 127 - 23;  // numbers below 2⁻²³ are nearer to 0 than to any other value
inline constexpr std::uint32_t first_bin = least_exponent << 7U;
inline constexpr std::uint32_t bins_of_a_sign = ((127U << 7U) - first_bin) + 2;  // below the first, …, 1.0

// torch.linspace(0.1, 1, parts + 1) in float32 on a processor with fused multiply-add: one rounding, which a product and a
// sum of float32 in double have, whatever the compiler contracts.
inline float boundary(std::size_t i, std::size_t parts) {
  const float begin = 0.1F, step = (1.0F - begin) / static_cast<float>(parts);
  return static_cast<float>(i < (parts + 1) / 2
                                ? static_cast<double>(begin) + static_cast<double>(step) * static_cast<double>(i)
                                : 1.0 - static_cast<double>(step) * static_cast<double>(parts - i));
}

}  // namespace detail

RLALGO_INLINE const DynamicCode& DynamicCode::with_sign() {
  static const DynamicCode code(true);
  return code;
}

RLALGO_INLINE const DynamicCode& DynamicCode::without_sign() {
  static const DynamicCode code(false);
  return code;
}

RLALGO_INLINE DynamicCode::DynamicCode(bool sign) {
  std::vector<float> found = {0.0F, 1.0F};
  for (std::size_t i = 0; i < 7; ++i) {
    const std::size_t parts = std::size_t{1} << (sign ? i : i + 1);
    const auto scale = static_cast<double>(static_cast<float>(std::pow(10.0, static_cast<double>(i) - 6.0)));
    for (std::size_t k = 0; k < parts; ++k) {
      const float sum = static_cast<float>(static_cast<double>(detail::boundary(k, parts)) +
                                           static_cast<double>(detail::boundary(k + 1, parts)));
      const auto value = static_cast<float>(scale * static_cast<double>(sum / 2.0F));
      found.push_back(value);
      if (sign) found.push_back(-value);
    }
  }
  std::sort(found.begin(), found.end());
  std::copy(found.begin(), found.end(), values_.begin());

  std::array<float, 255> bounds{};
  for (auto&& [bound, pair] : ranges::views::zip(bounds, values_ | ranges::views::sliding(2)))
    bound = (pair[0] + pair[1]) / 2.0F;
  for (std::uint32_t s = 0; s < (sign ? 2U : 1U); ++s)
    for (std::uint32_t i = 0; i < detail::bins_of_a_sign; ++i) {
      const auto number = [&](std::uint32_t bits) { return std::bit_cast<float>((s << 31U) | bits); };
      const std::uint32_t near = i == 0 ? 0U : (detail::first_bin + i - 1) << 16U;
      const std::uint32_t far = i + 1 == detail::bins_of_a_sign ? near : ((detail::first_bin + i) << 16U) - 1;
      // Bins are narrower than bounds are apart, so one bound at most is reached within a bin.
      const auto* above = std::lower_bound(bounds.begin(), bounds.end(), number(s == 0 ? near : far));
      bins_.push_back({above == bounds.end() ? std::numeric_limits<float>::infinity() : *above,
                       static_cast<std::uint8_t>(above - bounds.begin())});
    }
}

RLALGO_INLINE std::size_t DynamicCode::bin_of(float x) const {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = (bits & 0x7fffffffU) >> 16U;
  const std::uint32_t i = magnitude < detail::first_bin ? 0U : magnitude - detail::first_bin + 1;
  const std::uint32_t bin = std::min(i, detail::bins_of_a_sign - 1);
  if ((bits >> 31U) == 0) return bin;
  return bins_.size() > detail::bins_of_a_sign ? detail::bins_of_a_sign + bin : 0;  // without sign: −0
}

RLALGO_INLINE std::uint8_t DynamicCode::nearest(float x) const {
  const Bin& bin = bins_[bin_of(x)];
  return static_cast<std::uint8_t>(bin.code + (x > bin.bound ? 1 : 0));
}

RLALGO_INLINE float DynamicCode::quantize(std::span<const float> numbers, std::span<std::uint8_t> codes) const {
  float most = 0.0F;
  for (const float x : numbers) most = std::max(most, std::fabs(x));
  if (most == 0.0F) {
    std::fill(codes.begin(), codes.end(), nearest(0.0F));
    return most;
  }
  const float inverse = 1.0F / most;
  if (std::isinf(inverse))
    for (std::size_t i = 0; i < numbers.size(); ++i) codes[i] = nearest(numbers[i] / most);
  else
    for (std::size_t i = 0; i < numbers.size(); ++i) codes[i] = nearest(numbers[i] * inverse);
  return most;
}

}  // namespace rlalgo::tensor
