#include <rlalgo/model/experts.hpp>

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <rlalgo/model/aten_operations.hpp>
#include <rlalgo/model/operations_for.hpp>
#include <rlalgo/model/weight_names.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

namespace {

constexpr std::int64_t hidden = 7;

model::LayerSpec spec_of(bool normalised, std::int64_t shared) {
  model::LayerSpec spec;
  spec.experts = {.count = 5, .chosen = 2, .width = 3, .shared_width = shared, .normalised = normalised};
  return spec;
}

model::LayerWeights weights_of(const model::LayerSpec& spec) {
  model::DecoderConfig c;
  c.hidden_size = hidden;
  model::LayerWeights out;
  const auto fill = [&](std::string_view, auto member, std::int64_t rows, std::int64_t columns, bool) {
    member(out).weight = at::randn({rows, columns}, at::kDouble).requires_grad_();
  };
  model::visit_experts(c, spec.experts, fill, fill);
  return out;
}

std::vector<at::Tensor> parameters(model::LayerWeights& w, const model::LayerSpec& spec) {
  model::DecoderConfig c;
  c.hidden_size = hidden;
  std::vector<at::Tensor> out;
  const auto add = [&](std::string_view, auto member, std::int64_t, std::int64_t, bool) {
    out.push_back(member(w).weight);
  };
  model::visit_experts(c, spec.experts, add, add);
  return out;
}

at::Tensor mlp(const at::Tensor& x, const model::GatedParts<model::Linear>& parts) {
  return at::linear(at::silu(at::linear(x, parts.gate_proj.weight)) * at::linear(x, parts.up_proj.weight),
                    parts.down_proj.weight);
}

// The formula, row by row, from differentiable operations.
at::Tensor reference(const at::Tensor& x, const model::LayerWeights& w, const model::LayerSpec& spec) {
  std::vector<at::Tensor> rows;
  for (std::int64_t i = 0; i < x.size(0); ++i) {
    const at::Tensor p = at::linear(x[i], w.router.weight).softmax(0);
    const auto [value, index] = p.topk(spec.experts.chosen);
    const at::Tensor c = spec.experts.normalised ? value / value.sum() : value;
    at::Tensor y = at::zeros({hidden}, at::kDouble);
    for (std::int64_t j = 0; j < spec.experts.chosen; ++j)
      y = y + c[j] * mlp(x[i], w.experts[static_cast<std::size_t>(index[j].item<std::int64_t>())]);
    if (spec.experts.shared_width > 0) y = y + at::linear(x[i], w.shared_gate.weight).sigmoid() * mlp(x[i], w.shared);
    rows.push_back(y);
  }
  return at::stack(rows);
}

}  // namespace

TEST_CASE("experts equal their formula, values and gradients, with every operations") {
  const model::AtenOperations aten;
  for (const model::Operations* ops : {&model::operations_for(at::kCPU), static_cast<const model::Operations*>(&aten)})
    for (const bool normalised : {false, true})
      for (const std::int64_t shared : {0, 4}) {
        INFO("normalised " << normalised << ", shared " << shared);
        at::manual_seed(3);
        const auto spec = spec_of(normalised, shared);
        auto w = weights_of(spec);
        const auto x = at::randn({6, hidden}, at::kDouble).requires_grad_();
        const auto expected = reference(x, w, spec);
        // Of the probabilities, too: what a loss on the router adds.
        const auto strength = at::randn({6, 5}, at::kDouble);
        const auto grad = at::randn_like(expected);
        ((expected * grad).sum() + (at::linear(x, w.router.weight).softmax(1) * strength).sum()).backward();
        std::vector<at::Tensor> gradients;
        for (const auto& one : parameters(w, spec)) {
          gradients.push_back(one.grad().defined() ? one.grad().clone() : at::zeros_like(one));
          one.mutable_grad() = at::Tensor();
        }
        const c10::NoGradGuard no_grad;
        model::ExpertTape tape;
        const auto routing = model::route(spec.experts, model::linear(x.detach(), w.router));
        const auto y = model::experts_forward(*ops, spec, w, x.detach(), routing, {}, &tape);
        CHECK(y.allclose(expected, 1e-10, 1e-10));
        CHECK(model::experts_forward(*ops, spec, w, x.detach(), routing, {}, nullptr).equal(y));
        const auto grad_x = model::experts_backward(*ops, spec, w, x.detach(), std::move(tape), grad, {}, strength);
        CHECK(grad_x.allclose(x.grad(), 1e-9, 1e-9));
        std::size_t i = 0;
        for (const auto& one : parameters(w, spec)) {
          // Also where no token passed the expert: an optimizer decays all alike.
          REQUIRE(one.grad().defined());
          CHECK(one.grad().allclose(gradients[i++], 1e-9, 1e-9));
        }
      }
}

TEST_CASE("a row's result is its own, whatever is computed beside it") {
  at::manual_seed(4);
  const c10::NoGradGuard no_grad;
  const auto spec = spec_of(true, 4);
  const auto w = weights_of(spec);
  const auto x = at::randn({9, hidden}, at::kDouble);
  const auto& ops = model::operations_for(at::kCPU);
  const auto given = [&](const at::Tensor& rows) {
    return model::experts_forward(ops, spec, w, rows, model::route(spec.experts, model::linear(rows, w.router)), {},
                                  nullptr);
  };
  const auto all = given(x);
  for (std::int64_t i = 0; i < 9; ++i) CHECK(given(x.narrow(0, i, 1))[0].allclose(all[i], 1e-12, 1e-12));
}

TEST_CASE("of equal probabilities the first experts are chosen, and no token is dropped") {
  const auto routing = model::route(spec_of(true, 0).experts, at::zeros({300, 5}));
  CHECK(routing.experts.equal(at::tensor({std::int64_t{0}, std::int64_t{1}}).expand({300, 2})));
  CHECK(routing.weights.allclose(at::full({300, 2}, 0.5)));
  const auto groups = model::group_by_expert(routing.experts, 5);
  CHECK(groups.begin == std::vector<std::int64_t>{0, 300, 600, 600, 600, 600});
  CHECK(groups.pair.index_select(0, groups.place).equal(at::arange(600)));
  CHECK(groups.token[300].item<std::int64_t>() == 0);
}
