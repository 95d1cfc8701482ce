#include <rlalgo/model/quantised_linear.hpp>

#include <memory>

#include <ATen/ATen.h>

#include <rlalgo/model/aten_operations.hpp>
#include <rlalgo/model/linear.hpp>

#include <support/catch.hpp>

using namespace rlalgo;
using model::WeightCode;

namespace {

double distance(const at::Tensor& a, const at::Tensor& b) { return ((a - b).norm() / b.norm()).item<double>(); }

}  // namespace

TEST_CASE("products with a quantised weight are those with the weight that it stands for, in tiles or not") {
  at::manual_seed(1);
  // The second is several tiles, of rows and of columns.
  for (const auto& [out, in] : {std::pair{20L, 37L}, {2100L, 4160L}})
    for (const WeightCode code : {WeightCode::nf4, WeightCode::fp4, WeightCode::int8}) {
      INFO(out << " x " << in << " " << model::name_of(code));
      const at::Tensor x = at::randn({6, in}), grad = at::randn({6, out}), bias = at::randn({out});
      const model::QuantisedWeight w = model::quantise(at::randn({out, in}), {.code = code}, "w");
      const at::Tensor dense = w.dense(at::kFloat);
      CHECK(distance(model::quantised_product(x, w), at::mm(x, dense.t())) < 1e-6);
      CHECK(distance(model::quantised_product(x, w, bias), at::mm(x, dense.t()) + bias) < 1e-6);
      CHECK(distance(model::quantised_input_gradient({}, grad, w), at::mm(grad, dense)) < 1e-6);
      const at::Tensor more = at::randn({6, in});
      at::Tensor sum = more.clone();
      CHECK(model::quantised_input_gradient(sum, grad, w).is_same(sum));
      CHECK(distance(sum, more + at::mm(grad, dense)) < 1e-6);
      const at::Tensor a = at::randn({3, in}), b = at::randn({out, 3});
      CHECK(distance(model::quantised_row_norm(w, a, b, 0.5), (dense + 0.5 * at::mm(b, a)).norm(2, 1)) < 1e-6);
    }
}

TEST_CASE("products are computed in the dtype that is asked for, and given in that of the input") {
  const at::Tensor weight = at::randn({32, 64}), x = at::randn({5, 64}), bias = at::randn({32});
  const model::QuantisedWeight low = model::quantise(weight, {.products = model::ProductsIn::bfloat16}, "w");
  const at::Tensor expected = at::mm(x.to(at::kBFloat16), low.dense(at::kBFloat16).t()).add_(bias).to(at::kFloat);
  const at::Tensor y = model::quantised_product(x, low, bias);
  CHECK(y.scalar_type() == at::kFloat);
  CHECK(distance(y, expected) < 5e-3);
  CHECK(y.equal(y.to(at::kBFloat16).to(at::kFloat)));
  const model::QuantisedWeight high =
      model::quantise(weight.to(at::kBFloat16), {.products = model::ProductsIn::float32}, "w");
  const at::Tensor of_low = x.to(at::kBFloat16);
  CHECK(model::quantised_product(of_low, high).scalar_type() == at::kBFloat16);
  CHECK(distance(model::quantised_product(of_low, high).to(at::kFloat),
                 at::mm(of_low.to(at::kFloat), high.dense(at::kFloat).t())) < 5e-3);
}

TEST_CASE("a map with a quantised weight and an adapter equals the map whose weight it stands for, gradients as well") {
  at::manual_seed(2);
  const model::AtenOperations operations;
  for (const bool dora : {false, true})
    for (const double dropout : {0.0, 0.3})
      for (const bool with_bias : {false, true}) {
        INFO("dora " << dora << ", dropout " << dropout << ", bias " << with_bias);
        const auto held = std::make_shared<const model::QuantisedWeight>(model::quantise(at::randn({24, 40}), {}, "w"));
        const auto make = [&](bool quantised) {
          at::manual_seed(3);
          model::Linear map{quantised ? model::stand_in({24, 40}, at::TensorOptions().dtype(at::kFloat))
                                      : held->dense(at::kFloat)};
          if (with_bias) map.bias = at::randn({24});
          map.lora = {.a = at::randn({4, 40}).requires_grad_(),
                      .b = at::randn({24, 4}).requires_grad_(),
                      .scale = 0.5,
                      .dropout = dropout};
          if (dora) map.lora.magnitude = at::rand({24}).add_(1.0).requires_grad_();
          if (quantised) map.quantised = held;
          return map;
        };
        const model::Linear whole = make(false), bits = make(true);
        at::manual_seed(4);
        const at::Tensor x = at::randn({7, 40}), grad = at::randn({7, 24}), residual = at::randn({7, 24});
        const c10::NoGradGuard no_grad;
        model::DropoutDraw draw;
        if (dropout > 0) draw = {&operations, 5, 6};
        CHECK(distance(model::linear(x, bits, draw), model::linear(x, whole, draw)) < 1e-5);
        CHECK(distance(model::linear_residual(residual, x, bits, draw),
                       model::linear_residual(residual, x, whole, draw)) < 1e-5);
        const at::Tensor ours = model::linear_backward(bits, grad, x, {}, draw),
                         theirs = model::linear_backward(whole, grad, x, {}, draw);
        CHECK(distance(ours, theirs) < 1e-5);
        CHECK(distance(bits.lora.a.grad(), whole.lora.a.grad()) < 1e-5);
        CHECK(distance(bits.lora.b.grad(), whole.lora.b.grad()) < 1e-5);
        if (dora) CHECK(distance(bits.lora.magnitude.grad(), whole.lora.magnitude.grad()) < 1e-4);
      }
  // Without an adapter, too.
  model::Linear bare{model::stand_in({24, 40}, at::TensorOptions().dtype(at::kFloat))};
  bare.quantised = std::make_shared<const model::QuantisedWeight>(model::quantise(at::randn({24, 40}), {}, "w"));
  const at::Tensor x = at::randn({3, 40}), residual = at::randn({3, 24});
  CHECK(distance(model::linear_residual(residual, x, bare),
                 residual + at::mm(x, bare.quantised->dense(at::kFloat).t())) < 1e-6);
  CHECK_FALSE(model::wants_input(bare));
}
