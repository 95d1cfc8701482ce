#include <support/catch.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/products.hpp>

namespace {

namespace tensor = rlalgo::tensor;
using at::Tensor;

bool here() {
  if (!tensor::multiplies_float32()) WARN("a processor for which LibTorch's products are taken: nothing is tested");
  return tensor::multiplies_float32();
}

Tensor drawn(std::int64_t rows, std::int64_t columns, std::uint64_t seed, bool turned = false, std::int64_t wider = 0) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const Tensor all = turned ? at::randn({columns, rows + wider}, generator, at::kFloat)
                            : at::randn({rows, columns + wider}, generator, at::kFloat);
  return turned ? all.narrow(1, 0, rows).t() : all.narrow(1, 0, columns);
}

// The largest difference to the product in float64, beside the sizes of its terms.
double error(const Tensor& found, const Tensor& expected, const Tensor& a, const Tensor& b) {
  const Tensor sizes = at::mm(a.abs().to(at::kDouble), b.abs().to(at::kDouble)).add_(1e-30);
  return (found.to(at::kDouble) - expected).abs().div_(sizes).max().item<double>();
}

struct Shape {
  std::int64_t m, n, k;
};
const std::vector<Shape> shapes = {{16, 16, 16},    {17, 33, 19},  {12 * 8 + 1, 31, 769}, {29, 2049, 40},
                                   {200, 64, 1600}, {100, 47, 33}, {24, 32, 768},         {40, 4100, 17}};

}  // namespace

TEST_CASE("a product is that of float64 to rounding, whatever lies in rows or columns") {
  if (!here()) return;
  for (const Shape& s : shapes)
    for (int order = 0; order < 8; ++order)
      for (const std::int64_t wider : {0, 5}) {
        const Tensor a = drawn(s.m, s.k, 1, (order & 1) != 0, wider), b = drawn(s.k, s.n, 2, (order & 2) != 0, wider);
        const Tensor exact = at::mm(a.to(at::kDouble), b.to(at::kDouble));
        const Tensor out = drawn(s.m, s.n, 3, (order & 4) != 0, wider);
        const Tensor before = out.to(at::kDouble);
        CAPTURE(s.m, s.n, s.k, order, wider);
        REQUIRE(tensor::multiply_into(out, a, b, true, 0.25));
        REQUIRE(error(out, before + 0.25 * exact, a, b) < 3e-6);
        out.fill_(std::numeric_limits<float>::quiet_NaN());  // is not read
        REQUIRE(tensor::multiply_into(out, a, b, false));
        REQUIRE(error(out, exact, a, b) < 3e-6);
      }
}

TEST_CASE("nothing beside the product is written") {
  if (!here()) return;
  const Tensor room = at::full({40, 60}, 7.0f), a = drawn(21, 18, 4), b = drawn(18, 35, 5);
  REQUIRE(tensor::multiply_into(room.narrow(0, 9, 21).narrow(1, 11, 35), a, b, false));
  Tensor rest = room.clone();
  rest.narrow(0, 9, 21).narrow(1, 11, 35).fill_(7.0f);
  CHECK(at::equal(rest, at::full({40, 60}, 7.0f)));
}

TEST_CASE("an element's bits depend neither on other rows and columns nor on threads") {
  if (!here()) return;
  const int before = at::get_num_threads();
  const Tensor a = drawn(210, 1000, 6), b = drawn(1000, 130, 7);
  at::set_num_threads(1);
  const Tensor whole = tensor::mm(a, b);
  for (const int threads : {2, 3}) {
    at::set_num_threads(threads);
    CHECK(at::equal(tensor::mm(a, b), whole));
    CHECK(at::equal(tensor::mm(a.narrow(0, 50, 17), b), whole.narrow(0, 50, 17)));
    CHECK(at::equal(tensor::mm(a, b.narrow(1, 33, 29)), whole.narrow(1, 33, 29)));
    CHECK(at::equal(tensor::mm(b.t(), a.t()), whole.t()));
  }
  at::set_num_threads(before);
}

TEST_CASE("infinities and NaN stay where they are") {
  if (!here()) return;
  Tensor a = drawn(19, 24, 8), b = drawn(24, 37, 9);
  a[3][5] = std::numeric_limits<float>::infinity();
  b[7][36] = std::numeric_limits<float>::quiet_NaN();
  const Tensor finite = tensor::mm(a, b).isfinite();
  for (std::int64_t i = 0; i < 19; ++i)
    for (std::int64_t j = 0; j < 37; ++j) REQUIRE(finite[i][j].item<bool>() == (i != 3 && j != 36));
}

TEST_CASE("what these kernels are not for is LibTorch's") {
  const Tensor a = drawn(20, 30, 10), b = drawn(30, 40, 11);
  const auto refused = [&](const Tensor& x, const Tensor& y) {
    const Tensor out = at::zeros({x.size(0), y.size(1)}, x.options());
    return !tensor::takes_product(x, y) && !tensor::multiply_into(out, x, y, false) &&
           at::equal(out, at::zeros_like(out));
  };
  CHECK(refused(a.to(at::kDouble), b.to(at::kDouble)));
  CHECK(refused(a.to(at::kBFloat16), b.to(at::kBFloat16)));
  CHECK(refused(a.narrow(0, 0, 15), b));                    // few rows
  CHECK(refused(a, b.narrow(1, 0, 15)));                    // few columns
  CHECK(refused(a.narrow(1, 0, 15), b.narrow(0, 0, 15)));   // a short sum
  CHECK(refused(at::ones({1, 30}).expand({20, 30}), b));    // rows that lie on one another
  CHECK(refused(drawn(20, 60, 12).slice(1, 0, 60, 2), b));  // neither order
  CHECK_FALSE(tensor::multiply_into(at::zeros({20, 39}), a, b, false));
  CHECK_FALSE(tensor::multiply_into(at::zeros({20, 40}, at::kDouble), a, b, false));

  const Tensor weight = b.detach().requires_grad_(true);
  CHECK_FALSE(tensor::takes_product(a, weight));  // recorded
  tensor::mm(a, weight).sum().backward();
  CHECK(weight.grad().defined());
  if (!here()) return;
  const at::NoGradGuard off;
  CHECK(tensor::takes_product(a, weight));
  CHECK(tensor::takes_product(a, b));
}

TEST_CASE("mm and addmm are LibTorch's to rounding") {
  const Tensor a = drawn(50, 70, 13), b = drawn(70, 90, 14), x = drawn(50, 90, 15), bias = drawn(1, 90, 16).squeeze(0);
  CHECK(at::allclose(tensor::mm(a, b), at::mm(a, b), 1e-4, 1e-4));
  CHECK(at::allclose(tensor::addmm(x, a, b, 1.0, 0.5), at::addmm(x, a, b, 1.0, 0.5), 1e-4, 1e-4));
  CHECK(at::allclose(tensor::addmm(bias, a, b), at::addmm(bias, a, b), 1e-4, 1e-4));
  CHECK(at::allclose(tensor::addmm(x, a, b, 0.5), at::addmm(x, a, b, 0.5), 1e-4, 1e-4));
  for (const double beta : {0.0, 1.0, 0.5}) {
    Tensor out = x.clone();
    CHECK(at::allclose(tensor::addmm_(out, a, b, beta, 2.0), at::addmm(x, a, b, beta, 2.0), 1e-4, 1e-4));
  }
}
