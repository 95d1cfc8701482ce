// RMSprop: gradients by the root of a running mean of their squares.
//
//   g ← g + λp;   v ← αv + (1 − α)g²;   centered: a ← a + (1 − α)(g − a), d = √(v − a²) + ε, else d = √v + ε
//   without μ: p ← p − lr·g/d;   with it: b ← μb + g/d, p ← p − lr·b
//
// Source: Hinton, "Neural Networks for Machine Learning", lecture 6e; centered: Graves, arXiv 1308.0850; as torch.optim.RMSprop computes
// it, which transformers runs as `rmsprop`: the decay is part of the gradient. λ applies where model::Parameter::weight_decay is set. p
// is the master of a parameter (master_weight.hpp); v, a and b have its dtype and shape; a parameter without gradient in a step is left
// alone. Element-wise: it serves for shards of parameters, too.
//
// Errors: [rlalgo.optim.1] a checkpoint's state does not fit the parameters; (usage) [.8] a momentum that is moved, where there is none.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/model/policy.hpp>
#include <rlalgo/optim/concept.hpp>
#include <rlalgo/optim/device_clip.hpp>
#include <rlalgo/optim/master_weight.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::optim {

struct RmsPropConfig {
  double alpha = 0.99;
  double epsilon = 1e-8;
  bool centered = false;
  std::optional<double> momentum = std::nullopt;  // none: no buffers
  double weight_decay = 0.0;
};

class RmsProp {
 public:
  using Config = RmsPropConfig;
  static constexpr Hooks hooks{.set_momentum = true, .clips_on_device = true, .set_rates = true};

  // Parameters that do not require grad are not trained and have no state.
  explicit RmsProp(std::vector<model::Parameter> parameters, RmsPropConfig config = {});

  void step(double learning_rate);

  // On another device than the CPU the clip is applied there, and the host waits for nothing (device_clip.hpp).
  [[nodiscard]] bool clips_on_device() const;
  void step(double learning_rate, const DeviceClip& clip);

  // μ from the next update on, where there is one.
  void set_momentum(double momentum);

  // Factors of the rate by the names of parameters, from the next update on.
  void set_rates(const Rates& rates);

  void zero_grad();

  // <parameter>.square_avg, .grad_avg where it is centered, .momentum_buffer with a momentum, .master where it is separate. They share memory with the optimizer.
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> state() const;

  // All or nothing: on an error the state is as before.
  void load_state(const std::map<std::string, Tensor>& state);

 private:
  struct Entry {
    model::Parameter parameter;
    MasterWeight weight;
    Tensor square;      // like the master
    Tensor mean;        // where it is centered
    Tensor buffer;      // with μ
    double rate = 1.0;  // times that of the schedule
  };

  // `clip` may be null.
  void update(double learning_rate, const DeviceClip* clip);

  RmsPropConfig config_;
  std::vector<Entry> entries_;
};

}  // namespace rlalgo::optim

#ifndef RLALGO_COMPILED
#include <rlalgo/optim/detail/rmsprop_impl.hpp>
#endif
