#include <rlalgo/tensor/row_mean.hpp>

#include <cstdint>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("the mean of rows is that of float64, rounded once, with any number of threads") {
  const int before = at::get_num_threads();
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const std::int64_t rows : {1, 3, 511, 512, 513, 5000})
      for (const std::int64_t width : {1, 16, 65, 130}) {
        const auto x = at::randn({rows, width}).add(1.0).to(type);
        const auto exact = x.to(at::kDouble).mean(0);
        at::set_num_threads(1);
        const auto one = tensor::mean_of_rows(x);
        at::set_num_threads(3);
        INFO(c10::toString(type) << " " << rows << " × " << width);
        CHECK(one.scalar_type() == type);
        CHECK(one.equal(tensor::mean_of_rows(x)));
        const double tolerance = type == at::kDouble ? 1e-13 : type == at::kFloat ? 1e-5 : 0x1p-8;
        CHECK(one.to(at::kDouble).allclose(exact, tolerance, type == at::kBFloat16 ? 1e-5 : tolerance));
      }
  at::set_num_threads(before);
}

TEST_CASE("rows that do not lie side by side are taken as they are") {
  const auto x = at::randn({40, 24}).to(at::kBFloat16);
  CHECK(tensor::mean_of_rows(x.t()).to(at::kDouble).allclose(x.to(at::kDouble).mean(1), 0x1p-7, 1e-3));
}
