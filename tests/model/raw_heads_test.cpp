// Attention over raw heads by the kernels of the host against norm, rotation and attention by ATen's operators, one by one.
#include <rlalgo/model/raw_heads.hpp>

#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/model/cpu_operations.hpp>
#include <rlalgo/model/cuda_operations.hpp>

#include <support/catch.hpp>
#include <support/forests.hpp>
#include <support/plain_varlen.hpp>

using namespace rlalgo;

namespace {

const support::PlainVarlen varlen;
const model::AtenOperations aten;
// Made when it is first asked for: the table of kernels is there when main() begins.
const model::CudaOperations& kernels() {
  static const tensor::OwnKernels host{.table = cuda::compiled(), .device = at::kCPU, .varlen = &varlen};
  static const model::CudaOperations operations(host);
  return operations;
}

bool close(const at::Tensor& a, const at::Tensor& b, double tolerance) {
  return a.sizes() == b.sizes() && a.to(at::kDouble).allclose(b.to(at::kDouble), tolerance, tolerance);
}

model::RopeTable table_of(std::int64_t tokens, std::int64_t half, bool interleaved) {
  const auto angles = at::randn({tokens, half});
  return {angles.cos(), angles.sin(), interleaved};
}

struct Found {
  at::Tensor value, log_sum, q, k, v, q_norm, k_norm;
};

Found one_by_one(const model::RawHeads& raw, const model::AttentionPlan& plan, const at::Tensor& grad, double scale) {
  auto layout = aten.lay_out(plan, at::kCPU);
  layout.scale = scale;
  const auto tokens = raw.q.size(0);
  const auto heads = [&](const at::Tensor& x) { return x.contiguous().view({tokens, -1, raw.head_dim}); };
  at::Tensor q = heads(raw.q).clone(), k = heads(raw.k).clone();
  const at::Tensor v = heads(raw.v);
  model::RmsNormOutput q_normed, k_normed;
  if (raw.q_norm.defined()) {
    q_normed = aten.rms_norm(heads(raw.q), raw.q_norm, raw.norm);
    k_normed = aten.rms_norm(heads(raw.k), raw.k_norm, raw.norm);
    q = q_normed.value;
    k = k_normed.value;
  }
  if (raw.rope != nullptr) {
    aten.rotate(q, *raw.rope, model::Rotation::forward);
    aten.rotate(k, *raw.rope, model::Rotation::forward);
  }
  const auto out = aten.attention(q, k, v, layout);
  auto g = aten.attention_backward(grad, q, k, v, out, layout);
  if (raw.rope != nullptr) {
    aten.rotate(g.q, *raw.rope, model::Rotation::backward);
    aten.rotate(g.k, *raw.rope, model::Rotation::backward);
  }
  Found found{out.value, out.log_sum, g.q, g.k, g.v};
  if (raw.q_norm.defined()) {
    found.q_norm = at::ones_like(raw.q_norm);
    found.k_norm = at::ones_like(raw.k_norm);
    found.q = aten.rms_norm_backward(g.q, heads(raw.q), raw.q_norm, raw.norm, q_normed.scale, {}, found.q_norm);
    found.k = aten.rms_norm_backward(g.k, heads(raw.k), raw.k_norm, raw.norm, k_normed.scale, {}, found.k_norm);
  }
  for (at::Tensor* x : {&found.q, &found.k, &found.v}) *x = x->reshape({tokens, -1});
  return found;
}

}  // namespace

TEST_CASE("raw heads are normalised, rotated and attended to as by operations one by one, with their gradients") {
  REQUIRE(cuda::compiled() != nullptr);
  constexpr std::int64_t dim = 16, heads = 4, kv = 2;
  struct Case {
    int norm;
    std::int64_t half;
    bool joined;
  };
  for (const auto& segments : support::forests)
    for (const auto type : {at::kFloat, at::kBFloat16})
      for (const auto& [norm, half, joined] :
           {Case{0, 8, true}, {0, 0, false}, {1, 8, false}, {2, 3, true}, {3, 8, true}}) {
        const auto tree = support::tree_of(segments);
        const std::int64_t tokens = tree.tokens(), window = half == 3 ? 4 : 0;
        CAPTURE(tokens, c10::toString(type), norm, half, joined);
        const auto table = table_of(tokens, half, half == 3);
        const auto all = at::randn({tokens, (heads + 2 * kv) * dim}, type);
        const auto part = [&](std::int64_t first, std::int64_t count) {
          const auto x = all.narrow(1, first * dim, count * dim);
          return joined ? x : x.contiguous();
        };
        model::RawHeads raw{part(0, heads), part(heads, kv), part(heads + kv, kv), dim};
        if (norm > 0) {
          raw.q_norm = at::randn({dim}, type);
          raw.k_norm = at::randn({dim}, type);
          raw.norm = {.unit_offset = norm == 2, .rounded_once = norm == 3};
        }
        if (half > 0) raw.rope = &table;
        const auto plan = model::plan_attention(tree, window);
        auto layout = kernels().lay_out(plan, at::kCPU);
        layout.scale = joined ? 0.0 : 0.4;
        const auto grad = at::randn({tokens, heads, dim}, type);
        const Found want = one_by_one(raw, plan, grad, layout.scale);
        const model::RawHeadsAttention* const attention = kernels().of_raw_heads(raw, layout);
        REQUIRE(attention != nullptr);
        const auto out = attention->raw_attention(raw, layout);
        const double tolerance = type == at::kFloat ? 2e-4 : 6e-2;
        CHECK(close(out.value, want.value, tolerance));
        CHECK(close(out.log_sum, want.log_sum, tolerance));
        at::Tensor q_norm, k_norm;
        if (norm > 0) {
          q_norm = at::ones_like(raw.q_norm);
          k_norm = at::ones_like(raw.k_norm);
        }
        const auto before = all.clone();
        const auto g = attention->raw_attention_backward(grad, raw, out, layout, q_norm, k_norm);
        CHECK(all.equal(before));
        CHECK(close(g.q, want.q, 2 * tolerance));
        CHECK(close(g.k, want.k, 2 * tolerance));
        CHECK(close(g.v, want.v, 2 * tolerance));
        CHECK(g.q.stride(0) == (heads + 2 * kv) * dim);  // columns of one
        CHECK((g.q.is_alias_of(g.k) && g.k.is_alias_of(g.v)));
        if (norm == 0) continue;
        CHECK(close(q_norm, want.q_norm, 4 * tolerance));
        CHECK(close(k_norm, want.k_norm, 4 * tolerance));
        const at::Tensor none;
        const auto frozen = attention->raw_attention_backward(grad, raw, out, layout, none, none);
        CHECK(frozen.q.equal(g.q));
        CHECK(frozen.k.equal(g.k));
      }
}

TEST_CASE("heads that the kernel does not know are taken by operations one by one") {
  const auto tree = support::tree_of(support::forests[4]);
  auto layout = kernels().lay_out(model::plan_attention(tree), at::kCPU);
  const auto table = table_of(tree.tokens(), 4, false);
  const auto raw_of = [&](std::int64_t dim, at::ScalarType type) {
    return model::RawHeads{at::randn({tree.tokens(), 2 * dim}, type), at::randn({tree.tokens(), dim}, type),
                           at::randn({tree.tokens(), dim}, type), dim};
  };
  const auto takes = [&](const model::RawHeads& raw) { return kernels().of_raw_heads(raw, layout) != nullptr; };
  const auto good = raw_of(16, at::kFloat);
  CHECK(takes(good));
  CHECK(aten.of_raw_heads(good, layout) == nullptr);
  CHECK(model::CpuOperations().of_raw_heads(good, layout) == nullptr);
  CHECK_FALSE(takes(raw_of(16, at::kDouble)));
  CHECK_FALSE(takes(raw_of(7, at::kFloat)));
  CHECK_FALSE(takes(raw_of(260, at::kFloat)));
  auto raw = good;
  raw.k = at::randn({16, tree.tokens()}).t();
  CHECK_FALSE(takes(raw));  // no rows
  raw = good;
  raw.q_norm = raw.k_norm = at::randn({16});
  CHECK(takes(raw));
  raw.norm.centred = true;
  CHECK_FALSE(takes(raw));
  raw.norm.centred = false;
  raw.q_norm = at::randn({32});  // of all heads together
  CHECK_FALSE(takes(raw));
  raw.q_norm = at::randn({16}, at::kDouble);
  CHECK_FALSE(takes(raw));
  raw.q_norm = at::Tensor();
  CHECK_FALSE(takes(raw));
  raw = good;
  raw.rope = &table;
  CHECK(takes(raw));
  const model::RopeTable wide{table.cosine.to(at::kDouble), table.sine.to(at::kDouble)};
  raw.rope = &wide;
  CHECK_FALSE(takes(raw));
  layout.cap = 5.0;
  CHECK_FALSE(takes(good));
  layout.cap = 0.0;
  for (const auto kernel : {cuda::Kernel::unrolled_heads, cuda::Kernel::flash_attention}) {
    cuda::use(kernel, false);
    CHECK_FALSE(takes(good));
    cuda::use(kernel, true);
  }
}
