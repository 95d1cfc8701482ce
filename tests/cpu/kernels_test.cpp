// The inner loops against sums in f64, at sizes that fit no tile, and batch 1 against batch n bit for bit.
#include <support/catch.hpp>
#include <support/not_run.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "numbers.hpp"
#include "plain_sets.hpp"

#include <rlalgo/core/philox.hpp>
#include <rlalgo/cpu/best_kernels.hpp>
#include <rlalgo/cpu/int8_matrix.hpp>

using namespace rlalgo;
using rlalgo::cpu::test::random;
using rlalgo::cpu::test::same_bits;
using namespace rlalgo::cpu;

namespace {

// Those of this CPU, and what other CPUs have written over registers in plain C++.
std::vector<const Kernels*> tested_kernels() {
  std::vector<const Kernels*> all = usable_kernels();
  all.push_back(&plain8_kernels);
  all.push_back(&plain16_kernels);
  return all;
}

// The nearest float that bfloat16 holds, ties to even.
float rounded(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) & 0xFFFF0000U);
}

// Rows of x with five strangers between them, W in both formats with the same values, and what their product is.
struct Product {
  std::int64_t k, rows, n;
  std::vector<float> x = random(rows * (k + 5), 1), w = random(n * k, 2);
  std::vector<std::uint16_t> half;

  explicit Product(std::int64_t columns, std::int64_t count = 11, std::int64_t outputs = 23)
      : k(columns), rows(count), n(outputs) {
    for (float& value : w) {
      value = rounded(value);
      half.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U));
    }
  }
  void run(const Kernels& kernels, bool bf16, std::int64_t first, std::int64_t m, std::int64_t begin, std::int64_t end,
           float* y, std::uint64_t version = 0) const {
    std::vector<std::uint16_t> given(x.size());  // every second time the caller has rounded
    if (kernels.round != nullptr) kernels.round(x.data(), static_cast<std::int64_t>(x.size()), given.data());
    const LinearArgs args{.x = x.data() + first * (k + 5),
                          .m = m,
                          .k = k,
                          .ldx = k + 5,
                          .w = bf16 ? static_cast<const void*>(half.data()) : w.data(),
                          .begin = begin,
                          .end = end,
                          .y = y,
                          .ldy = n,
                          .x_bf16 = kernels.round != nullptr && m % 2 == 0 ? given.data() + first * (k + 5) : nullptr,
                          .x_version = version};
    bf16 ? kernels.linear_bf16(args) : kernels.linear_f32(args);
  }
  // Each row alone: [rows, n].
  std::vector<float> alone(const Kernels& kernels, bool bf16) const {
    std::vector<float> y(static_cast<std::size_t>(rows * n));
    for (std::int64_t i = 0; i < rows; ++i) run(kernels, bf16, i, 1, 0, n, y.data() + i * n);
    return y;
  }
  void compare(const std::vector<float>& y) const {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t c = 0; c < n; ++c) {
        double sum = 0, size = 0;
        for (std::int64_t j = 0; j < k; ++j) {
          const double term = static_cast<double>(x[static_cast<std::size_t>(i * (k + 5) + j)]) *
                              w[static_cast<std::size_t>(c * k + j)];
          sum += term;
          size += std::abs(term);
        }
        REQUIRE(std::abs(y[static_cast<std::size_t>(i * n + c)] - sum) <= 1e-6 * size + 1e-12);
      }
  }
};

// x and W in groups of 32 as quantization.hpp has them, in another way than the kernels: whole numbers by division, sums in f64.
struct Int8Product : Product {
  std::vector<std::byte> room;
  std::byte* packed;

  explicit Int8Product(std::int64_t columns, std::int64_t count = 11, std::int64_t outputs = 23)
      : Product(columns, count, outputs) {
    const auto bytes = static_cast<std::size_t>(blocks_of(n) * Int8Layout(k).block_bytes());
    room.resize(bytes + 64);
    packed = room.data() + (64 - reinterpret_cast<std::uintptr_t>(room.data()) % 64) % 64;
    const std::int64_t blocks = blocks_of(n);
    pack_int8(w.data(), n, k, blocks / 2, blocks, packed);
    pack_int8(half.data(), n, k, 0, blocks / 2, packed);  // the same values
  }
  void run(const Kernels& kernels, std::int64_t first, std::int64_t m, std::int64_t begin, std::int64_t end, float* y,
           std::uint64_t version = 0) const {
    kernels.linear_int8({.x = x.data() + first * (k + 5),
                         .m = m,
                         .k = k,
                         .ldx = k + 5,
                         .w = packed,
                         .begin = begin,
                         .end = end,
                         .y = y,
                         .ldy = n,
                         .x_version = version});
  }
  [[nodiscard]] std::vector<float> alone(const Kernels& kernels) const {
    std::vector<float> y(static_cast<std::size_t>(rows * n));
    for (std::int64_t i = 0; i < rows; ++i) run(kernels, i, 1, 0, n, y.data() + i * n);
    return y;
  }
  static std::vector<double> quantized(const float* row, std::int64_t count) {
    std::vector<double> out;
    for (std::int64_t g = 0; g < count; g += 32) {
      const std::int64_t end = std::min(count, g + 32);
      double most = 0;
      for (std::int64_t j = g; j < end; ++j) most = std::max(most, std::abs(static_cast<double>(row[j])));
      for (std::int64_t j = g; j < end; ++j)
        out.push_back(most == 0 ? 0 : std::nearbyint(row[j] * 127.0 / most) * most / 127.0);
    }
    return out;
  }
  // Of y to the sums of quantized numbers, relative to the sum of magnitudes; and of those to the sums of x and w themselves, in
  // two rows without outliers.
  [[nodiscard]] std::pair<double, double> apart(const std::vector<float>& y) const {
    double rounding = 0, quantizing = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::vector<double> xs = quantized(x.data() + i * (k + 5), k);
      for (std::int64_t c = 0; c < n; ++c) {
        const std::vector<double> ws = quantized(w.data() + c * k, k);
        double sum = 0, size = 0, whole = 0;
        for (std::int64_t j = 0; j < k; ++j) {
          const auto at = static_cast<std::size_t>(j);
          sum += xs[at] * ws[at];
          size += std::abs(xs[at] * ws[at]);
          whole += static_cast<double>(x[static_cast<std::size_t>(i * (k + 5) + j)]) *
                   w[static_cast<std::size_t>(c * k + j)];
        }
        rounding = std::max(rounding, std::abs(y[static_cast<std::size_t>(i * n + c)] - sum) / (size + 1e-12));
        if (i < 2) quantizing = std::max(quantizing, std::abs(sum - whole) / (size + 1e-12));
      }
    }
    return {rounding, quantizing};
  }
};

// Products of the first rows, by so many at a time, have the bits that each row has alone, and nothing else is written: for all columns, and for
// those from 5 or 16 to the last but two.
template <class Run>
void check_batches(const std::vector<float>& alone, std::int64_t n, const std::vector<std::int64_t>& counts,
                   const std::string& what, Run&& run) {
  for (const std::int64_t m : counts)
    for (const std::int64_t begin : {0, 5, 16}) {
      const std::int64_t end = begin == 0 ? n : n - 2;
      std::vector<float> y(static_cast<std::size_t>(m * n), -7.0f);
      if (begin < end) run(m, begin, end, y.data() + begin);
      bool same = true;
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t c = 0; c < n; ++c) {
          const auto at = static_cast<std::size_t>(i * n + c);
          same = same && y[at] == (c >= begin && c < end ? alone[at] : -7.0f);
        }
      INFO(what << " m " << m << " begin " << begin);
      REQUIRE(same);
    }
}

std::vector<std::int64_t> up_to(std::int64_t rows) {
  std::vector<std::int64_t> out;
  for (std::int64_t m = 1; m <= rows; ++m) out.push_back(m);
  return out;
}

}  // namespace

TEST_CASE("linear is the matrix product, in f32 and bf16, and does not see its batch") {
  for (const Kernels* kernels : tested_kernels())
    for (const std::int64_t k : {1, 7, 8, 31, 32, 36, 37, 64, 641, 1281, 1536})
      for (const bool bf16 : {false, true}) {
        Product product(k);
        if (bf16)
          for (float& value : product.x) value = rounded(value);
        const std::vector<float> alone = product.alone(*kernels, bf16);
        product.compare(alone);
        check_batches(alone, product.n, up_to(product.rows),
                      std::string(kernels->name) + " k " + std::to_string(k) + (bf16 ? " bf16" : ""),
                      [&](std::int64_t m, std::int64_t begin, std::int64_t end, float* y) {
                        product.run(*kernels, bf16, 0, m, begin, end, y);
                      });
      }
}

TEST_CASE("more rows than a kernel takes at a time are each what they are alone") {
  for (const Kernels* kernels : tested_kernels())
    for (const bool bf16 : {false, true}) {
      const Product product(bf16 ? 66 : 403, 150, 117);
      const std::vector<float> alone = product.alone(*kernels, bf16);
      for (const std::int64_t m : {9, 15, 16, 17, 31, 40, 48, 57, 63, 64, 65, 72, 80, 129, 150}) {
        std::vector<float> y(static_cast<std::size_t>(m * product.n), -7.0f);
        product.run(*kernels, bf16, 0, m, 0, product.n, y.data());
        INFO(kernels->name << " m " << m << " bf16 " << bf16);
        REQUIRE(std::equal(y.begin(), y.end(), alone.begin()));
      }
    }
}

TEST_CASE("the product of packed bfloat16 is the matrix product, and does not see its batch") {
  for (const Kernels* kernels : tested_kernels()) {
    if (kernels->blocks_bf16 == nullptr) continue;
    for (const auto& [columns, outputs] :
         {std::pair(1, 23), {2, 16}, {31, 23}, {32, 40}, {33, 70}, {100, 129}, {576, 112}, {641, 23}}) {
      Product product(columns, 20, outputs);
      const std::int64_t k = product.k, n = product.n;
      for (float& value : product.x) value = rounded(value);
      std::vector<std::uint16_t> x(product.x.size());
      kernels->round(product.x.data(), static_cast<std::int64_t>(x.size()), x.data());
      const std::int64_t blocks = blocks_of(n), bytes = kernels->blocks_bf16->block_bytes(k);
      std::vector<std::byte> room(static_cast<std::size_t>(blocks * bytes + 64), std::byte{0xFF});
      std::byte* const packed = room.data() + (64 - reinterpret_cast<std::uintptr_t>(room.data()) % 64) % 64;
      kernels->blocks_bf16->pack(product.half.data(), n, k, blocks / 2, blocks, packed);
      kernels->blocks_bf16->pack(product.half.data(), n, k, 0, blocks / 2, packed);
      const auto run = [&](std::int64_t first, std::int64_t m, std::int64_t begin, std::int64_t end, float* y) {
        kernels->blocks_bf16->linear({.x = nullptr,
                                      .m = m,
                                      .k = k,
                                      .ldx = k + 5,
                                      .w = packed,
                                      .begin = begin,
                                      .end = end,
                                      .y = y,
                                      .ldy = n,
                                      .x_bf16 = x.data() + first * (k + 5)});
      };
      std::vector<float> alone(static_cast<std::size_t>(product.rows * n));
      for (std::int64_t i = 0; i < product.rows; ++i) run(i, 1, 0, n, alone.data() + i * n);
      product.compare(alone);
      check_batches(alone, n, up_to(product.rows),
                    std::string(kernels->name) + " k " + std::to_string(k) + " n " + std::to_string(n),
                    [&](std::int64_t m, std::int64_t begin, std::int64_t end, float* y) { run(0, m, begin, end, y); });
    }
  }
}

TEST_CASE(
    "the product in 8 bits is that of quantized numbers, the same bits on every CPU, and does not see its batch") {
  for (const std::int64_t k : {1, 3, 31, 32, 33, 36, 64, 100, 576, 641}) {
    Int8Product product(k);
    std::fill_n(product.x.begin() + 2 * (k + 5), k, 0.0f);    // a row without a scale
    product.x[static_cast<std::size_t>(3 * (k + 5))] = 1e3f;  // one whose first group is far larger than the others
    const std::vector<float> portable = product.alone(kernels_named("portable"));
    const auto [rounding, quantizing] = product.apart(portable);
    INFO("k " << k);
    // Here and there a number lies between two whole ones, and float32 takes the other.
    CHECK(rounding < (k < 64 ? 1e-2 : 1e-3));
    CHECK(quantizing < 5e-2);
    for (const Kernels* kernels : tested_kernels())
      check_batches(portable, product.n, {1, 2, 3, 4, 5, 6, 7, 8, 11}, std::string(kernels->name),
                    [&](std::int64_t m, std::int64_t begin, std::int64_t end, float* y) {
                      product.run(*kernels, 0, m, begin, end, y);
                    });
  }
}

TEST_CASE("in 8 bits, more rows and columns than a tile has are each what they are alone") {
  const Int8Product product(403, 150, 150);
  const std::vector<float> portable = product.alone(kernels_named("portable"));
  for (const Kernels* kernels : tested_kernels())
    for (const std::int64_t m : {1, 9, 16, 17, 31, 64, 80, 150}) {
      std::vector<float> y(static_cast<std::size_t>(m * product.n), -7.0f);
      product.run(*kernels, 0, m, 0, product.n, y.data());
      INFO(kernels->name << " m " << m);
      REQUIRE(std::equal(y.begin(), y.end(), portable.begin()));
    }
}

TEST_CASE("in 8 bits, rows are quantized anew once x has another version, other rows or another place") {
  for (const Kernels* kernels : tested_kernels()) {
    Int8Product product(70);
    std::vector<float> y(static_cast<std::size_t>(product.n));
    const auto right = [&](std::int64_t row, std::uint64_t version, const std::vector<float>& alone) {
      product.run(*kernels, row, 1, 0, product.n, y.data(), version);
      return std::equal(y.begin(), y.end(), alone.begin() + row * product.n);
    };
    const std::vector<float> before = product.alone(*kernels);
    CHECK(right(0, 1, before));
    CHECK(right(1, 1, before));  // of the same version, another place
    CHECK(right(0, 2, before));
    for (float& value : product.x) value = 0.3f - value * value;
    CHECK(right(0, 2, before));  // what it has made of that version
    const std::vector<float> after = product.alone(*kernels);
    CHECK(right(0, 3, after));
  }
}

TEST_CASE("in 8 bits, what is not finite stays so, in its rows alone, and what is too small for a scale is zero") {
  for (const Kernels* kernels : tested_kernels()) {
    Int8Product product(70, 4, 20);
    const std::vector<float> before = product.alone(*kernels);
    const auto row = [&](std::int64_t i) { return product.x.data() + i * 75; };
    row(0)[3] = std::numeric_limits<float>::quiet_NaN();
    row(1)[69] = -std::numeric_limits<float>::infinity();
    for (std::int64_t j = 0; j < 70; ++j) row(2)[j] = 1e-38f;
    std::vector<float> y(80);
    product.run(*kernels, 0, 4, 0, 20, y.data());
    INFO(kernels->name);
    CHECK(std::all_of(y.begin(), y.begin() + 40, [](float v) { return !std::isfinite(v); }));
    CHECK(std::all_of(y.begin() + 40, y.begin() + 60, [](float v) { return v == 0.0f; }));
    CHECK(std::equal(y.begin() + 60, y.end(), before.begin() + 60));
  }
}

TEST_CASE("what a thread has made of x is made anew once x has another version, other rows or another place") {
  for (const Kernels* kernels : tested_kernels()) {
    if (kernels->round == nullptr) continue;
    Product product(70);
    struct Turn {
      std::vector<std::uint16_t> rounded;
      std::vector<float> alone;
    };
    std::vector<Turn> turns(3);  // computed first: rows alone take what the thread has made, too
    for (Turn& turn : turns) {
      for (float& value : product.x) value = -0.5f * value + 0.1f;
      turn.rounded.resize(product.x.size());
      kernels->round(product.x.data(), static_cast<std::int64_t>(product.x.size()), turn.rounded.data());
      turn.alone = product.alone(*kernels, true);
    }
    std::vector<std::uint16_t> here(product.x.size());
    std::uint64_t version = 0;
    for (const Turn& turn : turns) {
      ++version;
      std::copy(turn.rounded.begin(), turn.rounded.end(), here.begin());
      const auto right = [&](std::int64_t first, std::int64_t m) {
        std::vector<float> y(static_cast<std::size_t>(m * product.n));
        kernels->linear_bf16({.x = nullptr,
                              .m = m,
                              .k = product.k,
                              .ldx = product.k + 5,
                              .w = product.half.data(),
                              .begin = 0,
                              .end = product.n,
                              .y = y.data(),
                              .ldy = product.n,
                              .x_bf16 = here.data() + first * (product.k + 5),
                              .x_version = version});
        return std::equal(y.begin(), y.end(), turn.alone.begin() + first * product.n);
      };
      INFO(kernels->name << " version " << version);
      CHECK(right(0, 11));
      CHECK(right(0, 4));
      CHECK(right(3, 4));
      CHECK(right(0, 11));
      CHECK(right(0, 11));  // as the next turn begins
    }
  }
}

TEST_CASE("rows of float32 that a thread has transposed are transposed anew, too") {
  for (const Kernels* kernels : tested_kernels()) {
    Product product(70, 40);
    for (std::uint64_t version = 1; version <= 3; ++version) {
      for (float& value : product.x) value = -0.5f * value + 0.1f;
      const std::vector<float> alone = product.alone(*kernels, false);
      for (const auto& [first, m] : {std::pair{0, 40}, {0, 20}, {11, 20}, {0, 40}, {0, 40}}) {
        std::vector<float> y(static_cast<std::size_t>(m * product.n));
        product.run(*kernels, false, first, m, 0, product.n, y.data(), version);
        INFO(kernels->name << " version " << version << " rows " << m << " from " << first);
        CHECK(std::equal(y.begin(), y.end(), alone.begin() + first * product.n));
      }
    }
  }
}

TEST_CASE("with bf16 weights x is used as it is, or rounded to the nearest bf16 where the CPU multiplies bf16") {
  for (const Kernels* kernels : tested_kernels()) {
    const Product product(70);
    Product nearest(70);
    for (float& value : nearest.x) value = rounded(value);
    const std::vector<float> y = product.alone(*kernels, true);
    if (kernels->name == "avx512_bf16" || kernels->name == "amx_bf16")
      CHECK(y == nearest.alone(*kernels, true));
    else
      product.compare(y);  // a thousand times closer than what is rounded
  }
}

TEST_CASE("every kernel set computes what the portable one does, within the rounding of its sums") {
  const Kernels& plain = kernels_named("portable");
  for (const Kernels* kernels : tested_kernels())
    for (const std::int64_t k : {9, 64, 641, 1536})
      for (const bool bf16 : {false, true}) {
        Product product(k);
        if (bf16)
          for (float& value : product.x) value = rounded(value);  // so that no set rounds any further
        const std::vector<float> expected = product.alone(plain, bf16), found = product.alone(*kernels, bf16);
        for (std::size_t i = 0; i < found.size(); ++i) {
          INFO(kernels->name << " k " << k << " bf16 " << bf16);
          REQUIRE(std::abs(found[i] - expected[i]) <= 1e-6 * static_cast<double>(k));
        }
      }
}

TEST_CASE("exponential sums are accurate to f32, from the largest to the smallest terms") {
  for (const Kernels* kernels : tested_kernels()) {
    std::vector<float> x, terms;
    for (float v = -100.0f; v <= 0.0f; v += 0.0137f) x.push_back(v);
    for (const std::int64_t n : {1, 8, 15, 4096}) {
      const float* from = x.data() + static_cast<std::int64_t>(x.size()) - n;
      terms.assign(static_cast<std::size_t>(n), -1.0f);
      const float sum = kernels->exp_sum(from, -0.25f, 0.8f, terms.data(), n);
      double expected = 0;
      for (std::int64_t j = 0; j < n; ++j) expected += std::exp((static_cast<double>(from[j]) + 0.25) * 0.8);
      CHECK(sum == Approx(expected).epsilon(2e-6));
      CHECK(kernels->exp_sum(from, -0.25f, 0.8f, nullptr, n) == sum);
    }
    for (const float v : x) {
      float term = -1.0f;
      kernels->exp_sum(&v, 0.0f, 1.0f, &term, 1);
      if (v < -87.4f)
        REQUIRE(term == 0.0f);
      else if (v > -87.3f)
        REQUIRE(std::abs(term / std::exp(static_cast<double>(v)) - 1.0) < 3e-7);
    }
    float term = 0.0f;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    CHECK(std::isnan(kernels->exp_sum(&nan, 0.0f, 1.0f, &term, 1)));
  }
}

TEST_CASE("maximum finds the largest element and anything that is not finite") {
  for (const Kernels* kernels : tested_kernels())
    for (const std::int64_t n : {1, 7, 8, 9, 16, 33, 100}) {
      std::vector<float> x = random(n, 3);
      for (std::int64_t at = 0; at < n; ++at) {
        std::vector<float> y = x;
        y[static_cast<std::size_t>(at)] = 5.0f;
        REQUIRE(kernels->maximum(y.data(), n).max == 5.0f);
        REQUIRE(kernels->maximum(y.data(), n).finite);
        for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN()}) {
          y[static_cast<std::size_t>(at)] = bad;
          REQUIRE_FALSE(kernels->maximum(y.data(), n).finite);
        }
      }
      for (float& v : x) v -= 10.0f;  // all negative: a padding zero must not win
      REQUIRE(kernels->maximum(x.data(), n).max < 0.0f);
    }
}

namespace {
double bent(double score, float cap) { return cap > 0 ? cap * std::tanh(score / cap) : score; }
}  // namespace

TEST_CASE(
    "attention is softmax(q·k)·v over the pages, for any group and length, capped or not, with sinks or without") {
  for (const Kernels* kernels : tested_kernels())
    for (const std::int64_t d : {8, 40, 64})
      for (const std::int64_t group : {1, 2, 3, 4, 7})
        for (const std::int64_t length : {1, 31, 32, 33, 100}) {
          const std::int64_t count = (length + page_positions - 1) / page_positions, page = 2 * d * page_positions;
          std::vector<float> memory = random(count * page + 16, 4);
          const float nan = std::numeric_limits<float>::quiet_NaN();
          std::vector<const std::byte*> pages;
          for (std::int64_t p = 0; p < count; ++p)
            pages.push_back(reinterpret_cast<const std::byte*>(memory.data() + 16 + p * page));
          for (std::int64_t t = length; t < count * page_positions; ++t)  // what lies behind the end must not matter
            for (std::int64_t j = 0; j < d; ++j) {
              float* base = memory.data() + 16 + t / page_positions * page;
              base[j * page_positions + t % page_positions] = nan;
              base[d * page_positions + t % page_positions * d + j] = nan;
            }
          const std::vector<float> q = random(group * d, 5);
          std::vector<float> out(static_cast<std::size_t>(group * d)),
              scores(static_cast<std::size_t>(group * count * page_positions));
          const float cap = length % 2 == 0 ? 1.3f : 0.0f;
          const std::vector<float> sinks = random(group, 6);
          const bool sunk = length % 3 == 1;
          kernels->attention({.q = q.data(),
                              .ldq = d,
                              .group = group,
                              .d = d,
                              .pages = pages.data(),
                              .key_offset = 0,
                              .value_offset = d * page_positions * static_cast<std::int64_t>(sizeof(float)),
                              .length = length,
                              .scale = 0.7f,
                              .cap = cap,
                              .sinks = sunk ? sinks.data() : nullptr,
                              .scores = scores.data(),
                              .out = out.data(),
                              .ldo = d});
          for (std::int64_t h = 0; h < group; ++h) {
            std::vector<double> p, expected(static_cast<std::size_t>(d));
            double total = sunk ? std::exp(static_cast<double>(sinks[static_cast<std::size_t>(h)])) : 0.0;
            for (std::int64_t t = 0; t < length; ++t) {
              double score = 0;
              for (std::int64_t j = 0; j < d; ++j)
                score += static_cast<double>(q[static_cast<std::size_t>(h * d + j)]) *
                         floats(pages[static_cast<std::size_t>(t / page_positions)],
                                0)[j * page_positions + t % page_positions];
              p.push_back(std::exp(bent(0.7 * score, cap)));
              total += p.back();
            }
            for (std::int64_t t = 0; t < length; ++t)
              for (std::int64_t j = 0; j < d; ++j)
                expected[static_cast<std::size_t>(j)] += p[static_cast<std::size_t>(t)] / total *
                                                         floats(pages[static_cast<std::size_t>(t / page_positions)],
                                                                0)[d * page_positions + t % page_positions * d + j];
            for (std::int64_t j = 0; j < d; ++j)
              REQUIRE(out[static_cast<std::size_t>(h * d + j)] ==
                      Approx(expected[static_cast<std::size_t>(j)]).margin(2e-6));
          }
        }
}

TEST_CASE("attention over bfloat16 is softmax(q·k)·v of what is rounded, each head as if alone") {
  for (const Kernels* kernels : tested_kernels()) {
    if (kernels->attention_bf16 == nullptr) continue;
    CHECK(kernels->round != nullptr);
    for (const std::int64_t d : {32, 64, 96, 160})
      for (const std::int64_t group : {1, 2, 3, 4, 7, 17})
        for (const std::int64_t length : {1, 2, 31, 32, 33, 100})
          for (const std::int64_t first : {0, 1, 5}) {
            if (first >= length) continue;
            const std::int64_t count = (length + page_positions - 1) / page_positions, page = 2 * d * page_positions;
            const std::vector<float> k = random(length * d, 4), v = random(length * d, 5), q = random(group * d, 6);
            std::vector<std::uint16_t> memory(static_cast<std::size_t>(count * page), 0x7FC0);  // NaN behind the end
            const auto bits = [](float x) {
              return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16U);
            };
            for (std::int64_t t = 0; t < length; ++t)
              for (std::int64_t j = 0; j < d; ++j) {
                std::uint16_t* const base = memory.data() + t / page_positions * page;
                const std::int64_t s = t % page_positions;
                base[(j / 2 * page_positions + s) * 2 + j % 2] = bits(rounded(k[static_cast<std::size_t>(t * d + j)]));
                base[d * page_positions + (s / 2 * d + j) * 2 + s % 2] =
                    bits(rounded(v[static_cast<std::size_t>(t * d + j)]));
              }
            std::vector<const std::byte*> pages;
            for (std::int64_t p = 0; p < count; ++p)
              pages.push_back(reinterpret_cast<const std::byte*>(memory.data() + p * page));
            std::vector<std::uint16_t> q_bits(q.size());
            kernels->round(q.data(), group * d, q_bits.data());
            std::vector<float> scores(static_cast<std::size_t>(group * count * page_positions));
            const float cap = first == 1 ? 1.3f : 0.0f;
            const std::vector<float> sinks = random(group, 7);
            const bool sunk = first == 5;
            const auto attend = [&](std::int64_t head, std::int64_t heads) {
              std::vector<float> out(static_cast<std::size_t>(heads * d));
              kernels->attention_bf16({.q = nullptr,
                                       .ldq = d,
                                       .group = heads,
                                       .d = d,
                                       .pages = pages.data(),
                                       .key_offset = 0,
                                       .value_offset = d * page_positions * 2,
                                       .length = length,
                                       .first = first,
                                       .scale = 0.7f,
                                       .cap = cap,
                                       .sinks = sunk ? sinks.data() + head : nullptr,
                                       .scores = scores.data(),
                                       .out = out.data(),
                                       .ldo = d,
                                       .q_bf16 = q_bits.data() + head * d});
              return out;
            };
            const std::vector<float> found = attend(0, group);
            for (std::int64_t h = 0; h < group; ++h) {
              INFO(kernels->name << " d " << d << " head " << h << " of " << group << " length " << length);
              std::vector<double> score, expected(static_cast<std::size_t>(d));
              for (std::int64_t t = first; t < length; ++t) {
                double sum = 0;
                for (std::int64_t j = 0; j < d; ++j)
                  sum += static_cast<double>(rounded(q[static_cast<std::size_t>(h * d + j)])) *
                         rounded(k[static_cast<std::size_t>(t * d + j)]);
                score.push_back(bent(0.7 * sum, cap));
              }
              const double top = *std::max_element(score.begin(), score.end());
              double total = sunk ? std::exp(static_cast<double>(sinks[static_cast<std::size_t>(h)]) - top) : 0.0;
              for (std::int64_t t = first; t < length; ++t) {
                const double p = std::exp(score[static_cast<std::size_t>(t - first)] - top);
                total += p;
                for (std::int64_t j = 0; j < d; ++j)
                  expected[static_cast<std::size_t>(j)] += static_cast<double>(rounded(static_cast<float>(p))) *
                                                           rounded(v[static_cast<std::size_t>(t * d + j)]);
              }
              for (std::int64_t j = 0; j < d; ++j)
                REQUIRE(found[static_cast<std::size_t>(h * d + j)] ==
                        Approx(expected[static_cast<std::size_t>(j)] / total).margin(5e-4));
              const std::vector<float> alone = attend(h, 1);
              REQUIRE(std::equal(alone.begin(), alone.end(), found.begin() + h * d));
            }
          }
  }
}

TEST_CASE("norm, activation and sum are their formulas at any length") {
  for (const Kernels* kernels : tested_kernels())
    for (const std::int64_t n : {1, 8, 10, 16, 37, 576}) {
      const std::vector<float> x = random(n, 6), w = random(n, 7);
      std::vector<float> out(static_cast<std::size_t>(n));
      kernels->rms_norm(x.data(), w.data(), 1e-5f, out.data(), n);
      double square = 0;
      for (const float v : x) square += static_cast<double>(v) * v;
      for (std::size_t j = 0; j < out.size(); ++j)
        REQUIRE(out[j] ==
                Approx(w[j] * x[j] / std::sqrt(square / static_cast<double>(n) + 1e-5)).epsilon(1e-5).margin(1e-7));
      std::vector<float> gate = x;
      for (float& v : gate) v *= 20.0f;
      const std::vector<float> before = gate;
      kernels->silu_multiply(gate.data(), w.data(), n);
      for (std::size_t j = 0; j < gate.size(); ++j)
        REQUIRE(
            gate[j] ==
            Approx(before[j] / (1.0 + std::exp(-static_cast<double>(before[j]))) * w[j]).epsilon(1e-5).margin(1e-7));
      gate = before;
      kernels->gelu_tanh_multiply(gate.data(), w.data(), n);
      for (std::size_t j = 0; j < gate.size(); ++j) {
        const double v = before[j], y = std::sqrt(2.0 / std::numbers::pi) * (v + 0.044715 * v * v * v);
        // Of large negative v the sum 1 + tanh(y) has no digits left: σ(2y) has.
        REQUIRE(gate[j] == Approx(v / (1.0 + std::exp(-2.0 * y)) * w[j]).epsilon(1e-5).margin(1e-7));
      }
      std::vector<float> sums = x;
      sums.push_back(5.0f);
      kernels->add(sums.data(), w.data(), n);
      for (std::size_t j = 0; j < x.size(); ++j) REQUIRE(sums[j] == x[j] + w[j]);
      REQUIRE(sums.back() == 5.0f);
    }
}

TEST_CASE("rotation is the same to the bit in every kernel set and writes nothing behind its rows") {
  const Kernels& plain = kernels_named("portable");
  for (const Kernels* kernels : tested_kernels())
    for (const std::int64_t half : {1, 7, 8, 12, 32, 40}) {
      std::vector<float> x = random(2 * half + 1, 8);
      const std::vector<float> before = x, angles = random(half, 9);
      std::vector<float> cosines, sines;
      for (const float angle : angles) cosines.push_back(std::cos(angle)), sines.push_back(std::sin(angle));
      kernels->rotate(x.data(), x.data() + half, cosines.data(), sines.data(), half);
      for (std::int64_t i = 0; i < half; ++i) {
        const auto low = static_cast<std::size_t>(i), high = static_cast<std::size_t>(half + i);
        const double a = before[low], b = before[high], c = cosines[low], s = sines[low];
        REQUIRE(x[low] == Approx(a * c - b * s).epsilon(1e-6).margin(1e-6));
        REQUIRE(x[high] == Approx(b * c + a * s).epsilon(1e-6).margin(1e-6));
      }
      REQUIRE(x.back() == before.back());
      std::vector<float> portable = before;
      plain.rotate(portable.data(), portable.data() + half, cosines.data(), sines.data(), half);
      REQUIRE(x == portable);
    }
}

TEST_CASE("rounding is to the nearest bfloat16 at any length and writes nothing behind it") {
  for (const Kernels* kernels : tested_kernels()) {
    if (kernels->round == nullptr) continue;
    for (const std::int64_t n : {1, 5, 7, 8, 9, 15, 16, 31, 64, 577}) {
      const std::vector<float> x = random(n, 10);
      std::vector<std::uint16_t> out(static_cast<std::size_t>(n + 1), 0xABCD);
      kernels->round(x.data(), n, out.data());
      for (std::size_t j = 0; j < x.size(); ++j) REQUIRE(out[j] == std::bit_cast<std::uint32_t>(rounded(x[j])) >> 16U);
      REQUIRE(out.back() == 0xABCD);
    }
  }
}

namespace {

// The kernels of a set of this CPU and those over registers in plain C++ with as many lanes.
struct SameLanes {
  const Kernels& vector;
  const Kernels& plain;
};

std::vector<SameLanes> same_lanes() {
  std::vector<SameLanes> out;
  for (const auto& [name, plain] : {std::pair("avx2", &plain8_kernels), {"avx512", &plain16_kernels}}) {
    const auto usable = usable_kernels();
    const auto found =
        std::find_if(usable.begin(), usable.end(), [&](const Kernels* one) { return one->name == name; });
    if (found != usable.end())
      out.push_back({**found, *plain});
    else
      support::not_run_in_part(std::string("a processor without the instructions of the kernels ") + name);
  }
  return out;
}

const std::vector<std::int64_t> around_lanes = {1,  7,  8,  9,  15, 16, 17, 23, 24, 25,
                                                31, 32, 33, 47, 48, 49, 63, 64, 65, 100};

}  // namespace

TEST_CASE("registers in plain C++ give the bits of those of the CPU: rows") {
  for (const auto& [vector, plain] : same_lanes())
    for (const std::int64_t n : around_lanes) {
      INFO(vector.name << " n " << n);
      std::vector<float> x = random(n, 20), w = random(n, 21), angles = random(n, 22);
      for (float& v : x) v *= 30.0f;
      std::vector<float> cosines, sines;
      for (const float angle : angles) cosines.push_back(std::cos(angle)), sines.push_back(std::sin(angle));
      const auto of = [&](const Kernels& kernels, const Kernels& eight) {
        std::vector<float> all(static_cast<std::size_t>(n));
        eight.rms_norm(x.data(), w.data(), 1e-5f, all.data(), n);
        const auto keep = [&](const std::vector<float>& more) { all.insert(all.end(), more.begin(), more.end()); };
        std::vector<float> gate = x;
        kernels.silu_multiply(gate.data(), w.data(), n);
        keep(gate);
        gate = x;
        kernels.gelu_tanh_multiply(gate.data(), w.data(), n);
        keep(gate);
        gate = x;
        kernels.add(gate.data(), w.data(), n);
        keep(gate);
        std::vector<float> low = x, high = w;
        kernels.rotate(low.data(), high.data(), cosines.data(), sines.data(), n);
        keep(low);
        keep(high);
        const MaxResult top = kernels.maximum(x.data(), n);
        std::vector<float> terms(static_cast<std::size_t>(n));
        terms.push_back(kernels.exp_sum(x.data(), top.max, 0.7f, terms.data(), n));
        terms.push_back(top.max);
        keep(terms);
        return all;
      };
      REQUIRE(same_bits(of(vector, vector), of(plain, plain8_kernels)));  // norms have eight lanes in every set
    }
}

TEST_CASE("registers in plain C++ give the bits of those of the CPU: attention") {
  for (const auto& [vector, plain] : same_lanes())
    for (const std::int64_t d : {8, 16, 24, 40, 64, 72})
      for (const std::int64_t group : {1, 2, 3, 4, 5, 7})
        for (const std::int64_t length : {1, 2, 31, 32, 33, 70}) {
          INFO(vector.name << " d " << d << " group " << group << " length " << length);
          const std::int64_t count = (length + page_positions - 1) / page_positions, page = 2 * d * page_positions;
          const std::vector<float> memory = random(count * page, 23), q = random(group * d, 24),
                                   sinks = random(group, 25);
          std::vector<const std::byte*> pages;
          for (std::int64_t p = 0; p < count; ++p)
            pages.push_back(reinterpret_cast<const std::byte*>(memory.data() + p * page));
          const auto of = [&](const Kernels& kernels) {
            std::vector<float> out(static_cast<std::size_t>(group * d)),
                scores(static_cast<std::size_t>(group * count * page_positions));
            kernels.attention({.q = q.data(),
                               .ldq = d,
                               .group = group,
                               .d = d,
                               .pages = pages.data(),
                               .key_offset = 0,
                               .value_offset = d * page_positions * 4,
                               .length = length,
                               .first = length > 2 ? 1 : 0,
                               .scale = 0.7f,
                               .cap = group == 2 ? 1.3f : 0.0f,
                               .sinks = d > 16 ? sinks.data() : nullptr,
                               .scores = scores.data(),
                               .out = out.data(),
                               .ldo = d});
            return out;
          };
          REQUIRE(same_bits(of(vector), of(plain)));
        }
}

TEST_CASE("registers in plain C++ give the bits of those of the CPU: products") {
  for (const auto& [vector, plain] : same_lanes())
    for (const std::int64_t k : {1, 7, 8, 9, 15, 16, 17, 33, 641})
      for (const bool bf16 : {false, true}) {
        const Product product(k, 90, 50);
        INFO(vector.name << " k " << k << " bf16 " << bf16);
        for (const std::int64_t m : {1, 2, 3, 4, 6, 8, 9, 15, 16, 19, 20, 33, 49, 64, 67, 90}) {
          if (m * k > 12000) continue;
          std::vector<float> found(static_cast<std::size_t>(m * product.n)), expected = found;
          product.run(vector, bf16, 0, m, 0, product.n, found.data());
          product.run(plain, bf16, 0, m, 0, product.n, expected.data());
          REQUIRE(same_bits(found, expected));
        }
      }
}

TEST_CASE("kernels over no element touch nothing") {
  for (const Kernels* kernels : tested_kernels()) {
    std::vector<float> x(4, 3.0f), y(4, 5.0f);
    kernels->silu_multiply(x.data(), y.data(), 0);
    kernels->gelu_tanh_multiply(x.data(), y.data(), 0);
    kernels->add(x.data(), y.data(), 0);
    kernels->rotate(x.data(), y.data(), y.data(), y.data(), 0);
    CHECK(kernels->exp_sum(x.data(), 0.0f, 1.0f, y.data(), 0) == 0.0f);
    CHECK(kernels->maximum(x.data(), 0).max == -std::numeric_limits<float>::infinity());
    kernels->linear_f32(
        {.x = x.data(), .m = 1, .k = 1, .ldx = 1, .w = x.data(), .begin = 2, .end = 2, .y = y.data(), .ldy = 4});
    CHECK(x == std::vector<float>(4, 3.0f));
    CHECK(y == std::vector<float>(4, 5.0f));
  }
}
