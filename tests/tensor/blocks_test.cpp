#include <support/catch.hpp>

#include <cstdint>
#include <cstring>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/tensor/blocks.hpp>

namespace {
using at::Tensor;
using rlalgo::tensor::BFloat16;

Tensor drawn(at::IntArrayRef sizes, std::uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(sizes, generator, at::kFloat).to(at::kBFloat16);
}

std::vector<BFloat16> values(std::initializer_list<float> list) { return {list.begin(), list.end()}; }
}  // namespace

TEST_CASE("pairs of columns and of rows lie as blocks want them") {
  // x [3, 4] = 0 … 11
  const auto x = values({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  std::vector<BFloat16> columns(2 * 2 * 4, BFloat16(-1.0f)), rows(2 * 2 * 4, BFloat16(-1.0f));
  rlalgo::tensor::pair_columns(x.data(), 3, 4, 4, columns.data(), 4);
  CHECK(columns == values({0, 1, 4, 5, 8, 9, 0, 0, 2, 3, 6, 7, 10, 11, 0, 0}));
  rlalgo::tensor::pair_rows(x.data(), 3, 4, 4, rows.data());
  CHECK(rows == values({0, 4, 1, 5, 2, 6, 3, 7, 8, 0, 9, 0, 10, 0, 11, 0}));
}

TEST_CASE("products of bfloat16 blocks are float32's, and a column has the same bits in every block") {
  if (!rlalgo::tensor::multiplies_bfloat16()) return;  // no such instructions here: nothing calls them
  const std::int64_t m = 70, n = 40, k = 98;
  const Tensor a = drawn({m, k}, 1), x = drawn({n, k}, 2);
  const Tensor expected = at::mm(a.to(at::kDouble), x.to(at::kDouble).t());
  Tensor first;
  for (const std::int64_t width : {40, 48, 64}) {
    for (const std::int64_t rows : {1, 16, 64, 70}) {
      std::vector<BFloat16> pairs(static_cast<std::size_t>(k * width));
      rlalgo::tensor::pair_columns(x.const_data_ptr<BFloat16>(), n, k, k, pairs.data(), width);
      Tensor c = at::full({m, width}, 7.0f);
      for (std::int64_t row = 0; row < m; row += rows)
        rlalgo::tensor::multiply({std::min(rows, m - row), width, k, k, width, width},
                                 a.const_data_ptr<BFloat16>() + row * k, pairs.data(),
                                 c.mutable_data_ptr<float>() + row * width);
      rlalgo::tensor::end_of_blocks();
      const Tensor got = c.narrow(1, 0, n);
      CHECK((got.to(at::kDouble) - expected).abs().max().item<double>() < 1e-4);
      if (!first.defined()) first = got.clone();
      CHECK(at::equal(first, got));
      if (width > n) CHECK(c.narrow(1, n, width - n).abs().max().item<float>() == 0.0f);
    }
  }
  // added to what is there
  std::vector<BFloat16> pairs(static_cast<std::size_t>(k * n));
  rlalgo::tensor::pair_columns(x.const_data_ptr<BFloat16>(), n, k, k, pairs.data(), n);
  Tensor sum = at::ones({m, n});
  rlalgo::tensor::multiply({m, n, k, k, n, n, true}, a.const_data_ptr<BFloat16>(), pairs.data(),
                           sum.mutable_data_ptr<float>());
  rlalgo::tensor::end_of_blocks();
  CHECK((sum.to(at::kDouble) - expected - 1.0).abs().max().item<double>() < 1e-4);
}
