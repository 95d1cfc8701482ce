#include <rlalgo/cpu/lanes.hpp>

#include <support/catch.hpp>
#include <support/not_run.hpp>

#if defined(__x86_64__)

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <rlalgo/cpu/features.hpp>

using namespace rlalgo::cpu;

namespace {

// Its bits are what makes a type a bfloat16.
struct Half {
  std::uint16_t bits;
};

// The nearer one of the two bfloat16 that x lies between; of x that is a number.
std::uint16_t nearest(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), below = bits >> 16U, rest = bits & 0xFFFFU;
  return static_cast<std::uint16_t>(below + (rest > 0x8000U || (rest == 0x8000U && below % 2 == 1) ? 1 : 0));
}

template <class T>
[[RLALGO_LANES]] void copy(const float* from, T* to, std::int64_t n) {
  lanes::store(to, lanes::first(n), lanes::load(from, lanes::first(16)));
}
template <class T>
[[RLALGO_LANES]] void widen(const T* from, float* to, std::int64_t n) {
  lanes::store(to, lanes::first(16), lanes::load(from, lanes::first(n)));
}
[[RLALGO_LANES]] void round_in_place(float* x) {
  lanes::store(x, lanes::first(16), lanes::rounded<Half>(lanes::load(x, lanes::first(16))));
}
[[RLALGO_LANES]] void hyperbolic(float* x) {
  lanes::store(x, lanes::first(16), lanes::tanh(lanes::load(x, lanes::first(16))));
}
[[RLALGO_LANES]] void exponential(float* x) {
  lanes::store(x, lanes::first(16), lanes::exp(lanes::load(x, lanes::first(16))));
}
[[RLALGO_LANES]] float sum_of(const float* x) { return lanes::sum(lanes::load(x, lanes::first(16))); }
[[RLALGO_LANES]] float largest_of(const float* x) { return lanes::largest(lanes::load(x, lanes::first(16))); }

void needs_lanes() { rlalgo::support::needs(has_lanes(), "a processor without AVX-512, or RLALGO_CPU without it"); }

// Bits of float32 all over, with those between two bfloat16 and next to them.
std::array<float, 16> numbers(std::uint32_t seed) {
  std::array<float, 16> out{};
  std::uint32_t state = seed;
  for (std::size_t i = 0; i < out.size(); ++i) {
    state = state * 1664525U + 1013904223U;
    const std::uint32_t low = i % 4 == 0 ? 0x8000U : i % 4 == 1 ? 0x7FFFU : i % 4 == 2 ? 0x8001U : state & 0xFFFFU;
    out[i] = std::bit_cast<float>((state & 0xFFFF0000U) | low);
  }
  return out;
}

}  // namespace

TEST_CASE("sixteen lanes round to bfloat16 to nearest, ties to even") {
  needs_lanes();
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (std::uint32_t seed = 0; seed < 20000; ++seed) {
    auto x = numbers(seed);
    if (seed == 0) x = {nan, -nan, infinity, -infinity, 0.0f, -0.0f, 3.4e38f, -3.4e38f, 1e-40f, 1.0f};
    std::array<Half, 16> narrow{};
    copy(x.data(), narrow.data(), 16);
    std::array<float, 16> wide{};
    widen(narrow.data(), wide.data(), 16);
    auto rounded = x;
    round_in_place(rounded.data());
    for (std::size_t i = 0; i < 16; ++i) {
      if (std::isnan(x[i])) {
        REQUIRE(std::isnan(wide[i]));
        REQUIRE(std::isnan(rounded[i]));
        continue;
      }
      REQUIRE(narrow[i].bits == nearest(x[i]));
      REQUIRE(std::bit_cast<std::uint32_t>(wide[i]) == std::uint32_t{narrow[i].bits} << 16U);
      REQUIRE(std::bit_cast<std::uint32_t>(rounded[i]) == std::bit_cast<std::uint32_t>(wide[i]));
    }
  }
}

TEST_CASE("of fewer lanes memory behind them is neither read nor written") {
  needs_lanes();
  for (std::int64_t n = -1; n <= 17; ++n) {
    const auto count = static_cast<std::size_t>(std::clamp<std::int64_t>(n, 0, 16));
    std::array<float, 16> x{}, out{};
    x.fill(2.0f);
    out.fill(5.0f);
    copy(x.data(), out.data(), n);
    std::array<Half, 16> narrow{};
    narrow.fill({0x40A0});
    copy(x.data(), narrow.data(), n);
    std::array<float, 16> wide{};
    widen(narrow.data(), wide.data(), n);
    for (std::size_t i = 0; i < 16; ++i) {
      CHECK(out[i] == (i < count ? 2.0f : 5.0f));
      CHECK(narrow[i].bits == (i < count ? 0x4000 : 0x40A0));
      CHECK(wide[i] == (i < count ? 2.0f : 0.0f));
    }
  }
}

TEST_CASE("exp of sixteen lanes is within two units of the last place") {
  needs_lanes();
  for (double start = -87.3; start < 88.0; start += 0.37) {
    std::array<float, 16> x{}, out{};
    for (std::size_t i = 0; i < 16; ++i) out[i] = x[i] = static_cast<float>(start + 0.0231 * static_cast<double>(i));
    exponential(out.data());
    for (std::size_t i = 0; i < 16; ++i) {
      const double exact = std::exp(static_cast<double>(x[i]));
      if (x[i] > 88.3f) continue;
      REQUIRE(std::abs(out[i] - exact) <= 2.5e-7 * exact);
    }
  }
  std::array<float, 16> edges{0.0f, -1000.0f, -std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN(), -88.0f};
  exponential(edges.data());
  CHECK(edges[0] == 1.0f);
  CHECK(edges[1] == 0.0f);
  CHECK(edges[2] == 0.0f);
  CHECK(std::isnan(edges[3]));
  CHECK(edges[4] == 0.0f);
}

TEST_CASE("tanh of sixteen lanes is within six units of the last place, and ±1 far out") {
  needs_lanes();
  for (double exponent = -7.0; exponent < 3.0; exponent += 0.01) {
    std::array<float, 16> x{}, out{};
    for (std::size_t i = 0; i < 16; ++i)
      out[i] = x[i] =
          static_cast<float>((i % 2 == 0 ? 1 : -1) * std::pow(10.0, exponent) * (1 + 0.37 * static_cast<double>(i)));
    hyperbolic(out.data());
    for (std::size_t i = 0; i < 16; ++i) {
      const double exact = std::tanh(static_cast<double>(x[i]));
      REQUIRE(std::abs(out[i] - exact) <= 6 * 0x1.0p-23 * std::abs(exact));
    }
  }
  std::array<float, 16> edges{0.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()};
  hyperbolic(edges.data());
  CHECK(edges[0] == 0.0f);
  CHECK(edges[1] == Approx(1.0f));
  CHECK(std::isnan(edges[2]));
}

TEST_CASE("sum and largest take all sixteen lanes") {
  needs_lanes();
  for (std::size_t at = 0; at < 16; ++at) {
    std::array<float, 16> x{};
    x.fill(-3.0f);
    x[at] = 7.0f;
    CHECK(sum_of(x.data()) == 7.0f - 45.0f);
    CHECK(largest_of(x.data()) == 7.0f);
  }
}

#else

TEST_CASE("sixteen lanes round, load, store and add as they say") {
  rlalgo::support::not_run("not an x86-64 processor");
}

#endif
