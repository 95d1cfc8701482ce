#include <rlalgo/cpu/amx.hpp>

#include <support/catch.hpp>
#include <support/not_run.hpp>

#if defined(__x86_64__)

#include <immintrin.h>

#include <bit>
#include <cstdint>
#include <vector>

#include <rlalgo/cpu/features.hpp>

using namespace rlalgo::cpu;

namespace {

// c [16, 16] = a [16, 32] b [32, 16], with b in pairs of rows.
[[gnu::target("amx-tile,amx-bf16")]] void multiply_tile(const std::uint16_t* a, const std::uint16_t* b, float* c) {
  const amx::Tiles tiles;
  amx::stored();
  _tile_zero(7);
  _tile_loadd(0, a, 64);
  _tile_loadd(5, b, 64);
  _tile_dpbf16ps(7, 0, 5);
  _tile_stored(7, c, 64);
}

// Whether this thread has tiles: state component 18 is in use.
[[gnu::target("xsave")]] bool has_tiles() { return (_xgetbv(1) & (1U << 18U)) != 0; }

std::uint16_t bits(int small) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(small)) >> 16U);
}

}  // namespace

TEST_CASE("a thread has eight tiles of sixteen whole lines, for as long as it says") {
  rlalgo::support::needs(has_amx(), "a processor without AMX, or RLALGO_CPU without it");
  std::vector<std::uint16_t> a(16 * 32), b(16 * 32);
  const auto left = [](int i, int k) { return (3 * i + 5 * k) % 7 - 3; };
  const auto right = [](int k, int j) { return (2 * k + j) % 5 - 2; };
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 32; ++k) {
      a[static_cast<std::size_t>(32 * i + k)] = bits(left(i, k));
      b[static_cast<std::size_t>(32 * (k / 2) + 2 * i + k % 2)] = bits(right(k, i));
    }
  std::vector<float> c(16 * 16, -1.0f);
  multiply_tile(a.data(), b.data(), c.data());
  CHECK_FALSE(has_tiles());
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      int sum = 0;
      for (int k = 0; k < 32; ++k) sum += left(i, k) * right(k, j);
      REQUIRE(c[static_cast<std::size_t>(16 * i + j)] == static_cast<float>(sum));
    }
}

#else

TEST_CASE("a thread has eight tiles of sixteen whole lines, for as long as it says") {
  rlalgo::support::not_run("not an x86-64 processor");
}

#endif
