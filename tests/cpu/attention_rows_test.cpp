// A block of scores row by row against sums in float64, over registers in plain C++ and, to the bit the same, over those of AVX-512.
#include <rlalgo/cpu/attention_rows.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include <support/catch.hpp>
#include <support/not_run.hpp>

#include "numbers.hpp"
#include "plain_sets.hpp"

#include <rlalgo/core/philox.hpp>
#include <rlalgo/cpu/features.hpp>
#include <rlalgo/cpu/widen.hpp>

using namespace rlalgo;
using rlalgo::cpu::test::random;
using rlalgo::cpu::test::same_bits;
namespace plain = rlalgo::cpu::plain16::rows;
#if defined(__x86_64__)
namespace vector = rlalgo::cpu::lanes::rows;
#endif

namespace {

template <class T>
std::vector<T> converted(const std::vector<float>& x) {
  std::vector<T> out;
  for (const float v : x)
    if constexpr (std::is_same_v<T, float>)
      out.push_back(v);
    else
      out.push_back(cpu::narrow(v));
  return out;
}

struct Piece {
  std::int64_t width, begin, end;  // scores of a row, and those that its query sees
};
const std::vector<Piece> pieces = {{1, 0, 1},    {5, 2, 5},   {16, 0, 16},  {17, 3, 17},
                                   {31, 15, 16}, {33, 0, 20}, {48, 16, 47}, {128, 40, 128}};

double score_of(float s, float scale, float cap) { return cap > 0 ? cap * std::tanh(scale * s / cap) : scale * s; }

// How far a weight in T may be from float64.
template <class T>
double tolerance(double weight) {
  return std::is_same_v<T, float> ? 1e-5 * weight + 1e-8 : weight / 200 + 1e-8;
}

template <class T, bool capped>
void check_weights() {
  for (const auto& [width, begin, end] : pieces) {
    CAPTURE(width, begin, end, capped, sizeof(T));
    const float scale = 0.6f, cap = capped ? 1.7f : 0.0f;
    const std::vector<float> scores = random(width, 1, 6.0);
    std::vector<T> weights(static_cast<std::size_t>(width + 1), T(7));
    plain::Running run{-0.5f, 2.0f};
    const float change = plain::weigh<T, capped>(scores.data(), begin, end, width, {scale, cap}, run, weights.data());
    double top = -0.5;
    for (std::int64_t j = begin; j < end; ++j)
      top = std::max(top, score_of(scores[static_cast<std::size_t>(j)], scale, cap));
    double sum = 2.0 * std::exp(-0.5 - top);
    CHECK(change == Approx(std::exp(-0.5 - top)).epsilon(1e-5));
    for (std::int64_t j = 0; j < width; ++j) {
      const auto at = static_cast<std::size_t>(j);
      const double expected = j >= begin && j < end ? std::exp(score_of(scores[at], scale, cap) - top) : 0.0;
      sum += expected;
      REQUIRE(std::abs(static_cast<double>(cpu::widen(weights[at])) - expected) <= tolerance<T>(expected));
    }
    CHECK(weights.back() == T(7));
    CHECK(run.top == Approx(top).epsilon(1e-5));
    CHECK(run.sum == Approx(sum).epsilon(1e-5));
#if defined(__x86_64__)
    if (!cpu::has_lanes()) continue;
    std::vector<T> found(static_cast<std::size_t>(width + 1), T(7));
    vector::Running other{-0.5f, 2.0f};
    CHECK(vector::weigh<T, capped>(scores.data(), begin, end, width, {scale, cap}, other, found.data()) == change);
    CHECK(same_bits(found, weights));
    CHECK(other.top == run.top);
    CHECK(other.sum == run.sum);
#endif
  }
}

template <class T, bool capped>
void check_gradients() {
  for (const auto& [width, begin, end] : pieces) {
    CAPTURE(width, begin, end, capped, sizeof(T));
    const float scale = 0.6f, cap = capped ? 1.7f : 0.0f, log_sum = 1.3f, along = 0.2f;
    const std::vector<float> scores = random(width, 2, 6.0), pulls = random(width, 3);
    std::vector<T> weights(static_cast<std::size_t>(width)), changes = weights;
    plain::differentiate<T, capped>(scores.data(), pulls.data(), begin, end, width, {scale, cap}, log_sum, along,
                                    weights.data(), changes.data());
    for (std::int64_t j = 0; j < width; ++j) {
      const auto at = static_cast<std::size_t>(j);
      const bool seen = j >= begin && j < end;
      const double p = seen ? std::exp(score_of(scores[at], scale, cap) - static_cast<double>(log_sum)) : 0.0;
      const double tanh = capped ? std::tanh(static_cast<double>(scale) * scores[at] / cap) : 0.0;
      const double d = p * (static_cast<double>(pulls[at]) - along) * scale * (1.0 - tanh * tanh);
      REQUIRE(std::abs(static_cast<double>(cpu::widen(weights[at])) - p) <= tolerance<T>(p));
      REQUIRE(std::abs(static_cast<double>(cpu::widen(changes[at])) - d) <= tolerance<T>(std::abs(d)) + 1e-6 * p);
    }
#if defined(__x86_64__)
    if (!cpu::has_lanes()) continue;
    std::vector<T> p(weights.size()), d = p;
    vector::differentiate<T, capped>(scores.data(), pulls.data(), begin, end, width, {scale, cap}, log_sum, along,
                                     p.data(), d.data());
    CHECK(same_bits(p, weights));
    CHECK(same_bits(d, changes));
#endif
  }
}

template <class T>
void check_rows() {
  for (const std::int64_t n : {1, 15, 16, 17, 33, 64}) {
    CAPTURE(n, sizeof(T));
    const std::vector<float> x = random(n, 4);
    const std::vector<T> a = converted<T>(random(n, 5)), b = converted<T>(random(n, 6));
    double dot = 0;
    for (std::size_t j = 0; j < a.size(); ++j) dot += static_cast<double>(cpu::widen(a[j])) * cpu::widen(b[j]);
    CHECK(plain::dot(a.data(), b.data(), n) == Approx(dot).margin(1e-5));
    std::vector<float> scaled = x, taken = x;
    plain::multiply(scaled.data(), 0.3f, n);
    plain::take(a.data(), true, taken.data(), n);
    std::vector<T> put = a, added = a;
    plain::put(x.data(), 0.3f, false, put.data(), n);
    plain::put(x.data(), 0.3f, true, added.data(), n);
    for (std::size_t j = 0; j < a.size(); ++j) {
      REQUIRE(scaled[j] == x[j] * 0.3f);
      REQUIRE(taken[j] == x[j] + cpu::widen(a[j]));
      REQUIRE(cpu::widen(put[j]) == cpu::widen(converted<T>({x[j] * 0.3f})[0]));
      REQUIRE(cpu::widen(added[j]) == Approx(x[j] * 0.3f + cpu::widen(a[j])).epsilon(1e-2).margin(1e-6));
    }
#if defined(__x86_64__)
    if (!cpu::has_lanes()) continue;
    CHECK(vector::dot(a.data(), b.data(), n) == plain::dot(a.data(), b.data(), n));
    std::vector<float> other = x;
    vector::multiply(other.data(), 0.3f, n);
    CHECK(same_bits(other, scaled));
    other = x;
    vector::take(a.data(), true, other.data(), n);
    CHECK(same_bits(other, taken));
    std::vector<T> narrow = a;
    vector::put(x.data(), 0.3f, false, narrow.data(), n);
    CHECK(same_bits(narrow, put));
    narrow = a;
    vector::put(x.data(), 0.3f, true, narrow.data(), n);
    CHECK(same_bits(narrow, added));
#endif
  }
}

void tell_of_lanes() {
  if (!cpu::has_lanes()) support::not_run_in_part("a processor without AVX-512, or RLALGO_CPU without it");
}

}  // namespace

TEST_CASE("scores become weights under a running softmax, of those that a query sees") {
  tell_of_lanes();
  check_weights<float, false>();
  check_weights<float, true>();
  check_weights<std::uint16_t, false>();
  check_weights<std::uint16_t, true>();
}

TEST_CASE("the gradient of scores is that of their softmax, capped or not") {
  tell_of_lanes();
  check_gradients<float, false>();
  check_gradients<float, true>();
  check_gradients<std::uint16_t, false>();
  check_gradients<std::uint16_t, true>();
}

TEST_CASE("rows are multiplied, added and rounded element by element, at any length") {
  tell_of_lanes();
  check_rows<float>();
  check_rows<std::uint16_t>();
}
