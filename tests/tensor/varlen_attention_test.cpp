#include <rlalgo/tensor/varlen_attention.hpp>

#include <cmath>
#include <optional>
#include <tuple>

#include <ATen/ATen.h>
#include <torch/library.h>

#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/detail/repeatable_flash.hpp>

#include <support/catch.hpp>
#include <support/plain_varlen.hpp>

using namespace rlalgo;

namespace {

// What LibTorch was told when the gradient of flash attention was asked for, which has no kernel on the CPU but this.
std::optional<bool> deterministic, reported;
bool fails = false;
std::tuple<at::Tensor, at::Tensor, at::Tensor> gradient_on_cpu(
    const at::Tensor&, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor&,
    const at::Tensor&, const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymInt, double, bool, const at::Tensor&,
    const at::Tensor&, std::optional<double>, std::optional<c10::SymInt>, std::optional<c10::SymInt>) {
  deterministic = at::globalContext().deterministicAlgorithms();
  reported = at::globalContext().deterministicAlgorithmsWarnOnly();
  TORCH_CHECK(!fails, "no gradient");
  return {q, k, v};
}
TORCH_LIBRARY_IMPL(aten, CPU, m) { m.impl("_flash_attention_backward", gradient_on_cpu); }

}  // namespace

// LibTorch 2.11 gives flash attention's gradient in an order that changes where operators without a deterministic form are reported only
// (load_cuda() has that): it is asked for as if they were refused.
TEST_CASE("the gradient of flash attention is asked for in its deterministic form, and what was set stays") {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/true);
  const auto x = at::zeros({2, 1, 8}, at::kBFloat16), ends = at::tensor({0, 2}, at::kInt);
  const tensor::VarlenSequences s{ends, ends, 2, 2};
  const tensor::VarlenOutput out{x, at::zeros({1, 2})};
  const auto set = [&] { return context.deterministicAlgorithms() && context.deterministicAlgorithmsWarnOnly(); };
  const tensor::detail::RepeatableFlash flash;
  (void)flash.backward(x, x, x, x, out, s);
  CHECK(deterministic == true);
  CHECK(reported == false);
  CHECK(set());
  fails = true;
  CHECK_THROWS_WITH((flash.backward(x, x, x, x, out, s)), Catch::Contains("no gradient"));
  fails = false;
  CHECK(set());
  context.setDeterministicAlgorithms(false, false);
}

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
