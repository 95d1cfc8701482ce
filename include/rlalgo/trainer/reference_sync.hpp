// TR-DPO: a reference that follows the policy in steps.
//
//   after every `every`-th optimizer step:  ρ ← (1 − a)·ρ + a·π,   parameter by parameter
//
// Source: Gorbatovski et al., "Learn Your Reference Model for Real Good Alignment", arXiv 2404.09656; a → mixup, which
// is 1 for the hard update.
// The reference is part of a checkpoint, so that a resumed run compares with the same one.
// Where policy and reference are sharded over the ranks (distributed/sharded_weights.hpp), each rank updates its own; the file
// is the same, and goes with any number of ranks.
// Errors: [rlalgo.trainer.24] a checkpoint lacks a tensor of the reference.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/flat_unit.hpp>
#include <rlalgo/distributed/sharded_weights.hpp>
#include <rlalgo/model/lent_weights.hpp>
#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/tensor/tensor.hpp>
#include <rlalgo/trainer/companion.hpp>

namespace rlalgo::trainer {

class ReferenceSync final : public Companion {
 public:
  struct Config {
    std::int64_t every = 512;  // optimizer steps
    double mixup = 0.6;        // a
  };
  using Tensors = std::vector<std::pair<std::string, tensor::Tensor>>;

  // Tensors of the policy and of the reference, in the same order.
  ReferenceSync(Config config, Tensors policy, Tensors reference)
      : config_(config), policy_(std::move(policy)), reference_(std::move(reference)) {}
  // The same, sharded: `shards` holds `reference`, as a frozen_copy() of what `policy` holds. All ranks together.
  ReferenceSync(Config config, std::shared_ptr<distributed::ShardedWeights> policy,
                std::shared_ptr<distributed::ShardedWeights> shards, Tensors reference)
      : config_(config),
        reference_(std::move(reference)),
        policy_shards_(std::move(policy)),
        shards_(std::move(shards)) {}

  void after_step(std::int64_t step, core::Metrics& /*metrics*/) override {
    if (step % config_.every != 0) return;
    if (shards_ != nullptr) return policy_shards_->blend_into(*shards_, config_.mixup);
    const c10::AutoGradMode no_gradient(false);
    for (std::size_t i = 0; i < reference_.size(); ++i)
      reference_[i].second.mul_(1.0 - config_.mixup).add_(policy_[i].second, config_.mixup);
  }

  void save(const std::filesystem::path& directory) const override {
    model::PendingTensors tensors;
    for (const auto& [name, value] : reference_)
      tensors.push_back({name, value.scalar_type(), value.sizes().vec(), [this, value = value] {
                           return (shards_ != nullptr ? shards_->whole(value) : value).detach();
                         }});
    const auto write = [&] { model::write_pending_safetensors(directory / file, std::move(tensors)); };
    shards_ != nullptr ? shards_->fetch_within(write) : write();
  }

  void restore(const std::filesystem::path& directory) override {
    const c10::AutoGradMode no_gradient(false);
    const model::SafetensorsFile stored(directory / file);
    for (auto& [name, value] : reference_)
      if (!stored.entries().contains(name))
        core::raise("trainer", 24,
                    {.what = "the checkpoint lacks a tensor of the synced reference",
                     .found = "no tensor " + name,
                     .where = (directory / file).string(),
                     .remedy = "resume with the settings that the run was started with"});
    if (shards_ != nullptr) return shards_->load([&](const std::string& name) { return stored.map(name); });
    for (auto& [name, value] : reference_) value.copy_(stored.map(name));
  }

 private:
  static constexpr const char* file = "reference.safetensors";
  Config config_;
  Tensors policy_, reference_;
  std::shared_ptr<distributed::ShardedWeights> policy_shards_, shards_;  // null: whole
};

}  // namespace rlalgo::trainer
