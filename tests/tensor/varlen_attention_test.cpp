#include <rlalgo/tensor/varlen_attention.hpp>

#include <cmath>

#include <ATen/ATen.h>

#include <support/catch.hpp>
#include <support/plain_varlen.hpp>

using namespace rlalgo;

TEST_CASE("flash attention takes what its kernels compute") {
  const tensor::FlashAttention flash;
  const auto heads = [](std::int64_t width, at::ScalarType type) { return at::empty({3, 2, width}, type); };
  CHECK(flash.takes(heads(64, at::kBFloat16)));
  CHECK(flash.takes(heads(256, at::kHalf)));
  CHECK_FALSE(flash.takes(heads(64, at::kFloat)));
  CHECK_FALSE(flash.takes(heads(20, at::kBFloat16)));
  CHECK_FALSE(flash.takes(heads(264, at::kBFloat16)));
}

// One query over three keys, c = 1, one head of one number: scores 0, ln 2, ln 5, so p = 1/8, 1/4, 5/8 and ℓ = ln 8. With v = 8, 4, 0
// o = 2; ∂o = 1: ∂v = p, s_j = p_j (v_j − 2) = 6/8, 1/2, −5/4; ∂q = Σ s_j k_j, ∂k = s_j q.
TEST_CASE("the definition by hand: values, log-sums, gradients, a window") {
  const support::PlainVarlen plain;
  const auto column = [](std::vector<double> x) { return at::tensor(x, at::kDouble).view({-1, 1, 1}); };
  const auto q = column({1.0}), k = column({0.0, std::log(2.0), std::log(5.0)}), v = column({8.0, 4.0, 0.0});
  tensor::VarlenSequences s{at::tensor({0, 1}, at::kInt), at::tensor({0, 3}, at::kInt), 1, 3};
  const auto out = plain.forward(q, k, v, s);
  CHECK(out.value.item<double>() == Approx(2.0));
  CHECK(out.log_sum.item<double>() == Approx(std::log(8.0)));
  const auto g = plain.backward(at::ones_like(q), q, k, v, out, s);
  CHECK(g.v.allclose(column({0.125, 0.25, 0.625})));
  CHECK(g.k.allclose(column({0.75, 0.5, -1.25})));
  CHECK(g.q.item<double>() == Approx(0.5 * std::log(2.0) - 1.25 * std::log(5.0)));
  s.window = 2;
  CHECK(plain.forward(q, k, v, s).value.item<double>() == Approx(8.0 / 7.0));
}
