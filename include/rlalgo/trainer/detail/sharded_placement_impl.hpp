// Definitions of sharded_placement.hpp.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/flat_unit.hpp>
#include <rlalgo/trainer/detail/placement_impl.hpp>
#include <rlalgo/trainer/sharded_placement.hpp>

namespace rlalgo::trainer {

RLALGO_INLINE void ShardedPlacement::require_same_start() {
  const std::vector<double>& own = weights_->sums();
  const std::vector<std::string> all = world_->gather("weights at the start", distributed::to_bytes(own));
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r] != all[static_cast<std::size_t>(world_->rank())])
      core::raise("trainer", 40,
                  {.what = "the ranks do not begin with the same weights",
                   .where = "rank " + std::to_string(r) + " and rank " + std::to_string(world_->rank()),
                   .remedy = "give all ranks the same files, and the same kind of processor"});
}

RLALGO_INLINE double ShardedPlacement::reduce_gradients(double max_norm, double factor) {
  const c10::NoGradGuard no_grad;
  const double norm = std::abs(factor) * std::sqrt(weights_->reduce_gradients());
  double coefficient = factor;
  if (max_norm > 0 && std::isfinite(norm)) coefficient *= std::min(1.0, max_norm / (norm + 1e-6));
  if (coefficient != 1.0)
    for (const model::Parameter& p : parameters())
      if (p.value.grad().defined()) p.value.grad().mul_(coefficient);
  return norm;
}

RLALGO_INLINE bool ShardedPlacement::clips_on_device() const {
  const std::vector<model::Parameter> own = weights_->parameters();
  return !own.empty() && std::all_of(own.begin(), own.end(), [&](const model::Parameter& p) {
    const at::Device device = p.value.device();
    return !device.is_cpu() && device == own.front().value.device();
  });
}

RLALGO_INLINE optim::DeviceClip ShardedPlacement::reduce_on_device(double max_norm, double factor,
                                                                   std::span<const tensor::Tensor> losses) {
  const c10::NoGradGuard no_grad;
  const tensor::Tensor norm = weights_->reduce_gradients_there().sqrt().mul_(std::abs(factor));
  if (factor != 1.0)
    for (const model::Parameter& p : parameters())
      if (p.value.grad().defined()) p.value.grad().mul_(factor);
  return optim::device_clip_of(norm, max_norm, losses);
}

RLALGO_INLINE std::vector<std::pair<std::string, double>> ShardedPlacement::seconds() {
  std::vector<std::pair<std::string, double>> out;
  const auto add = [&](const std::string& name, double now, double& before) {
    out.emplace_back(name, now - std::exchange(before, now));
  };
  if (weights_->team().size() > 1) {
    add("shards", weights_->team().busy(), busy_);
    add("shards_wait", weights_->waited(), waited_);
  }
  if (const distributed::ExpertGroup* experts = weights_->expert_group()) {
    add("experts", experts->team().busy(), expert_busy_);
    add("experts_wait", experts->waited(), expert_waited_);
  }
  return out;
}

RLALGO_INLINE void ShardedPlacement::load_weights(const std::filesystem::path& directory) {
  std::map<std::string, std::vector<std::int64_t>> shapes;
  std::map<std::string, std::pair<const distributed::FlatUnit*, const distributed::FlatUnit::Entry*>> places;
  weights_->visit([&](const distributed::FlatUnit& unit) {
    if (!unit.trained()) return;
    for (const distributed::FlatUnit::Entry& entry : unit.entries()) {
      shapes[entry.name] = entry.value.sizes().vec();
      places[entry.name] = {&unit, &entry};
    }
  });
  read_parameters(directory, shapes, [&](const std::string& name, const tensor::Tensor& stored) {
    const auto [unit, entry] = places.at(name);
    if (const auto part = unit->piece(*entry))
      unit->own().narrow(0, part->at, part->size()).copy_(stored.view({-1}).narrow(0, part->begin, part->size()));
  });
  weights_->updated();
}

RLALGO_INLINE void ShardedPlacement::save_model(const std::function<void()>& write) {
  if (world_->rank() == 0) weights_->fetch_within(write);
  world_->barrier("saving of the model");
}

RLALGO_INLINE ParameterRanges ShardedPlacement::parts(bool first_only) {
  ParameterRanges out;
  weights_->visit([&](const distributed::FlatUnit& unit, bool first) {
    if (!unit.trained() || (first_only && !first)) return;
    for (const distributed::FlatUnit::Entry& entry : unit.entries())
      if (const auto part = unit.piece(entry)) out[entry.name] = {part->begin, part->end};
  });
  return out;
}

RLALGO_INLINE void ShardedPlacement::require_divisible(const State& state, bool needs_whole) {
  if (needs_whole)
    core::raise("trainer", 43,
                {.what = "the optimizer's updates are of whole matrices, and the weights are sharded",
                 .remedy = "take optim::AdamW or optim::Lion, or keep the whole policy on every rank"});
  const ParameterRanges own = parts();
  for (const auto& [name, tensor] : state) {
    if (tensor.dim() == 0) continue;
    const auto* owner = detail::owner_of(name, own);
    if (owner != nullptr && tensor.numel() == owner->second.end - owner->second.begin) continue;
    core::raise("trainer", 43,
                {.what = "the optimizer's state does not divide into shards as its parameters do",
                 .found = name + " has " + std::to_string(tensor.numel()) + " elements",
                 .expected = "one for each element of a parameter, or no dimensions",
                 .remedy = "take optim::AdamW, or keep the whole policy on every rank"});
  }
}

RLALGO_INLINE void ShardedPlacement::save_optimizer(const std::filesystem::path& directory, const State& state) {
  const ParameterRanges own = parts(true);
  const distributed::Team& team = weights_->rounds()->team();
  if (!own.empty()) {
    char name[64];
    std::snprintf(name, sizeof name, "optimizer-%05d-of-%05d.safetensors", team.rank() + 1, team.size());
    State first;
    for (const auto& one : state)
      if (detail::owner_of(one.first, own) != nullptr) first.push_back(one);
    write_optimizer_part(directory / name, first, own);
  }
  world_->barrier("saving of the optimizer");
}

RLALGO_INLINE std::map<std::string, tensor::Tensor> ShardedPlacement::load_optimizer(
    const std::filesystem::path& directory, const State& own) {
  return read_optimizer_parts(directory, own, parts());
}

}  // namespace rlalgo::trainer
