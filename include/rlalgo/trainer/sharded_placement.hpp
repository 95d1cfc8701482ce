// Trained parameters sharded over the ranks of a team (distributed/sharded_weights.hpp). The optimizer of a rank updates the
// parts of tensors that lie in its shards, one after the other in flat order, so its state is sharded, too.
//
// A checkpoint has a file optimizer-<i>-of-<n>.safetensors of every shard, written by the first rank that holds it; it can be
// resumed on any number of ranks, sharded or not. The model is written by rank 0, which gets it tensor
// by tensor.
//
// Errors: [rlalgo.trainer.43] an optimizer whose state is of whole tensors; those of placement.hpp.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/distributed/sharded_weights.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/optim/device_clip.hpp>
#include <rlalgo/trainer/placement.hpp>

namespace rlalgo::trainer {

class ShardedPlacement final : public Placement {
 public:
  ShardedPlacement(std::shared_ptr<distributed::ShardedWeights> weights, std::shared_ptr<distributed::World> world)
      : weights_(std::move(weights)), world_(std::move(world)) {}

  [[nodiscard]] std::vector<model::Parameter> parameters() override { return weights_->parameters(); }
  RLALGO_INLINE void require_same_start() override;
  [[nodiscard]] RLALGO_INLINE double reduce_gradients(double max_norm, double factor = 1.0) override;
  // Where all shards lie on one device that is not the CPU.
  [[nodiscard]] RLALGO_INLINE bool clips_on_device() const override;
  [[nodiscard]] RLALGO_INLINE optim::DeviceClip reduce_on_device(double max_norm, double factor,
                                                                 std::span<const tensor::Tensor> losses) override;
  void updated() override { weights_->updated(); }
  // shards: transfers of the team; shards_wait: of it, what this rank had to wait for. experts, experts_wait: the same of experts' rows.
  [[nodiscard]] RLALGO_INLINE std::vector<std::pair<std::string, double>> seconds() override;
  RLALGO_INLINE void load_weights(const std::filesystem::path& directory) override;
  [[nodiscard]] bool saves_together() const override { return true; }
  // What is not one number for each element would be another state on another number of ranks. [rlalgo.trainer.43]
  RLALGO_INLINE void require_divisible(const State& state, bool needs_whole = false) override;
  RLALGO_INLINE void save_model(const std::function<void()>& write) override;
  RLALGO_INLINE void save_optimizer(const std::filesystem::path& directory, const State& state) override;
  [[nodiscard]] RLALGO_INLINE std::map<std::string, tensor::Tensor> load_optimizer(
      const std::filesystem::path& directory, const State& own) override;

 private:
  // What of each parameter is this rank's; `first_only`: where it is the first rank that holds it.
  [[nodiscard]] ParameterRanges parts(bool first_only = false);

  std::shared_ptr<distributed::ShardedWeights> weights_;
  std::shared_ptr<distributed::World> world_;
  double busy_ = 0.0, waited_ = 0.0, expert_busy_ = 0.0, expert_waited_ = 0.0;  // at the last call of seconds()
};

}  // namespace rlalgo::trainer

#ifndef RLALGO_COMPILED
#include <rlalgo/trainer/detail/sharded_placement_impl.hpp>
#endif
