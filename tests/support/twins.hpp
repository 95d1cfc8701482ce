// The same parameters on the CPU and on a device whose memory the host may not touch, for tests of optimizers there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/model/policy.hpp>

#include "far_device.hpp"

namespace rlalgo::support {

inline far::Counts counted(const std::function<void()>& f) {
  const auto before = far::counts();
  f();
  return far::counts().since(before);
}

// The same parameters on two devices; gradients are given in turn.
struct Twins {
  std::vector<model::Parameter> near, far;

  explicit Twins(at::ScalarType type, const std::vector<std::vector<std::int64_t>>& shapes = {
                                          {3, 5}, {4, 5}, {5, 5}, {6, 5}, {7, 5}, {8, 5}}) {
    at::manual_seed(7);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const auto x = at::randn(shapes[i], at::kFloat).to(type);
      near.push_back(
          {.name = "p" + std::to_string(i), .value = x.clone().requires_grad_(true), .weight_decay = i % 2 == 0});
      this->far.push_back({.name = near.back().name,
                           .value = x.to(support::far::device()).requires_grad_(true),
                           .weight_decay = near.back().weight_decay});
    }
  }
  // The one numbered `without` has none; unset: the last.
  void give_gradients(double scale = 1.0, std::size_t without = ~std::size_t{0}) const {
    for (std::size_t i = 0; i < near.size(); ++i) {
      near[i].value.mutable_grad() = far[i].value.mutable_grad() = at::Tensor();
      if (i == std::min(without, near.size() - 1)) continue;
      const auto g = at::randn(near[i].value.sizes(), at::kFloat).to(near[i].value.scalar_type()).mul_(scale);
      near[i].value.mutable_grad() = g;
      far[i].value.mutable_grad() = g.to(support::far::device());
    }
  }
  static std::vector<at::Tensor> gradients(const std::vector<model::Parameter>& of) {
    std::vector<at::Tensor> out;
    for (const auto& p : of)
      if (p.value.grad().defined()) out.push_back(p.value.grad());
    return out;
  }
};

inline std::vector<at::Tensor> here(const std::vector<std::pair<std::string, at::Tensor>>& state) {
  std::vector<at::Tensor> out;
  for (const auto& [name, value] : state) out.push_back(value.to(at::kCPU));
  return out;
}

}  // namespace rlalgo::support
