#include <rlalgo/model/sinks.hpp>

#include <cmath>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <rlalgo/model/attention_plan.hpp>
#include <rlalgo/model/operations_for.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("a sink takes its share of the weights by hand") {
  // One query, scores log 1 and log 2 of two keys with values 3 and 6, a sink of log 5: (3 + 12) / 8.
  const auto value = at::full({1, 1, 1}, (1.0 * 3.0 + 2.0 * 6.0) / 3.0, at::kDouble);
  const auto out = model::with_sinks({value, at::full({1, 1}, std::log(3.0), at::kDouble)},
                                     at::full({1}, std::log(5.0), at::kDouble));
  CHECK(out.value.item<double>() == Approx(15.0 / 8.0));
  CHECK(out.log_sum.item<double>() == Approx(std::log(8.0)));
}

TEST_CASE("attention with sinks is a softmax over one key more, values and gradients, in trees and windows") {
  const auto& ops = model::operations_for(at::kCPU);
  model::TokenTree tree;
  tree.segments = {{0, 4, -1, 0}, {4, 6, 0, 4}, {6, 9, 0, 4}};
  tree.positions = {0, 1, 2, 3, 4, 5, 4, 5, 6};
  tree.ids.assign(9, 0);
  for (const std::int64_t window : {0, 3}) {
    at::manual_seed(5);
    auto hidden = at::ones({9, 9}, at::kBool);
    for (std::int64_t i = 0; i < 9; ++i)
      for (std::int64_t j = 0; j <= i; ++j) {
        const bool related = j < 4 || (i < 6) == (j < 6);
        const std::int64_t far =
            tree.positions[static_cast<std::size_t>(i)] - tree.positions[static_cast<std::size_t>(j)];
        if (related && (window == 0 || far < window)) hidden[i][j] = false;
      }
    const auto q = at::randn({9, 4, 6}, at::kDouble).requires_grad_(),
               k = at::randn({9, 2, 6}, at::kDouble).requires_grad_(),
               v = at::randn({9, 2, 6}, at::kDouble).requires_grad_(), z = at::randn({4}, at::kDouble).requires_grad_();
    const auto heads = [](const at::Tensor& x) { return x.repeat_interleave(4 / x.size(1), 1).transpose(0, 1); };
    auto scores = heads(q).matmul(heads(k).transpose(1, 2)) / std::sqrt(6.0);
    scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
    const auto weights = at::cat({scores, z.view({4, 1, 1}).expand({4, 9, 1})}, -1).softmax(-1).narrow(-1, 0, 9);
    const auto expected = weights.matmul(heads(v)).transpose(0, 1);
    const auto grad = at::randn(expected.sizes(), at::kDouble);
    expected.backward(grad);

    const c10::NoGradGuard no_grad;
    const auto layout = ops.lay_out(model::plan_attention(tree, window), at::kCPU);
    const auto out = model::with_sinks(ops.attention(q, k, v, layout), z);
    CHECK(out.value.allclose(expected, 1e-10, 1e-10));
    const auto back = ops.attention_backward(grad, q, k, v, out, layout);
    CHECK(back.q.allclose(q.grad(), 1e-9, 1e-9));
    CHECK(back.k.allclose(k.grad(), 1e-9, 1e-9));
    CHECK(back.v.allclose(v.grad(), 1e-9, 1e-9));
    const auto sum = at::ones({4}, at::kDouble);
    model::add_sink_gradient(sum, grad, out, z);
    CHECK((sum - 1.0).allclose(z.grad(), 1e-9, 1e-9));
  }
}
