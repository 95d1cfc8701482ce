#include <rlalgo/cpu/transpose.hpp>

#include <support/catch.hpp>
#include <support/not_run.hpp>

#if defined(__x86_64__)

#include <array>
#include <cstddef>

namespace {

[[gnu::target("avx512f")]] void transpose_all(float* x) {
  __m512 rows[16];
  for (int i = 0; i < 16; ++i) rows[i] = _mm512_loadu_ps(x + 16 * i);
  rlalgo::cpu::avx512::transpose(rows);
  for (int i = 0; i < 16; ++i) _mm512_storeu_ps(x + 16 * i, rows[i]);
}

}  // namespace

TEST_CASE("sixteen rows of sixteen become sixteen columns") {
  rlalgo::support::needs(__builtin_cpu_supports("avx512f"), "a processor without AVX-512");
  std::array<float, 256> x{};
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  transpose_all(x.data());
  for (std::size_t i = 0; i < 16; ++i)
    for (std::size_t j = 0; j < 16; ++j) REQUIRE(x[16 * i + j] == static_cast<float>(16 * j + i));
}

#else

TEST_CASE("sixteen rows of sixteen become sixteen columns") { rlalgo::support::not_run("not an x86-64 processor"); }

#endif
