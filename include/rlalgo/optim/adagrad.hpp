// Adagrad: every element at a rate that falls with the squares of its gradients so far.
//
//   g ← g + λp;   s ← s + g²;   p ← p − lr/(1 + (t − 1)η) · g/(√s + ε)
//
// Source: Duchi, Hazan & Singer, "Adaptive Subgradient Methods", JMLR 12 (2011), as torch.optim.Adagrad computes it, which transformers
// runs as `adagrad`: the decay is part of the gradient. η: lr_decay, beside the schedule. λ applies where model::Parameter::weight_decay
// is set. p is the master of a parameter (master_weight.hpp); s has its dtype and shape; a parameter without gradient in a step is left
// alone and its t does not advance. Element-wise: it serves for shards of parameters, too.
//
// Errors: [rlalgo.optim.1] a checkpoint's state does not fit the parameters; (usage) [.8] a momentum that is moved: there is none.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/model/policy.hpp>
#include <rlalgo/optim/concept.hpp>
#include <rlalgo/optim/device_clip.hpp>
#include <rlalgo/optim/master_weight.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::optim {

struct AdagradConfig {
  double lr_decay = 0.0;
  double epsilon = 1e-10;
  double weight_decay = 0.0;
};

class Adagrad {
 public:
  using Config = AdagradConfig;
  static constexpr Hooks hooks{.set_momentum = true, .clips_on_device = true, .set_rates = true};

  // Parameters that do not require grad are not trained and have no state.
  explicit Adagrad(std::vector<model::Parameter> parameters, AdagradConfig config = {});

  void step(double learning_rate);

  // On another device than the CPU the clip is applied there, and the host waits for nothing (device_clip.hpp).
  [[nodiscard]] bool clips_on_device() const;
  void step(double learning_rate, const DeviceClip& clip);

  // Raises: there is none.
  void set_momentum(double momentum);

  // Factors of the rate by the names of parameters, from the next update on.
  void set_rates(const Rates& rates);

  void zero_grad();

  // <parameter>.sum and .step, .master where it is separate. They share memory with the optimizer.
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> state() const;

  // All or nothing: on an error the state is as before.
  void load_state(const std::map<std::string, Tensor>& state);

 private:
  struct Entry {
    model::Parameter parameter;
    MasterWeight weight;
    Tensor sum;         // like the master
    Tensor updates;     // [] float32 where the master is: t
    double rate = 1.0;  // times that of the schedule
  };

  // `clip` may be null.
  void update(double learning_rate, const DeviceClip* clip);

  AdagradConfig config_;
  std::vector<Entry> entries_;
};

}  // namespace rlalgo::optim

#ifndef RLALGO_COMPILED
#include <rlalgo/optim/detail/adagrad_impl.hpp>
#endif
