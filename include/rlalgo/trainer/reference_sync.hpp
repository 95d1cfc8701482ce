// TR-DPO: a reference that follows the policy in steps.
//
//   after every `every`-th optimizer step:  ρ ← (1 − a)·ρ + a·π,   parameter by parameter
//
// Source: Gorbatovski et al., "Learn Your Reference Model for Real Good Alignment", arXiv 2404.09656; a → mixup, which
// is 1 for the hard update.
// The reference is part of a checkpoint, so that a resumed run compares with the same one.
// Errors: [rlalgo.trainer.24] a checkpoint lacks a tensor of the reference.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/error.hpp>
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

  void after_step(std::int64_t step, core::Metrics& /*metrics*/) override {
    if (step % config_.every != 0) return;
    const c10::AutoGradMode no_gradient(false);
    for (std::size_t i = 0; i < reference_.size(); ++i)
      reference_[i].second.mul_(1.0 - config_.mixup).add_(policy_[i].second, config_.mixup);
  }

  void save(const std::filesystem::path& directory) const override {
    std::vector<model::NamedTensor> tensors;
    for (const auto& [name, value] : reference_) tensors.emplace_back(name, value.detach());
    model::write_safetensors(directory / file, std::move(tensors));
  }

  void restore(const std::filesystem::path& directory) override {
    const c10::AutoGradMode no_gradient(false);
    const auto stored = model::read_safetensors(directory / file);
    for (auto& [name, value] : reference_) {
      const auto found = stored.find(name);
      if (found == stored.end())
        core::raise("trainer", 24,
                    {.what = "the checkpoint lacks a tensor of the synced reference",
                     .found = "no tensor " + name,
                     .where = (directory / file).string(),
                     .remedy = "resume with the settings that the run was started with"});
      value.copy_(found->second);
    }
  }

 private:
  static constexpr const char* file = "reference.safetensors";
  Config config_;
  Tensors policy_, reference_;
};

}  // namespace rlalgo::trainer
