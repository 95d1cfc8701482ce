#include <support/catch.hpp>
#include <support/not_run.hpp>

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

// Types that have products of our own on this processor.
std::vector<at::ScalarType> here() {
  std::vector<at::ScalarType> types;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    if (tensor::product_kernels(type) != tensor::ProductKernels::libtorch)
      types.push_back(type);
    else
      rlalgo::support::not_run_in_part(std::string("products of ") + c10::toString(type) +
                                       " are LibTorch's on this processor");
  return types;
}

Tensor drawn(std::int64_t rows, std::int64_t columns, std::uint64_t seed, bool transposed = false,
             std::int64_t wider = 0, at::ScalarType type = at::kFloat) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const Tensor all = (transposed ? at::randn({columns, rows + wider}, generator, at::kFloat)
                                 : at::randn({rows, columns + wider}, generator, at::kFloat))
                         .to(type);
  return transposed ? all.narrow(1, 0, rows).t() : all.narrow(1, 0, columns);
}

// The largest difference to the product in float64 beside what it may be: a part of the sizes of its terms, which are summed
// in float32, and of bfloat16 half a unit in its last place.
double error(const Tensor& found, const Tensor& expected, const Tensor& a, const Tensor& b) {
  Tensor may_be = at::mm(a.abs().to(at::kDouble), b.abs().to(at::kDouble)).mul_(3e-6).add_(1e-30);
  if (found.scalar_type() == at::kBFloat16) may_be.add_(expected.abs(), 1.001 / 256);
  return (found.to(at::kDouble) - expected).abs().div_(may_be).max().item<double>();
}

struct Shape {
  std::int64_t m, n, k;
};
const std::vector<Shape> shapes = {{16, 16, 16},     {17, 33, 19},   {12 * 8 + 1, 31, 769}, {29, 2049, 40},
                                   {200, 64, 1600},  {100, 47, 33},  {24, 32, 768},         {40, 4100, 17},
                                   {30, 2100, 1537}, {16, 64, 1536}, {21, 40, 3100}};

}  // namespace

TEST_CASE("a product is that of float64 to rounding, whatever lies in rows or columns") {
  for (const at::ScalarType type : here())
    for (const Shape& s : shapes)
      for (int order = 0; order < 8; ++order)
        for (const std::int64_t wider : {0, 5}) {
          const Tensor a = drawn(s.m, s.k, 1, (order & 1) != 0, wider, type);
          const Tensor b = drawn(s.k, s.n, 2, (order & 2) != 0, wider, type);
          const Tensor exact = at::mm(a.to(at::kDouble), b.to(at::kDouble));
          const Tensor out = drawn(s.m, s.n, 3, (order & 4) != 0, wider, type);
          const Tensor before = out.to(at::kDouble);
          CAPTURE(type, s.m, s.n, s.k, order, wider);
          REQUIRE(tensor::multiply_into(out, a, b, true, 0.25));
          REQUIRE(error(out, before + 0.25 * exact, a, b) < 1);
          out.fill_(std::numeric_limits<float>::quiet_NaN());  // is not read
          REQUIRE(tensor::multiply_into(out, a, b, false));
          REQUIRE(error(out, exact, a, b) < 1);
        }
}

TEST_CASE("nothing beside the product is written") {
  for (const at::ScalarType type : here()) {
    const Tensor room = at::full({40, 60}, 7.0f, type), a = drawn(21, 18, 4).to(type), b = drawn(18, 35, 5).to(type);
    REQUIRE(tensor::multiply_into(room.narrow(0, 9, 21).narrow(1, 11, 35), a, b, false));
    Tensor rest = room.clone();
    rest.narrow(0, 9, 21).narrow(1, 11, 35).fill_(7.0f);
    CHECK(at::equal(rest, at::full({40, 60}, 7.0f, type)));
  }
}

TEST_CASE("an element's bits depend neither on other rows and columns nor on threads") {
  const int before = at::get_num_threads();
  for (const at::ScalarType type : here()) {
    const Tensor a = drawn(210, 2000, 6).to(type), b = drawn(2000, 130, 7).to(type);
    at::set_num_threads(1);
    const Tensor whole = tensor::mm(a, b);
    for (const int threads : {2, 3}) {
      at::set_num_threads(threads);
      CHECK(at::equal(tensor::mm(a, b), whole));
      CHECK(at::equal(tensor::mm(a.narrow(0, 50, 17), b), whole.narrow(0, 50, 17)));
      CHECK(at::equal(tensor::mm(a, b.narrow(1, 33, 29)), whole.narrow(1, 33, 29)));
      CHECK(at::equal(tensor::mm(b.t(), a.t()), whole.t()));
    }
    Tensor all = tensor::mm(a, b), some = all.narrow(1, 95, 33).clone(), rows = all.narrow(0, 50, 17).clone();
    REQUIRE(tensor::multiply_into(all, a, b, true, 0.3));
    REQUIRE(tensor::multiply_into(some, a, b.narrow(1, 95, 33), true, 0.3));
    CHECK(at::equal(some, all.narrow(1, 95, 33)));
    REQUIRE(tensor::multiply_into(rows, a.narrow(0, 50, 17), b, true, 0.3));
    CHECK(at::equal(rows, all.narrow(0, 50, 17)));
  }
  at::set_num_threads(before);
}

TEST_CASE("sums of bfloat16 are float32 and rounded once, over several blocks too") {
  rlalgo::support::needs(tensor::product_kernels(at::kBFloat16) != tensor::ProductKernels::libtorch,
                         "products of bfloat16 are LibTorch's on this processor");
  // 1 + 2⁻⁹ + 2⁻⁹, with what is small in the second block: each alone would be lost in bfloat16, both make 1 + 2⁻⁸, a tie,
  // and with 2⁻¹⁵ more it is 1 + 2⁻⁷.
  const std::int64_t k = 2 * tensor::block_of_products * 2;
  Tensor a = at::zeros({16, k}, at::kBFloat16), b = at::ones({k, 16}, at::kBFloat16);
  a.select(1, 0).fill_(1.0);
  a.select(1, k / 2 + 1).fill_(0x1p-9);
  a.select(1, k - 2).fill_(0x1p-9);
  a.select(1, k - 1).fill_(0x1p-15);
  CHECK(at::equal(tensor::mm(a, b), at::full({16, 16}, 1.0 + 0x1p-7, at::kBFloat16)));
}

TEST_CASE("infinities and NaN stay where they are") {
  for (const at::ScalarType type : here()) {
    Tensor a = drawn(19, 25, 8).to(type), b = drawn(25, 37, 9).to(type);
    a[3][5] = std::numeric_limits<float>::infinity();
    b[7][36] = std::numeric_limits<float>::quiet_NaN();
    const Tensor finite = tensor::mm(a, b).isfinite();
    for (std::int64_t i = 0; i < 19; ++i)
      for (std::int64_t j = 0; j < 37; ++j) REQUIRE(finite[i][j].item<bool>() == (i != 3 && j != 36));
  }
}

TEST_CASE("what these kernels are not for is LibTorch's") {
  const Tensor a = drawn(20, 30, 10), b = drawn(30, 40, 11);
  const auto refused = [&](const Tensor& x, const Tensor& y) {
    const Tensor out = at::zeros({x.size(0), y.size(1)}, x.options());
    return !tensor::takes_product(x, y) && !tensor::multiply_into(out, x, y, false) &&
           at::equal(out, at::zeros_like(out));
  };
  CHECK(refused(a.to(at::kDouble), b.to(at::kDouble)));
  CHECK(refused(a.to(at::kHalf), b.to(at::kHalf)));
  CHECK(refused(a.to(at::kBFloat16).narrow(0, 0, 1), b.to(at::kBFloat16)));
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
  const at::NoGradGuard off;
  for (const at::ScalarType type : here()) {
    CHECK(tensor::takes_product(a.to(type), weight.to(type)));
    CHECK(tensor::takes_product(a.to(type), b.to(type)));
    for (const at::ScalarType other : {at::kFloat, at::kBFloat16, at::kDouble}) {
      if (other == type) continue;
      CHECK_FALSE(tensor::takes_product(a.to(type), b.to(other)));
      CHECK_FALSE(tensor::multiply_into(at::zeros({20, 40}, other), a.to(type), b.to(type), false));
    }
  }
}

TEST_CASE("mm and addmm are LibTorch's to rounding") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Tensor a = drawn(50, 70, 13).to(type), b = drawn(70, 90, 14).to(type), x = drawn(50, 90, 15).to(type);
    const Tensor bias = drawn(1, 90, 16).squeeze(0).to(type);
    const double near = type == at::kFloat ? 1e-4 : 8e-3;  // a unit in bfloat16's last place
    CHECK(at::allclose(tensor::mm(a, b), at::mm(a, b), near, 1e-4));
    CHECK(at::allclose(tensor::addmm(x, a, b, 1.0, 0.5), at::addmm(x, a, b, 1.0, 0.5), near, 1e-4));
    CHECK(at::allclose(tensor::addmm(bias, a, b), at::addmm(bias, a, b), near, 1e-4));
    CHECK(at::allclose(tensor::addmm(x, a, b, 0.5), at::addmm(x, a, b, 0.5), near, 1e-4));
    for (const double beta : {0.0, 1.0, 0.5}) {
      Tensor out = x.clone();
      CHECK(at::allclose(tensor::addmm_(out, a, b, beta, 2.0), at::addmm(x, a, b, beta, 2.0), near, 1e-4));
    }
    const Tensor parameter = bias.detach().requires_grad_(true);
    tensor::addmm(parameter, a, b).sum().backward();  // recorded
    CHECK(at::allclose(parameter.grad(), at::full({90}, 50.0, type)));
  }
}
