// AMX's tiles, as the kernels that multiply bfloat16 with them hold them: eight tiles of 16 rows of 64 bytes.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rlalgo::cpu::amx {

// What `ldtilecfg` reads.
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1, start_row = 0;
  std::array<std::uint8_t, 14> reserved{};
  std::array<std::uint16_t, 16> bytes{64, 64, 64, 64, 64, 64, 64, 64};
  std::array<std::uint8_t, 16> rows{16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfiguration) == 64);

// Tiles 0 to 4 of `rows` rows.
[[nodiscard]] constexpr TileConfiguration with_rows(std::uint8_t rows) {
  TileConfiguration out;
  for (std::size_t tile = 0; tile < 5; ++tile) out.rows[tile] = rows;
  return out;
}

// While one lives its thread has those tiles, and before and after none. Only where has_amx() (features.hpp).
class Tiles {
 public:
  [[gnu::target("amx-tile")]] Tiles() {
    static constexpr TileConfiguration configuration;
    _tile_loadconfig(&configuration);
  }
  // Sums and left sides, tiles 0 to 4, have `rows` (1 to 16) rows.
  [[gnu::target("amx-tile")]] explicit Tiles(std::int64_t rows) {
    static constexpr auto configurations = [] {
      std::array<TileConfiguration, 16> out;
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = with_rows(static_cast<std::uint8_t>(i + 1));
      return out;
    }();
    _tile_loadconfig(&configurations[static_cast<std::size_t>(rows - 1)]);
  }
  [[gnu::target("amx-tile")]] ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

// What was stored before is in memory for loads of tiles after it: g++ 12 lets stores pass them.
[[gnu::always_inline]] inline void stored() { std::atomic_signal_fence(std::memory_order_seq_cst); }

}  // namespace rlalgo::cpu::amx

#endif
