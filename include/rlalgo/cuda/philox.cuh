// Counter-based random numbers, those of core/philox.hpp: Philox4x32-10.
//
// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
#pragma once

#include <cstdint>

#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/cuda/language.cuh>

namespace rlalgo::cuda {

inline constexpr std::uint32_t sampling_stream = 1, dropout_stream = 2;

struct PhiloxWords {
  std::uint32_t word[4];
};

// The block that (seed, stream; step, index) names.
__device__ inline PhiloxWords philox(std::uint64_t seed, std::uint32_t stream, std::uint64_t step,
                                     std::uint64_t index) {
  std::uint32_t k0 = static_cast<std::uint32_t>(seed),
                k1 = static_cast<std::uint32_t>(seed >> 32U) ^ stream * 0x9E3779B9U;
  PhiloxWords c{{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32U),
                 static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32U)}};
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ULL * c.word[0], p1 = 0xCD9E8D57ULL * c.word[2];
    const std::uint32_t c0 = static_cast<std::uint32_t>(p1 >> 32U) ^ c.word[1] ^ k0,
                        c2 = static_cast<std::uint32_t>(p0 >> 32U) ^ c.word[3] ^ k1;
    c = {{c0, static_cast<std::uint32_t>(p1), c2, static_cast<std::uint32_t>(p0)}};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return c;
}

// Uniform in [0, 1) with 53 random bits.
__device__ inline double philox_uniform(std::uint64_t seed, std::uint32_t stream, std::uint64_t step,
                                        std::uint64_t index) {
  const PhiloxWords c = philox(seed, stream, step, index);
  return static_cast<double>((static_cast<std::uint64_t>(c.word[0]) << 32U | c.word[1]) >> 11U) * 0x1.0p-53;
}

}  // namespace rlalgo::cuda
