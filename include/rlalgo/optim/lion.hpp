// Lion: every element moves by the learning rate, up or down, as the sign of a momentum says.
//
//   u ← β₁m + (1 − β₁)g;   p ← p·(1 − lr·λ) − lr·sign(u);   m ← β₂m + (1 − β₂)g
//
// Source: Chen et al., "Symbolic Discovery of Optimization Algorithms", arXiv 2302.06675, algorithm 2; in the order of bitsandbytes'
// Lion, which transformers runs as `lion_32bit`, with its betas from adam_beta1 and adam_beta2 (0.9 and 0.999: the paper's are 0.9 and
// 0.99). λ applies where model::Parameter::weight_decay is set. p is the master of a parameter (master_weight.hpp). m has its dtype
// and shape; a parameter without gradient in a step is left alone. Element-wise: it serves for shards of parameters, too.
//
// Errors: [rlalgo.optim.1] a checkpoint's state does not fit the parameters.
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

struct LionConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double weight_decay = 0.0;
};

class Lion {
 public:
  using Config = LionConfig;
  static constexpr Hooks hooks{.set_momentum = true, .clips_on_device = true, .set_rates = true};

  // Parameters that do not require grad are not trained and have no state.
  explicit Lion(std::vector<model::Parameter> parameters, LionConfig config = {});

  void step(double learning_rate);

  // Where all parameters lie on one device that is not the CPU.
  [[nodiscard]] bool clips_on_device() const;
  void step(double learning_rate, const DeviceClip& clip);

  // β₁ from the next update on.
  void set_momentum(double beta1) { config_.beta1 = beta1; }

  // Factors of the rate by the names of parameters, from the next update on.
  void set_rates(const Rates& rates);

  void zero_grad();

  // <parameter>.exp_avg, and .master where it is separate; sharing memory with the optimizer.
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> state() const;

  // All or nothing: on an error the state is as before.
  void load_state(const std::map<std::string, Tensor>& state);

 private:
  struct Entry {
    model::Parameter parameter;
    MasterWeight weight;
    Tensor exp_avg;     // like the master
    double rate = 1.0;  // times that of the schedule
  };

  void update(double learning_rate, const DeviceClip* clip);

  LionConfig config_;
  std::vector<Entry> entries_;
};

}  // namespace rlalgo::optim

#ifndef RLALGO_COMPILED
#include <rlalgo/optim/detail/lion_impl.hpp>
#endif
