// The tensors of a decoder as they are sharded: each memory once, by layer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::distributed::detail {

using tensor::Tensor;

// Layer of a weight, counted from 1; 0: outside of the layers.
inline std::size_t group_of(const std::string& name) {
  static const std::string prefix = "model.layers.";
  return name.starts_with(prefix) ? std::stoul(name.substr(prefix.size())) + 1 : 0;
}

// Number of the expert whose weight has such a name; none: of something else.
inline std::optional<std::int64_t> expert_of(const std::string& name) {
  static const std::string mark = ".experts.";
  const std::size_t found = name.find(mark);
  if (found == std::string::npos || name[found + mark.size()] < '0' || name[found + mark.size()] > '9')
    return std::nullopt;
  return std::stoll(name.substr(found + mark.size()));
}

// Sum and absolute sum, a little at a time.
inline std::pair<double, double> sums_of(const Tensor& value) {
  constexpr std::int64_t most = std::int64_t{1} << 20U;
  const Tensor flat = value.detach().view({-1});
  double sum = 0.0, absolute = 0.0;
  for (std::int64_t at = 0; at < flat.numel(); at += most) {
    const Tensor part = flat.narrow(0, at, std::min(most, flat.numel() - at)).to(at::kDouble);
    sum += part.sum().item<double>();
    absolute += part.abs().sum().item<double>();
  }
  return {sum, absolute};
}

// visit(name, tensor, role) for every tensor of a decoder's weights, each memory once.
template <class Visit>
void visit_memory(const model::DecoderConfig& config, const model::DecoderWeights& weights, const Visit& visit) {
  std::set<const void*> seen;
  const auto once = [&](const std::string& name, const Tensor& value, model::WeightRole role) {
    if (value.defined() && value.numel() > 0 && seen.insert(value.storage().unsafeGetStorageImpl()).second)
      visit(name, value, role);
  };
  model::DecoderConfig untied = config;
  untied.tied_embeddings = false;
  model::visit_weights(untied, weights,
                       [&](const std::string& name, const Tensor& value, const auto&, model::WeightRole role) {
                         once(name, value, role);
                       });
  model::visit_loras(config, weights, [&](const std::string& path, const model::Lora& lora, const Tensor&) {
    once(path + ".lora_A.weight", lora.a, model::WeightRole::matrix);
    once(path + ".lora_B.weight", lora.b, model::WeightRole::matrix);
    once(path + ".lora_magnitude_vector", lora.magnitude, model::WeightRole::matrix);
  });
}

}  // namespace rlalgo::distributed::detail
