#include <rlalgo/cpu/products.hpp>

#include <support/catch.hpp>
#include <support/not_run.hpp>

#if defined(__x86_64__)

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <rlalgo/cpu/features.hpp>

namespace {

namespace cpu = rlalgo::cpu;

// Whether pack<Width> lays `count` rows of k elements as product_tiles.hpp says, and writes nothing beyond.
template <class Kernel, int Width>
bool packs(std::int64_t count, std::int64_t k, bool in_rows) {
  using T = typename Kernel::Element;
  const std::int64_t steps = cpu::tiles::steps_of<Kernel>(k), longer = (in_rows ? k : count) + 3;
  std::vector<T> x(static_cast<std::size_t>((in_rows ? count : k) * longer));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(i + 1);
  const cpu::tiles::Strided<T> rows{x.data(), in_rows ? longer : 1, in_rows ? 1 : longer};
  constexpr float untouched = -7.0f;
  std::vector<float> out(static_cast<std::size_t>(steps * Width + 16), untouched);
  Kernel::template pack<Width>(rows, count, k, out.data());
  for (std::int64_t s = 0; s < steps; ++s)
    for (std::int64_t i = 0; i < Width; ++i) {
      T expected[Kernel::per_step] = {};
      for (std::int64_t e = 0; e < Kernel::per_step; ++e)
        if (i < count && s * Kernel::per_step + e < k) expected[e] = *rows.at(i, s * Kernel::per_step + e);
      if (std::memcmp(expected, &out[static_cast<std::size_t>(s * Width + i)], sizeof(float)) != 0) return false;
    }
  for (std::int64_t i = steps * Width; i < steps * Width + 16; ++i)
    if (out[static_cast<std::size_t>(i)] != untouched) return false;
  return true;
}

template <class Kernel, int Width>
void check_packing() {
  for (std::int64_t count = 1; count <= Width; ++count)
    for (const std::int64_t k : {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 97})
      for (const bool in_rows : {false, true}) {
        CAPTURE(Width, count, k, in_rows);
        REQUIRE(packs<Kernel, Width>(count, k, in_rows));
      }
}

}  // namespace

TEST_CASE("operands are packed step by step, however little of a tile they fill") {
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    check_packing<cpu::avx2::Float32, 6>();
    check_packing<cpu::avx2::Float32, 16>();
  } else {
    rlalgo::support::not_run_in_part("a processor without AVX2");
  }
  if (__builtin_cpu_supports("avx512f")) {
    check_packing<cpu::avx512::Float32, 12>();
    check_packing<cpu::avx512::Float32, 32>();
  } else {
    rlalgo::support::not_run_in_part("a processor without AVX-512");
  }
  if (cpu::multiplies_bfloat16() && cpu::has_lanes()) {
    check_packing<cpu::avx512::Bfloat16, 12>();
    check_packing<cpu::avx512::Bfloat16, 32>();
  } else {
    rlalgo::support::not_run_in_part("a processor without AVX-512 BF16, or RLALGO_CPU without it");
  }
  if (cpu::has_amx())
    check_packing<cpu::amx::Bfloat16, 32>();
  else
    rlalgo::support::not_run_in_part("a processor without AMX, or RLALGO_CPU without it");
}

#else

TEST_CASE("operands are packed step by step, however little of a tile they fill") {
  rlalgo::support::not_run("not an x86-64 processor");
}

#endif
