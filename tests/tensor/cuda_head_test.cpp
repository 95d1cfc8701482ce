// The log-prob head by kernels, which run on the host here (support/host_kernels.cpp), against the head by ATen's operators.
#include <rlalgo/tensor/detail/cuda_head.hpp>

#include <cmath>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/tensor/log_prob_head.hpp>

#include <support/catch.hpp>

using namespace rlalgo;
using at::Tensor;

namespace {

struct Found {
  Tensor log_prob, entropy, greedy, hidden, weight, bias;  // the last three: gradients
};

struct Case {
  std::int64_t tokens, width, vocabulary, tile_tokens, tile_vocabulary;
  at::ScalarType type = at::kFloat;
  bool bias = false, entropy_gradient = false, adds = false;
};

Found run(const Case& c, bool by_kernels) {
  tensor::own_kernels() = {.table = cuda::compiled(), .device = by_kernels ? at::kCPU : at::kCUDA};
  auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  const auto draw = [&](at::IntArrayRef sizes) {
    return at::randn(sizes, generator, at::kFloat).to(c.type).requires_grad_();
  };
  const Tensor hidden = draw({c.tokens, c.width}), weight = draw({c.vocabulary, c.width}),
               bias = c.bias ? draw({c.vocabulary}) : Tensor();
  const Tensor targets = at::randint(c.vocabulary, {c.tokens}, generator, at::kLong);
  if (c.adds) weight.mutable_grad() = at::ones_like(weight);
  const tensor::LogProbOptions options{.temperature = 0.7,
                                       .entropy = true,
                                       .entropy_gradient = c.entropy_gradient,
                                       .greedy = true,
                                       .tile_tokens = c.tile_tokens,
                                       .tile_vocabulary = c.tile_vocabulary,
                                       .adds_weight_gradient = c.adds};
  const tensor::LogProbs out = tensor::log_prob_head(hidden, weight, targets, options, bias);
  const Tensor along = at::randn({c.tokens}, generator, at::kFloat);
  Tensor loss = out.log_prob.mul(along).sum();
  if (c.entropy_gradient) loss = loss.add(out.entropy.mul(along.flip(0)).sum());
  loss.backward();
  tensor::own_kernels().device = at::kCUDA;
  return {out.log_prob.detach(), out.entropy.detach(), out.greedy,
          hidden.grad(),         weight.grad(),        c.bias ? bias.grad() : Tensor()};
}

}  // namespace

TEST_CASE("the head by kernels has the log-probs, entropies and gradients of the head by operators") {
  REQUIRE(cuda::compiled() != nullptr);
  for (const Case& c : {Case{7, 6, 50, 3, 16}, Case{7, 6, 50, 0, 0, at::kFloat, true, true}, Case{1, 3, 1, 0, 0},
                        Case{9, 8, 40, 4, 9, at::kFloat, true, true, true},
                        Case{5, 4, 30, 0, 7, at::kFloat, false, false, true}, Case{6, 8, 33, 2, 8, at::kHalf}}) {
    CAPTURE(c.tokens, c.vocabulary, c.tile_tokens, c.tile_vocabulary, c.bias, c.entropy_gradient, c.adds);
    const Found expected = run(c, false), found = run(c, true);
    const auto agree = [](const Tensor& a, const Tensor& b) {
      if (a.defined() != b.defined()) return false;
      return !a.defined() || (a.scalar_type() == b.scalar_type() && a.allclose(b, 2e-4, 2e-5));
    };
    CHECK(agree(found.log_prob, expected.log_prob));
    CHECK(agree(found.entropy, expected.entropy));
    CHECK(found.greedy.equal(expected.greedy));
    CHECK(agree(found.hidden, expected.hidden));
    CHECK(agree(found.weight, expected.weight));
    CHECK(agree(found.bias, expected.bias));
  }
}

TEST_CASE("the head by kernels widens bfloat16 and rounds its gradients once") {
  tensor::own_kernels() = {.table = cuda::compiled(), .device = at::kCPU};
  const auto x = at::randn({6, 8}).to(at::kBFloat16);
  CHECK(tensor::detail::cuda_head(x, x, {}, at::zeros({6}, at::kLong), 1.0).has_value());
  CHECK_FALSE(tensor::detail::cuda_head(x.to(at::kDouble), x, {}, at::zeros({6}, at::kLong), 1.0).has_value());
  cuda::use(cuda::Kernel::log_prob, false);
  CHECK_FALSE(tensor::detail::cuda_head(x, x, {}, at::zeros({6}, at::kLong), 1.0).has_value());
  cuda::use(cuda::Kernel::log_prob, true);
  tensor::own_kernels().device = at::kCUDA;
  const auto targets = at::randint(40, {6}, at::kLong);
  const auto hidden = at::randn({6, 8}).to(at::kBFloat16), weight = at::randn({40, 8}).to(at::kBFloat16);
  const tensor::detail::CudaHead head{.own = *cuda::compiled(),
                                      .hidden = hidden.to(at::kFloat),
                                      .weight = weight,
                                      .bias = {},
                                      .targets = targets,
                                      .tile_tokens = 4,
                                      .tile_vocabulary = 16};
  const auto empty = [] { return at::empty({6}); };
  const tensor::detail::CudaHead::Outputs out{empty(), empty(), empty(), {}};
  head.forward(out);
  const Tensor log_p = hidden.to(at::kDouble).matmul(weight.to(at::kDouble).t()).log_softmax(1);
  CHECK(out.log_prob.to(at::kDouble).allclose(log_p.gather(1, targets.unsqueeze(1)).squeeze(1), 1e-5, 1e-5));
  tensor::detail::CudaHead::Gradients into{
      .hidden = at::empty({6, 8}), .weight = at::empty({40, 8}, at::kBFloat16), .bias = {}};
  head.backward(at::ones({6}), {}, out, into);
  const Tensor along = at::zeros({6, 40}, at::kDouble).scatter_(1, targets.unsqueeze(1), 1.0).sub(log_p.exp());
  CHECK(into.hidden.to(at::kDouble).allclose(along.matmul(weight.to(at::kDouble)), 1e-4, 1e-4));
  CHECK(into.weight.to(at::kDouble).allclose(along.t().matmul(hidden.to(at::kDouble)), 1e-2, 1e-2));
}

TEST_CASE("what is summed in float32 is a part of the states and of the weight, with the gradients of the whole") {
  const auto draw = [](at::IntArrayRef sizes) { return at::randn(sizes).to(at::kBFloat16); };
  const Tensor targets = at::randint(70, {11}, at::kLong), hidden = draw({11, 8}), weight = draw({70, 8});
  for (const bool adds : {false, true}) {
    tensor::detail::CudaHead head{
        .own = *cuda::compiled(), .hidden = hidden, .weight = weight, .bias = {}, .targets = targets};
    const auto run = [&](at::ScalarType type) {
      const tensor::detail::CudaHead::Outputs out{at::empty({11}), at::empty({11}), at::empty({11}), {}};
      head.forward(out);
      tensor::detail::CudaHead::Gradients into{.hidden = at::full({11, 8}, NAN, at::kBFloat16),
                                               .weight = adds ? at::ones({70, 8}, type) : at::full({70, 8}, NAN, type),
                                               .bias = at::empty({70}),
                                               .adds = adds};
      head.backward(at::linspace(-1, 1, 11), at::linspace(0, 1, 11), out, into);
      return std::pair(out.log_prob, into);
    };
    const auto [expected, whole] = run(at::kFloat);
    head.most = 32;  // four tokens a block, four ids a tile
    const auto [log_prob, wide] = run(at::kFloat);
    const auto narrow = run(at::kBFloat16).second;
    CHECK(log_prob.allclose(expected, 1e-5, 1e-5));
    CHECK(wide.hidden.allclose(whole.hidden, 1e-2, 1e-2));
    CHECK(wide.weight.allclose(whole.weight, 1e-2, 1e-2));
    CHECK(wide.bias.allclose(whole.bias, 1e-2, 1e-2));
    CHECK(narrow.weight.scalar_type() == at::kBFloat16);
    CHECK(narrow.weight.to(at::kFloat).allclose(whole.weight, 3e-2, 3e-2));
    const Tensor log_p = hidden.to(at::kDouble).matmul(weight.to(at::kDouble).t()).log_softmax(1);
    CHECK(log_prob.to(at::kDouble).allclose(log_p.gather(1, targets.unsqueeze(1)).squeeze(1), 1e-5, 1e-5));
  }
}

TEST_CASE("no token is no gradient") {
  const Case none{0, 3, 5, 0, 0, at::kFloat, true};
  const Found found = run(none, true);
  CHECK(found.log_prob.size(0) == 0);
  CHECK(found.weight.equal(at::zeros({5, 3})));
  CHECK(found.bias.equal(at::zeros({5})));
}
