#include <rlalgo/model/expert_adapter.hpp>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <support/catch.hpp>

using namespace rlalgo;

namespace {

constexpr std::int64_t count = 3, rank = 2, hidden = 5, width = 4;

model::ExpertSpec spec_of(bool in_turn) {
  model::ExpertSpec spec{.count = count, .chosen = 1, .width = width};
  spec.joined_files = in_turn;
  return spec;
}

model::LayerWeights weights_of() {
  at::manual_seed(7);
  model::LayerWeights w;
  w.experts.resize(count);
  for (auto& expert : w.experts) {
    expert.gate_proj.weight = at::randn({width, hidden}, at::kDouble);
    expert.up_proj.weight = at::randn({width, hidden}, at::kDouble);
    expert.down_proj.weight = at::randn({hidden, width}, at::kDouble);
  }
  w.all_gate_up.lora = {.a = at::randn({count * rank, hidden}, at::kDouble).requires_grad_(),
                        .b = at::randn({2 * width, rank * count}, at::kDouble).requires_grad_(),
                        .scale = 0.7};
  return w;
}

// What PEFT adds to the parameter [E, 2I, H].
at::Tensor delta(const model::Lora& lora) {
  return at::einsum("ore,eri->eoi", {lora.b.reshape({2 * width, rank, count}), lora.a.reshape({count, rank, hidden})}) *
         lora.scale;
}

}  // namespace

TEST_CASE("an expert's part of an adapter is what PEFT adds to it, gate above up or in turn") {
  for (const bool in_turn : {false, true}) {
    const auto w = weights_of();
    const auto expected = delta(w.all_gate_up.lora).detach();
    const c10::NoGradGuard no_grad;
    const model::AdaptedExperts experts(spec_of(in_turn), w);
    for (std::int64_t e = 0; e < count; ++e) {
      const auto whole = expected.select(0, e);
      const auto product = [](const model::Linear& map) { return at::mm(map.lora.b, map.lora.a) * map.lora.scale; };
      const auto gate = in_turn ? whole.slice(0, 0, 2 * width, 2) : whole.narrow(0, 0, width);
      const auto up = in_turn ? whole.slice(0, 1, 2 * width, 2) : whole.narrow(0, width, width);
      CHECK(product(experts.gate(static_cast<std::size_t>(e))).allclose(gate, 1e-12, 1e-12));
      CHECK(product(experts.up(static_cast<std::size_t>(e))).allclose(up, 1e-12, 1e-12));
      CHECK_FALSE(experts.down(static_cast<std::size_t>(e)).lora.defined());
    }
  }
}

TEST_CASE("gradients of experts' parts are added to those of the whole adapter") {
  for (const bool in_turn : {false, true}) {
    auto w = weights_of();
    const auto& all = w.all_gate_up.lora;
    const auto x = at::randn({6, hidden}, at::kDouble), g = at::randn({6, width}, at::kDouble),
               u = at::randn({6, width}, at::kDouble);
    at::Tensor loss = at::zeros({}, at::kDouble);
    const auto whole = delta(all);
    for (std::int64_t e = 0; e < count; ++e) {
      const auto mine = whole.select(0, e);
      const auto gate = in_turn ? mine.slice(0, 0, 2 * width, 2) : mine.narrow(0, 0, width);
      const auto up = in_turn ? mine.slice(0, 1, 2 * width, 2) : mine.narrow(0, width, width);
      loss = loss + (at::linear(x, gate) * g).sum() + (at::linear(x, up) * u).sum();
    }
    loss.backward();
    const auto a = all.a.grad().clone(), b = all.b.grad().clone();
    all.a.mutable_grad() = all.b.mutable_grad() = at::Tensor();
    const c10::NoGradGuard no_grad;
    const model::AdaptedExperts experts(spec_of(in_turn), w);
    for (std::size_t e = 0; e < count; ++e) {
      (void)model::linear_backward(experts.gate(e), g, x);
      (void)model::linear_backward(experts.up(e), u, x);
    }
    CHECK(all.a.grad().allclose(a, 1e-10, 1e-10));
    CHECK(all.b.grad().allclose(b, 1e-10, 1e-10));
  }
}

TEST_CASE("where an adapter is not trained, its parts are not either") {
  auto w = weights_of();
  w.all_gate_up.lora.a.requires_grad_(false);
  w.all_gate_up.lora.b.requires_grad_(false);
  const c10::NoGradGuard no_grad;
  const auto gate = model::AdaptedExperts(spec_of(false), w).gate(1);
  CHECK_FALSE(gate.lora.a.requires_grad());
  CHECK_FALSE(gate.lora.trained());
}
