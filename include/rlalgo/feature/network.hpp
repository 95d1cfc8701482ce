// The frozen network whose hidden states are the features.
//
//   hidden states at the depths d_f = ⌊fraction_f·layers⌋ → side by side → L2 → [T, D],  D = F·H
//
// depths are numbered as transformers' `hidden_states`: 0 is the embedding, `layers` is after the final norm. The pass
// stops at the deepest one and never touches the head (model/policy.hpp). A depth that occurs twice counts twice.
//   joint      the whole vector of a token has length 1 (the authors' code)
//   per_layer  the vector of every tap has length 1, the whole √F (axolotl's strided trainer)
// Source: "Energy-based fine-tuning", arXiv 2603.12248; truncation of fraction·layers as axolotl 0.19 does it.
// Errors: [rlalgo.feature.3] (usage) a fraction outside 0…1, or none; those of Policy::features.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/error.hpp>
#include <rlalgo/feature/pooling.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::feature {

using tensor::Tensor;

enum class Normalization { joint, per_layer };

// Depths of `fractions` in a network of `layers` layers. The product is rounded as Python's int() does it: 0.7·90 → 62.
[[nodiscard]] inline std::vector<std::int64_t> tap_depths(std::span<const double> fractions, std::int64_t layers) {
  std::vector<std::int64_t> out;
  for (const double fraction : fractions) {
    if (!(fraction >= 0.0 && fraction <= 1.0))
      core::raise_usage("feature", 3,
                        {.what = "a feature layer is no relative depth",
                         .found = std::to_string(fraction),
                         .expected = "from 0 (the embedding) to 1 (after the final norm)"});
    out.push_back(static_cast<std::int64_t>(fraction * static_cast<double>(layers)));
  }
  if (out.empty())
    core::raise_usage("feature", 3, {.what = "there are no feature layers", .expected = "one relative depth or more"});
  return out;
}

// What is said where relative depths that differ are one layer of this network; empty otherwise.
[[nodiscard]] inline std::string repeated_layers(std::span<const double> fractions,
                                                 const std::vector<std::int64_t>& depths) {
  const auto distinct = [](const auto& list) { return std::set(list.begin(), list.end()).size(); };
  if (distinct(depths) == distinct(fractions)) return {};
  std::string layers;
  for (const std::int64_t depth : depths) layers += (layers.empty() ? "" : ", ") + std::to_string(depth);
  return "ebft.feature_layers are the layers " + layers +
         " of this network: one that occurs more than once counts as often";
}

// The hidden states of all tokens of one tree; numbers are computed for the tokens that are asked for.
class TokenFeatures {
 public:
  TokenFeatures(std::vector<Tensor> taps, Normalization normalization)
      : taps_(std::move(taps)), normalization_(normalization) {}

  // [n, D] float64 in host memory, of these tokens.
  [[nodiscard]] Tensor of(std::span<const std::int64_t> tokens) const {
    const Tensor index =
        tensor::from_values(tokens, at::TensorOptions().dtype(at::kLong).device(taps_.front().device()));
    const auto dtype = taps_.front().scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    std::int64_t width = 0;
    for (const Tensor& tap : taps_) width += tap.size(1);
    const Tensor whole =
        tensor::empty({static_cast<std::int64_t>(tokens.size()), width}, taps_.front().options().dtype(dtype));
    std::int64_t column = 0;
    for (const Tensor& tap : taps_) {
      const Tensor part = tap.index_select(0, index).to(dtype);
      whole.narrow(1, column, tap.size(1)).copy_(normalization_ == Normalization::per_layer ? unit(part) : part);
      column += tap.size(1);
    }
    return (normalization_ == Normalization::joint ? unit(whole) : whole)
        .to(at::Device(at::kCPU), at::kDouble)
        .contiguous();
  }

  // The pooled feature of tokens that `place` maps from positions in a text to the tree.
  template <class Place>
  [[nodiscard]] std::vector<double> pooled(std::span<const Stretch> stretches, Place&& place) const {
    std::vector<double> out;
    for (const Stretch& stretch : stretches) {
      std::vector<std::int64_t> tokens;
      for (std::int64_t i = stretch.begin; i < stretch.end; ++i) tokens.push_back(place(i));
      const Tensor rows = of(tokens);  // [m, D]
      const std::int64_t width = rows.size(1);
      const double* const values = rows.const_data_ptr<double>();
      const std::size_t first = out.size();
      out.resize(first + static_cast<std::size_t>(width), 0.0);
      for (std::size_t m = 0; m < tokens.size(); ++m)
        for (std::int64_t d = 0; d < width; ++d)
          out[first + static_cast<std::size_t>(d)] += values[static_cast<std::int64_t>(m) * width + d];
      if (tokens.size() > 1)
        for (std::int64_t d = 0; d < width; ++d)
          out[first + static_cast<std::size_t>(d)] /= static_cast<double>(tokens.size());
    }
    return out;
  }

 private:
  [[nodiscard]] static Tensor unit(const Tensor& x) {
    const Tensor norm = x.mul(x).sum(1, true).sqrt();  // [n, 1]
    return x.div(norm.clamp_min(1e-12));
  }

  std::vector<Tensor> taps_;  // F × [T, H]
  Normalization normalization_;
};

class FeatureNetwork {
 public:
  FeatureNetwork(std::shared_ptr<model::Policy> network, std::vector<std::int64_t> depths,
                 Normalization normalization = Normalization::joint)
      : network_(std::move(network)), depths_(std::move(depths)), normalization_(normalization) {}

  [[nodiscard]] const std::vector<std::int64_t>& depths() const noexcept { return depths_; }

  [[nodiscard]] TokenFeatures operator()(const model::TokenTree& tree) const {
    const c10::NoGradGuard no_grad;
    return {network_->features(tree, depths_), normalization_};
  }

 private:
  std::shared_ptr<model::Policy> network_;
  std::vector<std::int64_t> depths_;
  Normalization normalization_;
};

// x/‖x‖, the vector itself where that is 0.
inline void normalize(std::vector<double>& x) {
  double squares = 0.0;
  for (const double value : x) squares += value * value;
  const double norm = std::max(std::sqrt(squares), 1e-12);
  for (double& value : x) value /= norm;
}

}  // namespace rlalgo::feature
