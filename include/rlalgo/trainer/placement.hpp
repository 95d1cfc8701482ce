// How the trained parameters of a run lie on its ranks: whole on each, or sharded (sharded_placement.hpp). What the trainer
// does with them between the passes is asked here; what happens within a pass is the layer gate's.
//
// All ranks call the same functions together.
// Errors: [rlalgo.trainer.21] a checkpoint lacks a parameter; [.25] it has one of another shape; [.40] the ranks do not begin
// with the same weights; [.42] the optimizer's state of a parameter is not there; [.44] reduce_on_device() where it is not there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/distributed/gradient_sums.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/optim/device_clip.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::trainer {

class Placement {
 public:
  using State = std::vector<std::pair<std::string, tensor::Tensor>>;  // of an optimizer (optim/concept.hpp)

  Placement() = default;
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;
  virtual ~Placement() = default;

  // What the optimizer of this rank updates; the same at every call.
  [[nodiscard]] virtual std::vector<model::Parameter> parameters() = 0;
  // Of them; the CPU where there are none.
  [[nodiscard]] at::Device device() {
    const std::vector<model::Parameter> own = parameters();
    return own.empty() ? at::Device(at::kCPU) : own.front().value.device();
  }
  virtual void require_same_start() = 0;
  // The policy's next pass with a graph is this rank's last one before reduce_gradients(), and so is its backward pass: what that
  // has finished may be on its way to the other ranks.
  virtual void begin_last() {}
  // The gradients of parameters() are those of all ranks when it returns, clipped to this norm (0: not); the norm before that,
  // the same bits on all ranks. Before that they are multiplied by `factor`. A norm that is not finite is returned, and nothing is clipped.
  [[nodiscard]] virtual double reduce_gradients(double max_norm, double factor = 1.0) = 0;
  // The same without the host, for an optimizer that clips by itself: gradients are those of all ranks, multiplied by `factor` and not
  // clipped. `losses`: numbers on the device that must be finite, too. Where clips_on_device() says that it is there.
  [[nodiscard]] virtual bool clips_on_device() const { return false; }
  [[nodiscard]] RLALGO_INLINE virtual optim::DeviceClip reduce_on_device(double max_norm, double factor,
                                                                         std::span<const tensor::Tensor> losses);
  // The optimizer has updated parameters().
  virtual void updated() {}

  // What this rank has spent since the last call on what lies elsewhere, for the record of a step.
  [[nodiscard]] virtual std::vector<std::pair<std::string, double>> seconds() { return {}; }

  // Takes the values of all trained parameters from a directory with safetensors.
  virtual void load_weights(const std::filesystem::path& directory) = 0;
  // Whether all ranks must be there when something is saved; otherwise rank 0 saves alone.
  [[nodiscard]] virtual bool saves_together() const { return false; }
  // `write` asks for the weights (model::pending); rank 0 calls it.
  virtual void save_model(const std::function<void()>& write) { write(); }
  // Raises where the state of an optimizer of parameters() cannot lie on the ranks as they do.
  // `needs_whole`: its updates are of whole parameters.
  virtual void require_divisible(const State& /*state*/, bool /*needs_whole*/ = false) {}
  RLALGO_INLINE virtual void save_optimizer(const std::filesystem::path& directory, const State& state);
  // The state that goes with parameters(), by whichever number of ranks it was saved; `own` names it.
  [[nodiscard]] RLALGO_INLINE virtual std::map<std::string, tensor::Tensor> load_optimizer(
      const std::filesystem::path& directory, const State& own);
};

inline constexpr const char* optimizer_file = "optimizer.safetensors";

// Whole on every rank.
class WholePlacement final : public Placement {
 public:
  // Of a policy with layers on one device, and no gate of somebody else's, gradients are summed while its backward pass goes on (distributed/gradient_sums.hpp),
  // else after it. All ranks together.
  RLALGO_INLINE WholePlacement(model::Policy& policy, std::shared_ptr<distributed::World> world);
  WholePlacement(std::vector<model::Parameter> parameters, std::shared_ptr<distributed::World> world)
      : parameters_(std::move(parameters)), world_(std::move(world)) {}
  ~WholePlacement() override {
    if (sums_) sums_->leave();  // the policy may live longer than the ranks' world
  }
  WholePlacement(const WholePlacement&) = delete;
  WholePlacement& operator=(const WholePlacement&) = delete;

  [[nodiscard]] std::vector<model::Parameter> parameters() override { return parameters_; }
  RLALGO_INLINE void require_same_start() override;
  void begin_last() override {
    if (sums_) sums_->begin_last();
  }
  [[nodiscard]] RLALGO_INLINE double reduce_gradients(double max_norm, double factor = 1.0) override;
  // Where all parameters lie on one device that is not the CPU.
  [[nodiscard]] RLALGO_INLINE bool clips_on_device() const override;
  [[nodiscard]] RLALGO_INLINE optim::DeviceClip reduce_on_device(double max_norm, double factor,
                                                                 std::span<const tensor::Tensor> losses) override;
  // sums: transfers and additions of gradients; sums_wait: of it, what this rank had to wait for.
  [[nodiscard]] RLALGO_INLINE std::vector<std::pair<std::string, double>> seconds() override;
  RLALGO_INLINE void load_weights(const std::filesystem::path& directory) override;

 private:
  // Those of all ranks, multiplied by `factor`.
  [[nodiscard]] std::vector<tensor::Tensor> reduced(double factor);

  std::vector<model::Parameter> parameters_;
  std::shared_ptr<distributed::World> world_;
  std::shared_ptr<distributed::GradientSums> sums_;  // null: after the passes
  double busy_ = 0.0, waited_ = 0.0;                 // at the last call of seconds()
};

// Elements of a parameter, in its flat order.
struct ParameterRange {
  std::int64_t begin = 0, end = 0;
};
using ParameterRanges = std::map<std::string, ParameterRange>;

// An optimizer's state of parts of parameters in a file of its own; of what, it says in its metadata.
void write_optimizer_part(const std::filesystem::path& file, const Placement::State& state,
                          const ParameterRanges& parts);
// The state of these parts, gathered from what a directory has: optimizer.safetensors, or parts. A tensor of a state belongs to
// the parameter that its name begins with, before a dot; one without dimensions is of all of its parts. [rlalgo.trainer.42]
[[nodiscard]] std::map<std::string, tensor::Tensor> read_optimizer_parts(const std::filesystem::path& directory,
                                                                         const Placement::State& own,
                                                                         const ParameterRanges& parts);

// The trained parameters in a directory with safetensors: see(parameter, values of its whole shape). [rlalgo.trainer.21, .25]
void read_parameters(const std::filesystem::path& directory,
                     const std::map<std::string, std::vector<std::int64_t>>& shapes,
                     const std::function<void(const std::string&, const tensor::Tensor&)>& see);

}  // namespace rlalgo::trainer

#ifndef RLALGO_COMPILED
#include <rlalgo/trainer/detail/placement_impl.hpp>
#endif
