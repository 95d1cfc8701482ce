#include <rlalgo/model/aten_operations.hpp>

#include <vector>

#include <ATen/ATen.h>

#include <support/catch.hpp>

using namespace rlalgo;

namespace {

// A prompt with two children, one of them long, and a window that needs masks.
model::AttentionPlan plan(std::int64_t window) {
  model::TokenTree tree;
  tree.segments = {{0, 20, -1, 0}, {20, 26, 0, 20}, {26, 36, 0, 20}, {36, 180, 0, 12}};
  for (const auto& s : tree.segments)
    for (std::int64_t i = s.begin; i < s.end; ++i) {
      tree.ids.push_back(0);
      tree.positions.push_back(s.prefix_length + i - s.begin);
    }
  return model::plan_attention(tree, window);
}

}  // namespace

TEST_CASE("blocks of queries, down to one at a time, give the same attention and gradients") {
  const model::AtenOperations whole;
  for (const std::int64_t window : {0, 9}) {
    const auto layout = whole.lay_out(plan(window), at::kCPU);
    const auto q = at::randn({180, 4, 6}, at::kDouble), k = at::randn({180, 2, 6}, at::kDouble),
               v = at::randn({180, 2, 6}, at::kDouble), grad = at::randn({180, 4, 6}, at::kDouble);
    const auto expected = whole.attention(q, k, v, layout);
    const auto gradients = whole.attention_backward(grad, q, k, v, expected, layout);
    for (const std::int64_t elements : {1, 700, 5000}) {
      const model::AtenOperations blocked(elements);
      const auto out = blocked.attention(q, k, v, layout);
      INFO("window " << window << ", " << elements << " scores");
      CHECK(out.value.allclose(expected.value, 1e-12, 1e-12));
      CHECK(out.log_sum.allclose(expected.log_sum, 1e-12, 1e-12));
      const auto got = blocked.attention_backward(grad, q, k, v, out, layout);
      CHECK(got.q.allclose(gradients.q, 1e-11, 1e-11));
      CHECK(got.k.allclose(gradients.k, 1e-11, 1e-11));
      CHECK(got.v.allclose(gradients.v, 1e-11, 1e-11));
    }
  }
}

TEST_CASE("every operation runs on a device without memory") {
  const model::AtenOperations operations;
  const auto meta = at::TensorOptions().device(at::kMeta);
  const auto layout = operations.lay_out(plan(9), at::kMeta);
  const auto q = at::empty({180, 4, 6}, meta), k = at::empty({180, 2, 6}, meta);
  const auto out = operations.attention(q, k, k, layout);
  CHECK(out.value.is_meta());
  CHECK(out.log_sum.sizes() == at::IntArrayRef{180, 4});
  const auto gradients = operations.attention_backward(q, q, k, k, out, layout);
  CHECK(gradients.q.sizes() == q.sizes());
  CHECK(gradients.v.sizes() == k.sizes());
  const auto w = at::empty({6}, meta);
  const auto normed = operations.rms_norm(q, w, {1e-5});
  CHECK(normed.scale.sizes() == at::IntArrayRef{720});
  CHECK(operations.rms_norm_backward(q, q, w, {1e-5}, normed.scale, {}, w.clone()).sizes() == q.sizes());
  const auto index = at::empty({3}, meta.dtype(at::kLong));
  CHECK(operations.rows(q, index).sizes() == at::IntArrayRef{3, 4, 6});
  CHECK(operations.dropout(q, {.probability = 0.5}).is_meta());
}
