// Attention over pages of bfloat16 with AMX: the heads that share keys and values are the rows of a tile (at most 16), positions, and then
// columns of values, those of the other. The formulas are those of avx512_bf16_attention.hpp.
//
// A sum is a chain over pairs of what is summed over, whatever the number of heads. Values behind the last position are taken as 0.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include <rlalgo/cpu/amx.hpp>
#include <rlalgo/cpu/detail/avx512_bf16_attention.hpp>
#include <rlalgo/cpu/detail/linear_strips.hpp>
#include <rlalgo/cpu/kernels.hpp>

namespace rlalgo::cpu::amx_bf16 {

#define RLALGO_AMX gnu::target("avx2,fma,avx512f,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16")

class PairAttention {
 public:
  // `heads` (1 to 16) of the group from `head` on.
  [[RLALGO_AMX]] PairAttention(const AttentionArgs& a, std::int64_t head, std::int64_t heads)
      : a_(a), head_(head), heads_(heads), lds_(avx512_bf16::padded(a.length)), pages_(lds_ / page_positions) {}

  [[RLALGO_AMX]] void run() {
    const amx::Tiles tiles(heads_);
    for (std::int64_t p = 0; p < pages_; ++p) score(p);
    for (std::int64_t h = 0; h < heads_; ++h)
      inverse_[h] = avx512_bf16::weigh_pairs(a_, head_ + h, a_.scores + h * lds_);
    const std::byte* const last = last_values();
    amx::stored();
    std::int64_t column = 0;
    for (; column + 64 <= a_.d; column += 64) mix<4>(column, last);
    if (column < a_.d) mix<2>(column, last);
  }

 private:
  // Tiles 0 and 1: scores of the positions of a page. 4: q, 5 and 6: keys.
  [[RLALGO_AMX]] void score(std::int64_t p) const {
    const std::byte *const keys = a_.pages[p] + a_.key_offset, *const values = a_.pages[p] + a_.value_offset;
    const std::byte* const soon = keys_after(a_, p);
    const std::int64_t seen = bytes_of_values(a_, p, sizeof(std::uint16_t));
    const std::uint16_t* const q = a_.q_bf16 + head_ * a_.ldq;
    _tile_zero(0);
    _tile_zero(1);
    for (std::int64_t j = 0; j < a_.d; j += pair_lane) {
      const std::int64_t from = j / 2 * key_row_bytes;
      for (std::int64_t line = 0; line < 16 * key_row_bytes; line += cache_line) {
        prefetch<1>(reinterpret_cast<const char*>(soon + from + line));
        if (from + line < seen) prefetch<1>(reinterpret_cast<const char*>(values + from + line));
      }
      _tile_loadd(4, q + j, a_.ldq * 2);
      _tile_loadd(5, keys + from, key_row_bytes);
      _tile_loadd(6, keys + from + 64, key_row_bytes);
      _tile_dpbf16ps(0, 4, 5);
      _tile_dpbf16ps(1, 4, 6);
    }
    _tile_stored(0, a_.scores + p * page_positions, lds_ * 4);
    _tile_stored(1, a_.scores + p * page_positions + 16, lds_ * 4);
  }

  // The values of the last page, as they are where it is full, else a copy with zeros behind the last position.
  [[nodiscard, RLALGO_AMX]] const std::byte* last_values() const {
    const std::byte* const values = a_.pages[pages_ - 1] + a_.value_offset;
    const std::int64_t count = a_.length - (pages_ - 1) * page_positions,
                       row = a_.d * 4;  // bytes of a pair of positions
    if (count == page_positions) return values;
    thread_local std::vector<Line> room;
    room.resize(static_cast<std::size_t>(page_positions / 2 * row / 64));
    std::byte* const out = room.front().bytes.data();
    std::memcpy(out, values, static_cast<std::size_t>(count / 2 * row));
    std::byte* rest = out + count / 2 * row;
    if (count % 2 == 1) {
      for (std::int64_t j = 0; j < row; j += 64)
        _mm512_storeu_si512(
            rest + j, _mm512_and_si512(_mm512_set1_epi32(0xFFFF), _mm512_loadu_si512(values + count / 2 * row + j)));
      rest += row;
    }
    std::memset(rest, 0, static_cast<std::size_t>(out + page_positions / 2 * row - rest));
    return out;
  }

  // Tiles 0 to 3: sums of 16 columns each. 4: weights, 5 to 7: values.
  template <int Width>
  [[RLALGO_AMX]] void mix(std::int64_t column, const std::byte* last) const {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (Width == 4) {
      _tile_zero(2);
      _tile_zero(3);
    }
    for (std::int64_t p = 0; p < pages_; ++p) {
      const std::byte* const values = (p + 1 < pages_ ? a_.pages[p] + a_.value_offset : last) + 4 * column;
      _tile_loadd(4, reinterpret_cast<const std::byte*>(a_.scores) + 2 * p * page_positions, lds_ * 4);
      _tile_loadd(5, values, a_.d * 4);
      _tile_dpbf16ps(0, 4, 5);
      _tile_loadd(6, values + 64, a_.d * 4);
      _tile_dpbf16ps(1, 4, 6);
      if constexpr (Width == 4) {
        _tile_loadd(7, values + 128, a_.d * 4);
        _tile_dpbf16ps(2, 4, 7);
        _tile_loadd(5, values + 192, a_.d * 4);
        _tile_dpbf16ps(3, 4, 5);
      }
    }
    alignas(64) float sums[16][16 * Width];
    _tile_stored(0, sums[0], sizeof sums[0]);
    _tile_stored(1, sums[0] + 16, sizeof sums[0]);
    if constexpr (Width == 4) {
      _tile_stored(2, sums[0] + 32, sizeof sums[0]);
      _tile_stored(3, sums[0] + 48, sizeof sums[0]);
    }
    amx::stored();
    for (std::int64_t h = 0; h < heads_; ++h)
      for (std::int64_t c = 0; c < 16 * Width; c += 16)
        _mm512_storeu_ps(a_.out + (head_ + h) * a_.ldo + column + c,
                         _mm512_mul_ps(_mm512_load_ps(sums[h] + c), _mm512_set1_ps(inverse_[h])));
  }

  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  const AttentionArgs& a_;
  std::int64_t head_, heads_, lds_, pages_;
  float inverse_[16];
};

#undef RLALGO_AMX

inline void attention_bf16(const AttentionArgs& a) {
  for (std::int64_t head = 0; head < a.group; head += 16)
    PairAttention(a, head, std::min<std::int64_t>(16, a.group - head)).run();
}

}  // namespace rlalgo::cpu::amx_bf16

#endif
