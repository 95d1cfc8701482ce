// Definitions of numpy_permutation.hpp.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/numpy_permutation.hpp>

namespace rlalgo::data {

namespace detail {

RLALGO_INLINE SeedSequence::SeedSequence(std::uint64_t seed) {
  const std::array<std::uint32_t, 2> entropy = {static_cast<std::uint32_t>(seed),
                                                static_cast<std::uint32_t>(seed >> 32U)};
  const std::size_t words = entropy[1] != 0 ? 2 : 1;
  std::uint32_t constant = 0x43b0d7e5U;
  const auto hash = [&](std::uint32_t value) {
    value ^= constant;
    constant *= 0x931e8875U;
    value *= constant;
    return value ^ (value >> 16U);
  };
  for (std::size_t i = 0; i < pool_.size(); ++i) pool_[i] = hash(i < words ? entropy[i] : 0);
  for (std::size_t from = 0; from < pool_.size(); ++from)
    for (std::size_t to = 0; to < pool_.size(); ++to)
      if (from != to) pool_[to] = mix(pool_[to], hash(pool_[from]));
}

RLALGO_INLINE std::array<std::uint64_t, 4> SeedSequence::state() const {
  std::array<std::uint64_t, 4> out{};
  std::uint32_t constant = 0x8b51f9ddU;
  for (std::size_t i = 0; i < 8; ++i) {
    std::uint32_t value = pool_[i % pool_.size()] ^ constant;
    constant *= 0x58f38dedU;
    value *= constant;
    value ^= value >> 16U;
    out[i / 2] |= static_cast<std::uint64_t>(value) << (32U * (i % 2));
  }
  return out;
}

RLALGO_INLINE std::uint32_t SeedSequence::mix(std::uint32_t x, std::uint32_t y) {
  const std::uint32_t value = 0xca01f9ddU * x - 0x4973f715U * y;
  return value ^ (value >> 16U);
}

RLALGO_INLINE Pcg64::Pcg64(std::uint64_t seed) {
  const auto words = SeedSequence(seed).state();
  const Wide start = (Wide{words[0]} << 64U) | words[1];
  increment_ = (((Wide{words[2]} << 64U) | words[3]) << 1U) | 1U;
  step();
  state_ += start;
  step();
}

RLALGO_INLINE std::uint64_t Pcg64::next64() {
  step();
  const std::uint64_t folded = static_cast<std::uint64_t>(state_ >> 64U) ^ static_cast<std::uint64_t>(state_);
  const unsigned rotation = static_cast<unsigned>(state_ >> 122U);
  return (folded >> rotation) | (folded << ((64U - rotation) & 63U));
}

RLALGO_INLINE std::uint32_t Pcg64::next32() {
  if (has_half_) {
    has_half_ = false;
    return half_;
  }
  const std::uint64_t word = next64();
  has_half_ = true;
  half_ = static_cast<std::uint32_t>(word >> 32U);
  return static_cast<std::uint32_t>(word);
}

RLALGO_INLINE std::uint32_t Pcg64::bounded(std::uint32_t last) {
  const std::uint32_t mask = UINT32_MAX >> static_cast<unsigned>(std::countl_zero(last));
  std::uint32_t value = next32() & mask;
  while (value > last) value = next32() & mask;
  return value;
}

RLALGO_INLINE void Pcg64::step() {
  constexpr Wide multiplier = (Wide{2549297995355413924ULL} << 64U) | 4865540595714422341ULL;
  state_ = state_ * multiplier + increment_;
}

}  // namespace detail

RLALGO_INLINE std::vector<std::size_t> numpy_permutation(std::size_t n, std::uint64_t seed) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  detail::Pcg64 generator(seed);
  for (std::size_t i = n; i-- > 1;) std::swap(order[i], order[generator.bounded(static_cast<std::uint32_t>(i))]);
  return order;
}

}  // namespace rlalgo::data
