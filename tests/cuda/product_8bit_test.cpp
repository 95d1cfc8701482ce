// Products with matrices in bytes against float64: rows around the borders of tiles, inner sizes that end within a group or a chunk,
// columns that end within a strip; bits of a row alone and among others.
#include <algorithm>

#include <support/catch.hpp>
#include <support/kernels.hpp>

#include <rlalgo/cuda/product_8bit.cuh>

#include <support/float8.hpp>

namespace {

using namespace rlalgo::support;
namespace cuda = rlalgo::cuda;
using cuda::Code8bit;

struct Case {
  std::int64_t rows, inner, columns;
  Code8bit code = Code8bit::int8;
  bool add = false;
};

struct Given {
  std::vector<Bfloat16> x, y;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  std::int64_t groups = 0;
};

double number_of(Code8bit code, std::uint8_t byte) {
  if (code == Code8bit::int8) return static_cast<std::int8_t>(byte);
  return wide(Float8{byte});
}

Given given(const Case& c) {
  Given out;
  out.groups = cuda::product_8bit_groups(c.inner);
  const auto count = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
  out.x = normal<Bfloat16>(count(c.rows, c.inner), 1);
  out.y = normal<Bfloat16>(count(c.rows, c.columns), 2);
  std::mt19937 random(3);
  out.codes.assign(count(c.columns, out.groups * 32), 0);
  for (std::int64_t r = 0; r < c.columns; ++r)
    for (std::int64_t j = 0; j < c.inner; ++j) {
      auto byte = static_cast<std::uint8_t>(random());
      if (c.code == Code8bit::e4m3 && (byte & 0x7FU) == 0x7FU) byte = 0;
      out.codes[count(r, out.groups * 32) + static_cast<std::size_t>(j)] = byte;
    }
  for (const float x : normal<float>(count(c.columns, c.code == Code8bit::int8 ? out.groups : 1), 4))
    out.scales.push_back(0.01F * (std::abs(x) + 0.1F));
  return out;
}

// `offset`: of x, whose address is no multiple of 16 bytes then.
std::vector<Bfloat16> run(const Case& c, const Given& g, std::size_t offset = 0) {
  const Memory<Bfloat16> x(g.x, offset), y(g.y);
  const Memory<std::uint8_t> codes(g.codes);
  const Memory<float> scales(g.scales);
  must_work(cuda::product_8bit({.x = x.data(),
                                .codes = codes.data(),
                                .scales = scales.data(),
                                .y = y.data(),
                                .rows = c.rows,
                                .inner = c.inner,
                                .columns = c.columns,
                                .add = c.add,
                                .code = c.code},
                               nullptr));
  return y.values();
}

void check(const Case& c) {
  CAPTURE(c.rows, c.inner, c.columns, static_cast<int>(c.code), c.add);
  const Given g = given(c);
  const std::vector<Bfloat16> found = run(c, g);
  CHECK(same_bits(run(c, g, 3), found));
  double worst = 0.0;
  for (std::int64_t r = 0; r < c.rows; ++r)
    for (std::int64_t j = 0; j < c.columns; ++j) {
      const auto at = static_cast<std::size_t>(r * c.columns + j);
      double expected = c.add ? wide(g.y[at]) : 0.0, size = std::abs(expected);
      for (std::int64_t k = 0; k < c.inner; ++k) {
        const double scale = g.scales[static_cast<std::size_t>(c.code == Code8bit::int8 ? j * g.groups + k / 32 : j)];
        const double one = wide(g.x[static_cast<std::size_t>(r * c.inner + k)]) * scale *
                           number_of(c.code, g.codes[static_cast<std::size_t>(j * g.groups * 32 + k)]);
        expected += one;
        size += std::abs(one);
      }
      // The sums are float32, and what is stored is rounded once.
      worst = std::max(worst, (std::abs(wide(found[at]) - expected) - rounding<Bfloat16> * std::abs(expected)) /
                                  std::max(size, 1e-30));
    }
  CHECK(worst < 1e-5);
}

}  // namespace

TEST_CASE("Products with bytes are those of their numbers") {
  for (const Code8bit code : {Code8bit::int8, Code8bit::e4m3})
    for (const bool add : {false, true}) {
      for (const std::int64_t rows : {1, 7, 8, 9, 16, 17, 32, 33, 64}) check({rows, 40, 17, code, add});
      for (const std::int64_t inner : {1, 8, 28, 32, 44, 128, 136, 1043}) check({3, inner, 33, code, add});
      for (const std::int64_t columns : {1, 16, 48}) check({2, 64, columns, code, add});
    }
  check({70, 64, 20, Code8bit::int8, true});
  // Fewer warps share a strip.
  check({2, 328, 4100, Code8bit::int8});
  check({1, 328, 8200, Code8bit::e4m3});
}

TEST_CASE("A row of a product with bytes has the same bits whichever rows come with it, in any order of threads") {
  for (const Code8bit code : {Code8bit::int8, Code8bit::e4m3}) {
    const Case all{65, 296, 40, code, true};
    const Given g = given(all);
    const std::vector<Bfloat16> together = run(all, g);
    for (const std::int64_t rows : {1, 5, 9, 20, 40}) {
      Case some = all;
      some.rows = rows;
      Given part = g;
      const std::int64_t first = 65 - rows;
      part.x.assign(g.x.begin() + first * all.inner, g.x.end());
      part.y.assign(g.y.begin() + first * all.columns, g.y.end());
      const std::vector<Bfloat16> expected(together.begin() + first * all.columns, together.end());
      in_orders([&] { CHECK(same_bits(run(some, part), expected)); });
    }
  }
}

TEST_CASE("A product with bytes refuses codes that it cannot read, and does nothing where there is nothing") {
  const Case c{2, 64, 16};
  const Given g = given(c);
  const Memory<Bfloat16> x(g.x), y(g.y);
  const Memory<std::uint8_t> codes(g.codes), apart(g.codes, 1);
  const Memory<float> scales(g.scales);
  cuda::Product8bit asked{.x = x.data(),
                          .codes = codes.data(),
                          .scales = scales.data(),
                          .y = y.data(),
                          .rows = 2,
                          .inner = 64,
                          .columns = 16};
  CHECK(cuda::product_8bit(asked, nullptr) == cudaSuccess);
  for (const auto& change :
       {+[](cuda::Product8bit& a) { a.inner = 0; }, +[](cuda::Product8bit& a) { a.rows = 70'000; }}) {
    cuda::Product8bit wrong = asked;
    change(wrong);
    CHECK(cuda::product_8bit(wrong, nullptr) == cudaErrorInvalidValue);
  }
  cuda::Product8bit wrong = asked;
  wrong.codes = apart.data();
  CHECK(cuda::product_8bit(wrong, nullptr) == cudaErrorInvalidValue);
  const std::vector<Bfloat16> before = y.values();
  asked.rows = 0;
  CHECK(cuda::product_8bit(asked, nullptr) == cudaSuccess);
  CHECK(same_bits(y.values(), before));
}
