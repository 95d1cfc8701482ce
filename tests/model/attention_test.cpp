#include <rlalgo/model/attention.hpp>

#include <cmath>
#include <vector>

#include <ATen/ATen.h>

#include <support/catch.hpp>
#include <support/forests.hpp>

using namespace rlalgo;
using model::Segment;
using model::TokenTree;
using support::forests;
using support::tree_of;

namespace {

// [T, T] of what each token sees, straight from the definition of a segment.
at::Tensor visibility(const TokenTree& tree) {
  at::Tensor mask = at::zeros({tree.tokens(), tree.tokens()}, at::kBool);
  for (const auto& segment : tree.segments) {
    for (std::int64_t t = segment.begin; t < segment.end; ++t) {
      mask[t].slice(0, segment.begin, t + 1).fill_(true);
      std::int64_t left = segment.prefix_length;
      for (std::int32_t a = segment.parent; a >= 0; a = tree.segments[static_cast<std::size_t>(a)].parent) {
        const auto& s = tree.segments[static_cast<std::size_t>(a)];
        if (left > s.prefix_length) mask[t].slice(0, s.begin, s.begin + left - s.prefix_length).fill_(true);
        left = std::min(left, s.prefix_length);
      }
    }
  }
  return mask;
}

at::Tensor reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const TokenTree& tree) {
  const std::int64_t group = q.size(1) / k.size(1);
  const auto keys = k.repeat_interleave(group, 1).transpose(0, 1),
             values = v.repeat_interleave(group, 1).transpose(0, 1);
  const auto scores = at::matmul(q.transpose(0, 1), keys.transpose(1, 2)) / std::sqrt(static_cast<double>(q.size(2)));
  return at::matmul(scores.masked_fill(visibility(tree).logical_not(), -INFINITY).softmax(-1), values).transpose(0, 1);
}

}  // namespace

TEST_CASE("attention over any forest equals the masked formula, values and gradients") {
  for (const auto& segments : forests) {
    const TokenTree tree = tree_of(segments);
    for (const auto& [heads, kv] : {std::pair{4, 2}, std::pair{3, 3}, std::pair{3, 1}}) {
      const auto make = [&](int h) { return at::randn({tree.tokens(), h, 5}, at::kDouble); };
      const auto q = make(heads).requires_grad_(), k = make(kv).requires_grad_(), v = make(kv).requires_grad_();
      const auto grad = make(heads);
      const auto expected = reference(q, k, v, tree);
      expected.backward(grad);
      const auto eq = q.grad().clone(), ek = k.grad().clone(), ev = v.grad().clone();
      for (const auto& x : {q, k, v}) x.mutable_grad() = at::Tensor();
      const auto out = model::attention(q, k, v, tree);
      CHECK(out.allclose(expected.detach(), 1e-11, 1e-11));
      out.backward(grad);
      CHECK(q.grad().allclose(eq, 1e-10, 1e-10));
      CHECK(k.grad().allclose(ek, 1e-10, 1e-10));
      CHECK(v.grad().allclose(ev, 1e-10, 1e-10));
    }
  }
}

TEST_CASE("attention in float32 and bfloat16 stays near the float64 result") {
  const TokenTree tree = tree_of(forests[4]);
  const auto q = at::randn({tree.tokens(), 4, 16}, at::kDouble), k = at::randn({tree.tokens(), 2, 16}, at::kDouble),
             v = at::randn({tree.tokens(), 2, 16}, at::kDouble);
  const auto expected = reference(q, k, v, tree);
  const auto in = [&](at::ScalarType type) {
    return model::attention(q.to(type), k.to(type), v.to(type), tree).to(at::kDouble);
  };
  CHECK(in(at::kFloat).allclose(expected, 1e-5, 1e-5));
  CHECK(in(at::kBFloat16).allclose(expected, 5e-2, 5e-2));
}

TEST_CASE("attention in bfloat16 is the float64 result of the same inputs to its rounding, in pieces short and long") {
  auto all = forests;
  all.push_back({{0, 530, -1, 0}, {530, 1100, 0, 530}, {1100, 1120, 0, 200}});
  for (const auto& segments : all) {
    const TokenTree tree = tree_of(segments);
    const auto make = [&](int h) { return at::randn({tree.tokens(), h, 16}).to(at::kBFloat16); };
    const std::vector<at::Tensor> low = {make(4), make(2), make(2)};
    const auto grad = make(4);
    std::vector<at::Tensor> exact;
    for (const auto& x : low) exact.push_back(x.to(at::kDouble).requires_grad_());
    const auto expected = reference(exact[0], exact[1], exact[2], tree);
    expected.backward(grad.to(at::kDouble));
    for (const auto& x : low) x.requires_grad_();
    const auto out = model::attention(low[0], low[1], low[2], tree);
    out.backward(grad);
    const auto apart = [](const at::Tensor& found, const at::Tensor& wanted) {
      return (found.to(at::kDouble) - wanted).norm().item<double>() / (1 + wanted.norm().item<double>());
    };
    CAPTURE(tree.tokens());
    CHECK(apart(out.detach(), expected.detach()) < 4e-3);
    for (std::size_t i = 0; i < low.size(); ++i) CHECK(apart(low[i].grad(), exact[i].grad()) < 8e-3);
  }
}

TEST_CASE("the log-sum-exp of merged pieces covers all visible keys") {
  const TokenTree tree = tree_of(forests[5]);
  const auto q = at::randn({tree.tokens(), 2, 4}, at::kDouble), k = at::randn({tree.tokens(), 1, 4}, at::kDouble);
  const auto& operations = model::operations_for(at::kCPU);
  const auto out = operations.attention(q, k, k, operations.lay_out(model::plan_attention(tree), at::kCPU));
  const auto scores = at::matmul(q.transpose(0, 1), k.expand({-1, 2, -1}).transpose(0, 1).transpose(1, 2)) / 2.0;
  const auto expected = scores.masked_fill(visibility(tree).logical_not(), -INFINITY).logsumexp(-1);
  CHECK(out.log_sum.allclose(expected.t(), 1e-12, 1e-12));
}

// Large scores: the partial results must be merged without overflow.
TEST_CASE("attention survives scores of a thousand") {
  const TokenTree tree = tree_of(forests[4]);
  const auto q = at::randn({tree.tokens(), 2, 4}) * 60, k = at::randn({tree.tokens(), 1, 4}) * 60,
             v = at::randn({tree.tokens(), 1, 4});
  const auto out = model::attention(q, k, v, tree);
  CHECK(out.isfinite().all().item<bool>());
  CHECK(out.to(at::kDouble)
            .allclose(reference(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), tree), 1e-2, 1e-2));
}
