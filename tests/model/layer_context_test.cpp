#include <rlalgo/model/layer_context.hpp>

#include <ATen/ATen.h>

#include <rlalgo/model/operations_for.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

namespace {

struct Setup {
  model::DecoderConfig config;
  model::LayerSpec spec;
  model::AttentionLayout layout;

  [[nodiscard]] model::LayerContext context() const {
    return {.config = config,
            .spec = spec,
            .operations = model::operations_for(at::kCPU),
            .layout = layout,
            .rope = nullptr};
  }
};

}  // namespace

TEST_CASE("norms that a layer does not have leave values and gradients as they are") {
  const c10::NoGradGuard no_grad;
  Setup s;
  const auto x = at::randn({3, 4}), grad = at::randn({3, 4}), residual = at::randn({3, 4});
  CHECK(s.context().norm(x, {}).value.is_same(x));
  CHECK(s.context().norm_backward(grad, x, {}, {}).is_same(grad));
  CHECK(s.context().norm_backward(grad, x, {}, {}, residual.clone()).allclose(grad + residual));
  CHECK(s.context().branch_backward(grad, x, {}, {}).is_same(grad));
  s.spec.residual_scale = 0.5;
  CHECK(s.context().branch_backward(grad, x, {}, {}).allclose(grad * 0.5));
}

TEST_CASE("a layer's adapted maps are found where there are some") {
  const c10::NoGradGuard no_grad;
  const Setup s;
  CHECK(s.context().adapted_maps(&model::AdaptedLayer::output) == nullptr);
  model::Linear map{at::randn({4, 3}), {}};
  map.lora.a = at::randn({2, 3});
  map.lora.b = at::randn({4, 2});
  model::AdaptedLayer layer;
  layer.output = model::AdaptedMaps::of({&map}, at::kFloat);
  const auto context = s.context().with(layer);
  CHECK(context.adapted_maps(&model::AdaptedLayer::output) == &layer.output);
  CHECK(context.adapted_maps(&model::AdaptedLayer::down) == nullptr);
}
