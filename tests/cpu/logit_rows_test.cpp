// Blocks of logits against sums in float64, over registers in plain C++ and, to the bit the same, over those of AVX-512.
#include <rlalgo/cpu/logit_rows.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
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
namespace plain = rlalgo::cpu::plain16::logit_rows;
#if defined(__x86_64__)
namespace vector = rlalgo::cpu::lanes::logit_rows;
#endif

namespace {

struct Sums {
  std::vector<float> top, sum, moment;
};

constexpr std::int64_t stride = 70;

void tell_of_lanes() {
  if (!cpu::has_lanes()) support::not_run_in_part("a processor without AVX-512, or RLALGO_CPU without it");
}

}  // namespace

TEST_CASE("the running sums of tokens over blocks of words are those of all words") {
  tell_of_lanes();
  for (const std::int64_t tokens : {1, 15, 16, 17, 33, 64})
    for (const std::int64_t words : {1, 2, 9}) {
      CAPTURE(tokens, words);
      const std::vector<float> first = random(words * stride, 1, 5.0), second = random(words * stride, 2, 9.0),
                               bias = random(words, 3);
      const float inverse = 0.7f;
      const auto reduced = [&](const auto& block_of, const auto& reduce) {
        const auto n = static_cast<std::size_t>(tokens);
        Sums s{std::vector<float>(n, -std::numeric_limits<float>::infinity()), std::vector<float>(n),
               std::vector<float>(n)};
        reduce(block_of(first, bias.data()), s);
        reduce(block_of(second, static_cast<const float*>(nullptr)), s);
        return s;
      };
      const Sums found =
          reduced([&](const std::vector<float>& data,
                      const float* shift) { return plain::Block{data.data(), stride, words, tokens, shift, inverse}; },
                  [](const plain::Block& block, Sums& s) {
                    plain::reduce<true>(block, s.top.data(), s.sum.data(), s.moment.data());
                  });
      for (std::int64_t n = 0; n < tokens; ++n) {
        std::vector<double> logits;
        for (std::int64_t v = 0; v < words; ++v) {
          const auto at = static_cast<std::size_t>(v * stride + n);
          logits.push_back(static_cast<double>(first[at]) * inverse + bias[static_cast<std::size_t>(v)]);
          logits.push_back(static_cast<double>(second[at]) * inverse);
        }
        const double top = *std::max_element(logits.begin(), logits.end());
        double sum = 0, moment = 0;
        for (const double l : logits) sum += std::exp(l - top), moment += std::exp(l - top) * (l - top);
        const auto at = static_cast<std::size_t>(n);
        REQUIRE(found.top[at] == Approx(top).epsilon(1e-6));
        REQUIRE(found.sum[at] == Approx(sum).epsilon(1e-5));
        REQUIRE(found.moment[at] == Approx(moment).epsilon(1e-4).margin(1e-5));
      }
#if defined(__x86_64__)
      if (!cpu::has_lanes()) continue;
      const Sums other =
          reduced([&](const std::vector<float>& data,
                      const float* shift) { return vector::Block{data.data(), stride, words, tokens, shift, inverse}; },
                  [](const vector::Block& block, Sums& s) {
                    vector::reduce<true>(block, s.top.data(), s.sum.data(), s.moment.data());
                  });
      CHECK(same_bits(other.top, found.top));
      CHECK(same_bits(other.sum, found.sum));
      CHECK(same_bits(other.moment, found.moment));
#endif
    }
}

TEST_CASE("gradients of logits are those of log-probability and entropy, and nothing behind a row is written") {
  tell_of_lanes();
  for (const std::int64_t tokens : {1, 15, 16, 17, 33}) {
    constexpr std::int64_t words = 5;
    CAPTURE(tokens);
    const std::vector<float> data = random(words * stride, 4, 3.0), log_sum = random(tokens, 5), g = random(tokens, 6),
                             e = random(tokens, 7), entropy = random(tokens, 8);
    const cpu::LogitTokens with{log_sum.data(), g.data(), e.data(), entropy.data()};
    std::vector<std::uint16_t> out(static_cast<std::size_t>(words * stride), 0xABCD);
    plain::differentiate<true>(plain::Block{data.data(), stride, words, tokens, nullptr, 0.7f}, with, out.data(),
                               stride);
    for (std::int64_t v = 0; v < words; ++v)
      for (std::int64_t n = 0; n < stride; ++n) {
        const auto at = static_cast<std::size_t>(v * stride + n), token = static_cast<std::size_t>(n);
        if (n >= tokens) {
          REQUIRE(out[at] == 0xABCD);
          continue;
        }
        const double log_p = static_cast<double>(data[at]) * 0.7f - log_sum[token], p = std::exp(log_p);
        const double expected = -g[token] * p - e[token] * p * (log_p + entropy[token]);
        REQUIRE(cpu::widen(out[at]) == Approx(expected).epsilon(5e-3).margin(1e-4 * p));
      }
    double sum = 0;
    for (std::int64_t n = 0; n < tokens; ++n) sum += cpu::widen(out[static_cast<std::size_t>(n)]);
    CHECK(plain::total(out.data(), tokens) == Approx(sum).margin(1e-5));
    // The target's own gradient: log_prob brings g (1 − p), and entropy what it brings to every word.
    const double p = std::exp(-0.4);
    CHECK(with.of_target(0, -0.4f) == Approx(g[0] * (1 - p) - e[0] * p * (-0.4 + entropy[0])).epsilon(1e-5));
    CHECK(cpu::LogitTokens{log_sum.data(), g.data(), nullptr, nullptr}.from(tokens - 1).of_target(0, -0.4f) ==
          Approx(g.back() * (1 - p)).epsilon(1e-5));
#if defined(__x86_64__)
    if (!cpu::has_lanes()) continue;
    std::vector<std::uint16_t> other(out.size(), 0xABCD);
    vector::differentiate<true>(vector::Block{data.data(), stride, words, tokens, nullptr, 0.7f}, with, other.data(),
                                stride);
    CHECK(same_bits(other, out));
    CHECK(vector::total(out.data(), tokens) == plain::total(out.data(), tokens));
#endif
  }
}
