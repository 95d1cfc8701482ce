#include <rlalgo/model/adapted_maps.hpp>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/model/operations_for.hpp>

#include <support/catch.hpp>

using namespace rlalgo;
using model::AdaptedMaps;
using model::Linear;
using Outputs = model::AdaptedMaps::Outputs;

namespace {

struct Shape {
  std::int64_t width;
  std::int64_t rank;  // 0: no adapter
  double scale = 2.0;
};

struct Kind {
  bool biased = false, quantised = false, together = false;
  double dropout = 0.0;
};

// Maps over 64 inputs. Weights in memory of one tensor, or of their own.
std::vector<Linear> maps(const std::vector<Shape>& shapes, const Kind& kind, at::ScalarType type = at::kFloat) {
  at::manual_seed(3);
  std::vector<Linear> out;
  std::int64_t rows = 0, first = 0;
  for (const Shape& shape : shapes) rows += shape.width;
  const auto weight = at::randn({rows, 64}).mul_(0.1).to(type), bias = at::randn({rows}).to(type);
  for (const Shape& shape : shapes) {
    Linear map;
    const auto part = [&](const at::Tensor& x) {
      const auto view = x.narrow(0, first, shape.width);
      return kind.together
                 ? at::empty({0}, x.options()).set_(x.storage(), view.storage_offset(), view.sizes(), view.strides())
                 : view.clone();
    };
    map.weight = part(weight);
    if (kind.biased) map.bias = part(bias);
    if (kind.quantised) {
      map.quantised = std::make_shared<model::QuantisedWeight>(
          model::quantise(map.weight, {.code = model::WeightCode::nf4, .block = 64, .nested = true}, "w"));
      map.weight = model::stand_in({shape.width, 64}, map.weight.options());
    }
    if (shape.rank > 0) {
      map.lora.a = at::randn({shape.rank, 64}).mul_(0.1).requires_grad_();
      map.lora.b = at::randn({shape.width, shape.rank}).mul_(0.1).requires_grad_();
      map.lora.scale = shape.scale;
      map.lora.dropout = kind.dropout;
      map.lora.index = static_cast<std::uint32_t>(7 + out.size());
    }
    out.push_back(std::move(map));
    first += shape.width;
  }
  return out;
}

std::vector<const Linear*> pointers(const std::vector<Linear>& of) {
  std::vector<const Linear*> out;
  for (const Linear& map : of) out.push_back(&map);
  return out;
}

// The largest difference, relative to what `b` is made of.
double distance(const at::Tensor& a, const at::Tensor& b) {
  const auto x = a.to(at::kDouble), y = b.to(at::kDouble);
  return ((x - y).norm() / y.norm().clamp_min(1e-30)).item<double>();
}

}  // namespace

TEST_CASE("maps and their adapters together give the products and the gradients of one by one") {
  const c10::NoGradGuard no_grad;
  const model::Operations& operations = model::operations_for(at::kCPU);
  const std::vector<std::vector<Shape>> groups = {{{6, 3}, {4, 3}, {4, 3}},           // k and v are a batch
                                                  {{4, 2}, {4, 2}, {4, 2}},           // all of them
                                                  {{6, 3}, {4, 0}, {4, 3}},           // k has none
                                                  {{4, 3}, {4, 2}},                   // ranks of their own
                                                  {{4, 3}, {4, 3, 0.5}},              // scales of their own
                                                  {{5, 2}},                           // one by itself
                                                  {{4, 2}, {4, 0}, {4, 2}, {4, 2}}};  // a batch behind a gap
  for (const auto& shapes : groups)
    for (const Kind kind :
         {Kind{}, Kind{.biased = true}, Kind{.together = true}, Kind{.biased = true, .together = true},
          Kind{.quantised = true}, Kind{.biased = true, .quantised = true}, Kind{.dropout = 0.3},
          Kind{.quantised = true, .dropout = 0.3}})
      for (const auto outputs : {Outputs::columns, Outputs::apart}) {
        CAPTURE(shapes.size(), shapes[0].width, kind.biased, kind.quantised, kind.together, kind.dropout,
                outputs == Outputs::apart);
        const auto together = maps(shapes, kind), single = maps(shapes, kind);
        const auto all = AdaptedMaps::of(pointers(together), at::kFloat);
        REQUIRE(all);
        std::int64_t width = 0;
        for (const Shape& shape : shapes) width += shape.width;
        // Gradients that are not there, that lie together, and one that does not.
        for (std::uint64_t pass = 0; pass < 3; ++pass) {
          if (pass == 2)
            for (const Linear* map : {&together.front(), &together.back()})
              for (const at::Tensor& leaf : {map->lora.a, map->lora.b}) leaf.mutable_grad() = leaf.grad().clone();
          const model::DropoutDraw draw{
              .operations = kind.dropout > 0 ? &operations : nullptr, .seed = 5, .draw = pass};
          const auto x = at::randn({5, 64}), grad = at::randn({5, width});
          at::Tensor ranks, grad_x;
          const auto found = all.forward(x, outputs, draw, ranks);
          REQUIRE(found.size() == shapes.size());
          std::vector<at::Tensor> grads;
          std::int64_t first = 0;
          for (std::size_t i = 0; i < single.size(); ++i) {
            CHECK(distance(found[i], model::linear(x, single[i], draw)) < 1e-5);
            if (outputs == Outputs::apart) CHECK(found[i].is_contiguous());
            const auto part = grad.narrow(1, first, shapes[i].width);
            grads.push_back(outputs == Outputs::apart ? part.clone() : part);
            grad_x = model::linear_backward(single[i], part.contiguous(), x, grad_x, draw);
            first += shapes[i].width;
          }
          CHECK(distance(all.backward(grads, x, ranks, draw), grad_x) < 1e-5);
          for (std::size_t i = 0; i < single.size(); ++i) {
            if (shapes[i].rank == 0) continue;
            CHECK(distance(together[i].lora.a.grad(), single[i].lora.a.grad()) < 1e-5);
            CHECK(distance(together[i].lora.b.grad(), single[i].lora.b.grad()) < 1e-5);
          }
        }
      }
}

TEST_CASE("what a single map's output is added to, and gradients of biases that are trained") {
  const c10::NoGradGuard no_grad;
  for (const bool quantised : {false, true})
    for (const bool biased : {false, true}) {
      CAPTURE(quantised, biased);
      const Kind kind{.biased = biased, .quantised = quantised};
      const auto one = maps({{5, 2}}, kind), other = maps({{5, 2}}, kind);
      if (biased)
        for (const Linear* map : {&one[0], &other[0]}) at::Tensor(map->bias).requires_grad_();
      const auto x = at::randn({3, 64}), residual = at::randn({3, 5}), grad = at::randn({3, 5});
      const auto all = AdaptedMaps::of({&one[0]}, at::kFloat);
      at::Tensor ranks;
      CHECK(distance(all.forward(x, Outputs::columns, {}, ranks, residual)[0],
                     model::linear_residual(residual, x, other[0])) < 1e-5);
      CHECK(distance(all.backward({grad}, x, ranks, {}), model::linear_backward(other[0], grad, x)) < 1e-5);
      if (biased) CHECK(distance(one[0].bias.grad(), other[0].bias.grad()) < 1e-6);
    }
}

TEST_CASE("in bfloat16 gradients are float32, and sums over micro-batches lose no more than one pass does") {
  const c10::NoGradGuard no_grad;
  const auto low = maps({{6, 4}, {4, 4}, {4, 4}}, {}, at::kBFloat16);
  const auto all = AdaptedMaps::of(pointers(low), at::kBFloat16);
  REQUIRE(all);
  const auto x = at::randn({64, 64}).to(at::kBFloat16), grad = at::randn({64, 14}).to(at::kBFloat16);
  const auto parts = [](const at::Tensor& of) {
    return std::vector<at::Tensor>{of.narrow(1, 0, 6), of.narrow(1, 6, 4), of.narrow(1, 10, 4)};
  };
  std::vector<at::Tensor> sums;  // of one pass
  for (const std::int64_t rows : {64, 1}) {
    for (const Linear& map : low) map.lora.a.mutable_grad() = map.lora.b.mutable_grad() = at::Tensor();
    for (std::int64_t begin = 0; begin < 64; begin += rows) {
      const auto some = x.narrow(0, begin, rows);
      at::Tensor ranks;
      const auto y = all.forward(some, Outputs::columns, {}, ranks);
      CHECK(y[0].scalar_type() == at::kBFloat16);
      (void)all.backward(parts(grad.narrow(0, begin, rows)), some, ranks, {});
    }
    for (std::size_t i = 0; i < low.size(); ++i)
      for (const at::Tensor& leaf : {low[i].lora.a, low[i].lora.b}) {
        CHECK(leaf.grad().scalar_type() == at::kFloat);
        if (rows == 64)
          sums.push_back(leaf.grad().clone());
        else
          CHECK(distance(leaf.grad(), sums[2 * i + (leaf.is_same(low[i].lora.b) ? 1 : 0)]) < 1e-6);
      }
  }
  // What float32 makes of it, with adapters that are not rounded.
  const auto high = maps({{6, 4}, {4, 4}, {4, 4}}, {}, at::kFloat);
  std::int64_t first = 0;
  for (const Linear& map : high) {
    (void)model::linear_backward(map, grad.narrow(1, first, map.weight.size(0)).to(at::kFloat), x.to(at::kFloat));
    first += map.weight.size(0);
  }
  for (std::size_t i = 0; i < high.size(); ++i) {
    CHECK(distance(sums[2 * i], high[i].lora.a.grad()) < 1e-2);
    CHECK(distance(sums[2 * i + 1], high[i].lora.b.grad()) < 1e-2);
  }
}

TEST_CASE(
    "maps that are multiplied one by one: no adapter, DoRA, weights that are trained, other dtypes; and frozen "
    "adapters") {
  const c10::NoGradGuard no_grad;
  const auto is = [](const std::vector<Linear>& of, at::ScalarType type) {
    return static_cast<bool>(AdaptedMaps::of(pointers(of), type));
  };
  CHECK(is(maps({{4, 2}, {4, 0}}, {}), at::kFloat));
  CHECK_FALSE(is(maps({{4, 0}, {4, 0}}, {}), at::kFloat));
  CHECK_FALSE(is(maps({{4, 2}}, {}), at::kHalf));
  CHECK_FALSE(is(maps({{4, 2}}, {}), at::kDouble));
  auto dora = maps({{4, 2}, {4, 2}}, {});
  dora[1].lora.magnitude = at::ones({4});
  CHECK_FALSE(is(dora, at::kFloat));
  auto trained = maps({{4, 2}, {4, 0}}, {});
  trained[1].weight.requires_grad_();
  CHECK_FALSE(is(trained, at::kFloat));
  auto none = maps({{4, 2}}, {});
  none[0].weight = at::Tensor();
  CHECK_FALSE(is(none, at::kFloat));
  CHECK_FALSE(AdaptedMaps());
  // The layer of a CPU.
  model::LayerWeights w;
  w.o_proj = maps({{4, 2}}, {})[0];
  CHECK_FALSE(model::AdaptedLayer(w, at::randn({1, 64})).output);
  // Frozen ones get no gradient, the others of a batch theirs.
  auto frozen = maps({{4, 2}, {4, 2}}, {});
  frozen[0].lora.a.requires_grad_(false);
  frozen[0].lora.b.requires_grad_(false);
  const auto all = AdaptedMaps::of(pointers(frozen), at::kFloat);
  const auto x = at::randn({3, 64}), grad = at::randn({3, 8});
  at::Tensor ranks;
  (void)all.forward(x, Outputs::columns, {}, ranks);
  (void)all.backward({grad.narrow(1, 0, 4), grad.narrow(1, 4, 4)}, x, ranks, {});
  CHECK_FALSE(frozen[0].lora.a.grad().defined());
  CHECK_FALSE(frozen[0].lora.b.grad().defined());
  const auto single = maps({{4, 2}, {4, 2}}, {});
  (void)model::linear_backward(single[1], grad.narrow(1, 4, 4), x);
  CHECK(distance(frozen[1].lora.a.grad(), single[1].lora.a.grad()) < 1e-5);
  CHECK(distance(frozen[1].lora.b.grad(), single[1].lora.b.grad()) < 1e-5);
}
