// Counter-based random numbers: Philox4x32-10.
//
// Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011. A draw is a pure function
// of (seed, stream, step, index), so batch order, thread count, rank count and resume cannot change a sample.
#pragma once

#include <array>
#include <cstdint>

namespace rlalgo::core {

// Named streams keep independent uses of one seed apart. Values are part of the checkpoint contract: never renumber.
enum class Stream : std::uint32_t { sampling = 1, dropout = 2, init = 3, data = 4, environment = 5, test = 99 };

struct PhiloxKey {
  std::uint64_t seed = 0;
  Stream stream = Stream::test;
};

using PhiloxBlock = std::array<std::uint32_t, 4>;

// Ten rounds of Philox4x32 on counter (step, index) under key; returns 4 independent 32-bit words.
[[nodiscard]] constexpr PhiloxBlock philox(PhiloxKey key, std::uint64_t step, std::uint64_t index) noexcept {
  std::uint32_t k0 = static_cast<std::uint32_t>(key.seed);
  std::uint32_t k1 =
      static_cast<std::uint32_t>(key.seed >> 32U) ^ (static_cast<std::uint32_t>(key.stream) * 0x9E3779B9U);
  PhiloxBlock c = {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32U),
                   static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32U)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ULL * c[0];
    const std::uint64_t p1 = 0xCD9E8D57ULL * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32U) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32U) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return c;
}

// Uniform in [0, 1) with 53 random bits.
[[nodiscard]] constexpr double uniform(PhiloxKey key, std::uint64_t step, std::uint64_t index) noexcept {
  const PhiloxBlock block = philox(key, step, index);
  const std::uint64_t bits = (static_cast<std::uint64_t>(block[0]) << 32U | block[1]) >> 11U;
  return static_cast<double>(bits) * 0x1.0p-53;
}

}  // namespace rlalgo::core
