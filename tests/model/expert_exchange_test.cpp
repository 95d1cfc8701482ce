#include <rlalgo/model/expert_exchange.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <rlalgo/model/experts.hpp>
#include <rlalgo/model/operations_for.hpp>
#include <rlalgo/model/weight_names.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

namespace {

constexpr std::int64_t hidden = 7;

model::LayerSpec layer() {
  model::LayerSpec spec;
  spec.experts = {.count = 5, .chosen = 2, .width = 3, .shared_width = 4, .normalised = true, .bias = true};
  return spec;
}

model::LayerWeights weights_of(const model::LayerSpec& spec) {
  model::DecoderConfig c;
  c.hidden_size = hidden;
  model::LayerWeights out;
  const auto fill = [&](std::string_view, auto member, std::int64_t rows, std::int64_t columns, bool bias) {
    member(out).weight = at::randn({rows, columns}, at::kDouble).requires_grad_();
    if (bias) member(out).bias = at::randn({rows}, at::kDouble).requires_grad_();
  };
  model::visit_experts(c, spec.experts, fill, fill);
  return out;
}

// Experts in other memory, which an adapter of ranks would reach over the network.
class Elsewhere final : public model::ExpertExchange {
 public:
  Elsewhere(model::LayerSpec spec, model::LayerWeights weights)
      : spec_(std::move(spec)), weights_(std::move(weights)) {}
  at::Tensor forward(std::int64_t layer, const at::Tensor& rows, const std::vector<std::int64_t>& begin) override {
    Kept& kept = kept_[layer];
    kept.rows = rows.clone();
    kept.begin = begin;
    return model::expert_rows_forward(ops_, spec_, weights_, kept.rows, begin, {}, &kept.tape);
  }
  Gradient backward(std::int64_t layer, const at::Tensor& grad, const at::Tensor& weights) override {
    const Kept kept = std::exchange(kept_[layer], {});
    return model::expert_rows_backward(ops_, spec_, weights_, [&] { return kept.rows; }, kept.begin, kept.tape, grad,
                                       weights, {});
  }
  model::LayerWeights& weights() { return weights_; }

 private:
  struct Kept {
    at::Tensor rows;
    std::vector<std::int64_t> begin;
    model::ExpertRowsTape tape;
  };
  const model::Operations& ops_ = model::operations_for(at::kCPU);
  model::LayerSpec spec_;
  model::LayerWeights weights_;
  std::map<std::int64_t, Kept> kept_;
};

}  // namespace

TEST_CASE("a layer whose experts are elsewhere has the values and gradients of one that has them, to the bit") {
  at::manual_seed(3);
  const auto& ops = model::operations_for(at::kCPU);
  const auto spec = layer();
  auto here = weights_of(spec);
  auto token_side = here;  // shares what is not an expert
  auto copy = here;
  for (auto* side : {&token_side, &copy})
    for (auto& expert : side->experts)
      for (auto* map : {&expert.gate_proj, &expert.up_proj, &expert.down_proj})
        for (auto* one : {&map->weight, &map->bias}) *one = one->detach().clone().requires_grad_();
  Elsewhere elsewhere(spec, copy);
  const auto x = at::randn({6, hidden}, at::kDouble), grad = at::randn({6, hidden}, at::kDouble);
  const c10::NoGradGuard no_grad;
  const auto routing = model::route(spec.experts, model::linear(x, here.router));
  model::ExpertTape tape, other;
  const auto y = model::experts_forward(ops, spec, here, x, routing, {}, &tape);
  const auto away = model::experts_forward(ops, spec, token_side, x, routing, {}, &other, {&elsewhere, 4});
  CHECK(away.equal(y));
  const auto grad_x = model::experts_backward(ops, spec, here, x, std::move(tape), grad, {});
  const auto router = here.router.weight.grad().clone();
  here.router.weight.mutable_grad().zero_();
  const auto grad_away =
      model::experts_backward(ops, spec, token_side, x, std::move(other), grad, {}, {}, {&elsewhere, 4});
  CHECK(grad_away.equal(grad_x));
  CHECK(here.router.weight.grad().equal(router));
  for (std::size_t e = 0; e < here.experts.size(); ++e) {
    CHECK(elsewhere.weights().experts[e].down_proj.weight.grad().equal(here.experts[e].down_proj.weight.grad()));
    CHECK(elsewhere.weights().experts[e].gate_proj.bias.grad().equal(here.experts[e].gate_proj.bias.grad()));
    CHECK_FALSE(token_side.experts[e].up_proj.weight.grad().defined());
  }
}

TEST_CASE("a rank that has some of the experts computes their rows as one that has all does") {
  at::manual_seed(4);
  const auto& ops = model::operations_for(at::kCPU);
  const auto spec = layer();
  const auto w = weights_of(spec);
  const c10::NoGradGuard no_grad;
  const auto rows = at::randn({9, hidden}, at::kDouble);
  const std::vector<std::int64_t> begin = {0, 2, 2, 5, 8, 9};
  const auto all = model::expert_rows_forward(ops, spec, w, rows, begin, {}, nullptr);
  const auto some = model::expert_rows_forward(ops, spec, w, rows.narrow(0, 2, 6), {0, 0, 3, 6}, {}, nullptr, 1);
  CHECK(some.equal(all.narrow(0, 2, 6)));
  model::ExpertRowsTape tape;
  (void)model::expert_rows_forward(ops, spec, w, rows.narrow(0, 2, 6), {0, 0, 3, 6}, {}, &tape, 1);
  const auto gradient = model::expert_rows_backward(
      ops, spec, w, [&] { return rows.narrow(0, 2, 6); }, {0, 0, 3, 6}, tape, at::randn({6, hidden}, at::kDouble),
      at::rand({6, 1}, at::kDouble), {}, 1);
  CHECK(gradient.rows.sizes() == std::vector<std::int64_t>{6, hidden});
  CHECK(gradient.weights.sizes() == std::vector<std::int64_t>{6});
  // Those of the rank have a gradient, also where no row came; those of others have none.
  CHECK_FALSE(w.experts[0].gate_proj.weight.grad().defined());
  CHECK(w.experts[1].gate_proj.weight.grad().abs().max().item<double>() == 0.0);
  CHECK(w.experts[3].gate_proj.weight.grad().abs().max().item<double>() > 0.0);
  CHECK_FALSE(w.experts[4].gate_proj.weight.grad().defined());
}
