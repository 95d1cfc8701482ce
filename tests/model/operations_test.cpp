#include <rlalgo/model/operations.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <rlalgo/model/aten_operations.hpp>
#include <rlalgo/model/cpu_operations.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

namespace {

const model::CpuOperations cpu;
const model::AtenOperations aten;

// Two computations of the same numbers, in the rounding of their dtype.
bool agree(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const double tolerance = type == at::kDouble ? 1e-12 : type == at::kFloat ? 2e-5 : 3e-2;
  return a.to(at::kDouble).allclose(b.to(at::kDouble), tolerance, tolerance);
}
bool agree(const at::Tensor& a, const at::Tensor& b) { return agree(a, b, a.scalar_type()); }

model::TokenTree tree_of(std::vector<model::Segment> segments) {
  model::TokenTree tree;
  for (const auto& s : segments)
    for (std::int64_t i = s.begin; i < s.end; ++i) {
      tree.ids.push_back(0);
      tree.positions.push_back(s.prefix_length + i - s.begin);
    }
  tree.segments = std::move(segments);
  return tree;
}

const std::vector<std::vector<model::Segment>> forests = {
    {{0, 1, -1, 0}},
    {{0, 150, -1, 0}},                                                                  // one long segment
    {{0, 7, -1, 0}, {7, 8, -1, 0}, {8, 30, -1, 0}, {30, 33, -1, 0}},                    // packed
    {{0, 11, -1, 0}, {11, 16, 0, 11}, {16, 17, 0, 11}, {17, 40, 0, 11}},                // a group
    {{0, 12, -1, 0}, {12, 15, 0, 4}, {15, 17, 1, 6}, {17, 20, 0, 12}, {20, 22, 1, 3}},  // forks inside segments
    {{0, 140, -1, 0}, {140, 290, 0, 140}, {290, 300, 0, 60}, {300, 300, 0, 10}},        // long, and an empty segment
};

const std::vector<at::ScalarType> dtypes = {at::kDouble, at::kFloat, at::kBFloat16};

}  // namespace

TEST_CASE("both versions agree on the norm and its gradients") {
  for (const auto type : dtypes) {
    for (const auto& shape : {std::vector<std::int64_t>{5, 12}, {4, 3, 7}, {0, 8}, {2, 1}}) {
      const auto x = at::randn(shape, type), w = at::randn({shape.back()}, type), grad = at::randn(shape, type);
      for (const bool unit_offset : {false, true}) {
        const model::NormSpec norm{1e-5, unit_offset};
        const auto a = cpu.rms_norm(x, w, norm), b = aten.rms_norm(x, w, norm);
        INFO(c10::toString(type) << " " << at::IntArrayRef(shape) << " offset " << unit_offset);
        CHECK(agree(a.value, b.value));
        CHECK(agree(a.scale, b.scale, type));
        auto weight_a = at::ones_like(w), weight_b = at::ones_like(w);
        CHECK(agree(cpu.rms_norm_backward(grad, x, w, norm, a.scale, {}, weight_a),
                    aten.rms_norm_backward(grad, x, w, norm, a.scale, {}, weight_b)));
        CHECK(agree(weight_a, weight_b));
        auto residual = at::full(shape, 2.0, type);
        const auto sum = aten.rms_norm_backward(grad, x, w, norm, a.scale, residual, {});
        CHECK(sum.is_same(residual));
        CHECK(agree(cpu.rms_norm_backward(grad, x, w, norm, a.scale, at::full(shape, 2.0, type), {}), residual));
      }
    }
  }
}

TEST_CASE("both versions agree on the rotation, forward and back") {
  const auto inverse = model::rope_frequencies({.theta = 100.0}, 6);
  const std::vector<std::int64_t> positions = {0, 3, 4, 70};
  const auto table = model::rope_table(inverse, positions, {.attention_factor = 1.2});
  for (const auto type : dtypes) {
    for (const auto rotation : {model::Rotation::forward, model::Rotation::backward}) {
      const auto x = at::randn({4, 3, 6}, type);
      auto a = x.clone(), b = x.clone();
      cpu.rotate(a, table, rotation);
      aten.rotate(b, table, rotation);
      CHECK(agree(a, b));
      CHECK_FALSE(a.equal(x));
    }
  }
  auto none = at::empty({0, 3, 6});
  aten.rotate(none, model::rope_table(inverse, {}), model::Rotation::forward);
}

TEST_CASE("both versions agree on gated activations and their gradients, in the place of their inputs") {
  using model::Activation;
  for (const auto act : {Activation::silu, Activation::gelu_tanh}) {
    const auto formula = [&](const at::Tensor& x) {
      return act == Activation::silu ? at::silu(x) : at::gelu(x, "tanh");
    };
    for (const auto type : dtypes) {
      for (const std::int64_t n : {0, 1, 17, 33000}) {
        const auto gate = at::randn({n}, type).mul(3), up = at::randn({n}, type), grad = at::randn({n}, type);
        auto a = at::empty_like(gate), b = gate.clone();
        cpu.gated(act, gate, up, a);
        aten.gated(act, b, up, b);
        INFO(c10::toString(type) << " " << n);
        CHECK(agree(a, b));
        CHECK(agree(a, formula(gate.to(at::kDouble)).mul(up).to(type)));
        auto gate_a = gate.clone(), gate_b = gate.clone(), up_a = up.clone(), up_b = up.clone();
        cpu.gated_backward(act, grad, gate_a, up_a);
        aten.gated_backward(act, grad, gate_b, up_b);
        CHECK(agree(gate_a, gate_b));
        CHECK(agree(up_a, up_b));
        const auto g = gate.to(at::kDouble).requires_grad_(), u = up.to(at::kDouble).requires_grad_();
        formula(g).mul(u).backward(grad.to(at::kDouble));
        CHECK(agree(gate_a, g.grad().to(type)));
        CHECK(agree(up_a, u.grad().to(type)));
      }
    }
  }
}

TEST_CASE("the norm's gradients of many rows do not depend on the number of threads") {
  const int before = at::get_num_threads();
  for (const auto type : dtypes) {
    const auto x = at::randn({1000, 96}, type), w = at::randn({96}, type), grad = at::randn({1000, 96}, type);
    std::vector<at::Tensor> found;
    for (const int threads : {1, 3}) {
      at::set_num_threads(threads);
      const auto out = cpu.rms_norm(x, w, {1e-5});
      auto weight = at::zeros_like(w);
      found.push_back(cpu.rms_norm_backward(grad, x, w, {1e-5}, out.scale, {}, weight));
      found.push_back(weight);
    }
    CHECK(found[0].equal(found[2]));
    CHECK(found[1].equal(found[3]));
    auto weight = at::zeros_like(w);
    (void)aten.rms_norm_backward(grad, x, w, {1e-5}, aten.rms_norm(x, w, {1e-5}).scale, {}, weight);
    CHECK(agree(weight.div(30), found[1].div(30)));
  }
  at::set_num_threads(before);
}

TEST_CASE("both versions take and add the same rows") {
  const auto index = at::tensor({std::int64_t{2}, std::int64_t{0}, std::int64_t{2}, std::int64_t{3}});
  for (const auto type : dtypes) {
    const auto table = at::randn({5, 3}, type);
    CHECK(cpu.rows(table, index).equal(aten.rows(table, index)));
    CHECK(aten.rows(table, index.narrow(0, 0, 0)).sizes() == at::IntArrayRef{0, 3});
    auto a = table.clone(), b = table.clone();
    const auto grad = at::randn({4, 3}, type);
    cpu.add_rows(a, index, grad);
    aten.add_rows(b, index, grad);
    CHECK(agree(a, b));
  }
}

TEST_CASE("both versions drop the same elements, about p of them") {
  const model::DropoutMask mask{.probability = 0.3, .seed = 7, .draw = 11, .module = 5};
  for (const auto type : dtypes) {
    const auto x = at::ones({41, 25}, type);
    const auto a = cpu.dropout(x, mask), b = aten.dropout(x, mask);
    CHECK(a.equal(b));
    CHECK(a.eq(0).to(at::kDouble).mean().item<double>() == Approx(0.3).margin(0.06));
    CHECK_FALSE(a.equal(aten.dropout(x, {.probability = 0.3, .seed = 7, .draw = 12, .module = 5})));
    CHECK_FALSE(a.equal(aten.dropout(x, {.probability = 0.3, .seed = 7, .draw = 11, .module = 6})));
  }
}

TEST_CASE("both versions agree on attention over any forest, with grouped queries and windows") {
  for (const auto type : dtypes) {
    for (std::size_t f = 0; f < forests.size(); ++f) {
      const auto tree = tree_of(forests[f]);
      for (const std::int64_t window : {0, 5}) {
        auto a = cpu.lay_out(model::plan_attention(tree, window), at::kCPU);
        auto b = aten.lay_out(model::plan_attention(tree, window), at::kCPU);
        if (f % 2 == 1) a.scale = b.scale = 0.3;
        if (f % 3 == 1) a.cap = b.cap = 0.8;
        for (const auto& [heads, kv] : {std::pair{4, 2}, std::pair{3, 3}, std::pair{3, 1}}) {
          const auto make = [&](int h) { return at::randn({tree.tokens(), h, 5}, type); };
          const auto q = make(heads), k = make(kv), v = make(kv), grad = make(heads);
          const auto x = cpu.attention(q, k, v, a), y = aten.attention(q, k, v, b);
          INFO(c10::toString(type) << " forest " << f << " window " << window << " heads " << heads << "/" << kv);
          CHECK(agree(x.value, y.value));
          CHECK(agree(x.log_sum, y.log_sum, type));
          const auto gx = cpu.attention_backward(grad, q, k, v, x, a),
                     gy = aten.attention_backward(grad, q, k, v, x, b);
          CHECK(agree(gx.q, gy.q));
          if (type == at::kBFloat16) continue;  // sums over hundreds of tokens, rounded by one side at every step
          CHECK(agree(gx.k, gy.k));
          CHECK(agree(gx.v, gy.v));
        }
      }
    }
  }
}
