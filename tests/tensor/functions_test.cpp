#include <support/catch.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

#include <rlalgo/tensor/functions.hpp>

namespace {

using rlalgo::tensor::Tensor;
namespace tensor = rlalgo::tensor;

const at::TensorOptions kDouble = at::TensorOptions().dtype(at::kDouble);

Tensor matrix() { return tensor::from_values(std::vector<double>{3, 0, 0, 4, 1, 2}, kDouble).view({3, 2}); }

TEST_CASE("new tensors have the shape and the type asked for") {
  CHECK(tensor::empty({2, 3}, kDouble).sizes() == at::IntArrayRef({2, 3}));
  CHECK(tensor::empty({2, 3}, kDouble.dtype(at::kBFloat16)).scalar_type() == at::kBFloat16);
  CHECK(tensor::zeros({4}, kDouble).abs().sum().item<double>() == 0.0);
  CHECK(tensor::ones({4}, kDouble).sum().item<double>() == 4.0);
  CHECK(tensor::ones_like(matrix()).sum().item<double>() == 6.0);
  CHECK(tensor::zeros_like(matrix()).sum().item<double>() == 0.0);
  CHECK(tensor::empty_like(matrix()).sizes() == at::IntArrayRef({3, 2}));
  CHECK(tensor::arange(1, 8, 3, kDouble).equal(tensor::from_values(std::vector<double>{1, 4, 7}, kDouble)));
}

TEST_CASE("host values are copied and converted") {
  const Tensor flags = tensor::from_values(std::vector<std::int64_t>{1, 0, -7}, at::TensorOptions().dtype(at::kFloat));
  CHECK(flags.scalar_type() == at::kFloat);
  CHECK(flags[2].item<float>() == -7.0F);
  CHECK(tensor::from_values(std::vector<double>{}, kDouble).numel() == 0);
  CHECK_FALSE(tensor::from_values(std::vector<double>{1.0}, kDouble.requires_grad(true)).requires_grad());
}

TEST_CASE("products, activations and norms are the textbook's") {
  const Tensor a = matrix();
  CHECK(tensor::mm(a.t(), a).equal(tensor::from_values(std::vector<double>{10, 2, 2, 20}, kDouble).view({2, 2})));
  CHECK(tensor::addmm(tensor::ones({2, 2}, kDouble), a.t(), a, 2.0, 0.5)
            .equal(tensor::from_values(std::vector<double>{7, 3, 3, 12}, kDouble).view({2, 2})));
  const Tensor x = tensor::from_values(std::vector<double>{0.5}, kDouble), one = tensor::ones({1}, kDouble);
  const double sigmoid = 1.0 / (1.0 + std::exp(-0.5));
  const Tensor active = tensor::empty({1}, kDouble), slope = tensor::empty({1}, kDouble);
  tensor::silu_into(x, active);
  tensor::silu_backward_into(one, x, slope);
  CHECK(active.item<double>() == Approx(0.5 * sigmoid).epsilon(1e-12));
  CHECK(slope.item<double>() == Approx(sigmoid * (1.0 + 0.5 * (1.0 - sigmoid))).epsilon(1e-12));
  CHECK(tensor::log_sigmoid(x).item<double>() == Approx(std::log(sigmoid)).epsilon(1e-12));
  CHECK(tensor::power(4.0, x).item<double>() == Approx(2.0).epsilon(1e-12));
  CHECK(tensor::where(x.gt(1.0), one, x).item<double>() == 0.5);
  CHECK(tensor::euclidean_norm(a, 1)[0].item<double>() == 3.0);
  CHECK(tensor::euclidean_norm(a, 1)[1].item<double>() == 4.0);
  CHECK(tensor::euclidean_norm(a, at::kDouble).item<double>() == Approx(std::sqrt(30.0)));  // the trace of aᵀa
  CHECK(tensor::euclidean_norm(a.to(at::kBFloat16), at::kFloat).scalar_type() == at::kFloat);
  const auto kLong = at::TensorOptions().dtype(at::kLong);
  const Tensor table = tensor::zeros({2, 3}, kDouble);
  tensor::put(table, tensor::from_values(std::vector<std::int64_t>{1, 0}, kLong),
              tensor::from_values(std::vector<std::int64_t>{2, 1}, kLong),
              tensor::from_values(std::vector<float>{5, 7}, at::TensorOptions().dtype(at::kFloat)));
  CHECK(table.equal(tensor::from_values(std::vector<double>{0, 7, 0, 0, 0, 5}, kDouble).view({2, 3})));
  // Into a part of a larger memory, whose rows are one, two or three of the memory's.
  for (const std::int64_t before : {0, 2, 3}) {
    const Tensor memory = tensor::arange(0, 5 * 30, 1, kDouble).view({5, 30}), all = memory.clone();
    const Tensor places = memory.narrow(1, before, 24).unflatten(1, {4, 6}),
                 values = tensor::arange(1000, 1018, 1, kDouble).view({3, 6}),
                 expected = all.narrow(1, before, 24).unflatten(1, {4, 6});
    const std::vector<std::int64_t> first{4, 0, 2}, second{1, 3, 0};
    for (std::size_t i = 0; i < 3; ++i)
      expected.select(0, first[i]).select(0, second[i]).copy_(values.select(0, static_cast<std::int64_t>(i)));
    tensor::put(places, tensor::from_values(first, kLong), tensor::from_values(second, kLong), values);
    CHECK(memory.equal(all));
  }
  Tensor in_place = x.clone();
  tensor::silu_into(in_place, in_place);
  CHECK(in_place.equal(active));
  tensor::subtract_into(in_place, one, x);
  CHECK(in_place.item<double>() == 0.5);
}

TEST_CASE("decompositions multiply back") {
  const Tensor a = matrix();
  const auto [u, s, v] = tensor::reduced_svd(a);
  CHECK(u.sizes() == at::IntArrayRef({3, 2}));
  CHECK(tensor::mm(u.mul(s), v).sub(a).abs().max().item<double>() < 1e-12);
  const Tensor q = tensor::orthonormal_basis(a);
  CHECK(tensor::mm(q.t(), q)
            .sub(tensor::from_values(std::vector<double>{1, 0, 0, 1}, kDouble).view({2, 2}))
            .abs()
            .max()
            .item<double>() < 1e-12);
}

}  // namespace
