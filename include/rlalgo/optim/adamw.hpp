// AdamW: Adam with decoupled weight decay, bit-reproducible, its state portable by name.
//
//   m ← β₁m + (1 − β₁)g;   v ← β₂v + (1 − β₂)g²
//   p ← p·(1 − lr·λ) − lr·m̂/(√v̂ + ε),   m̂ = m/(1 − β₁ᵗ),  v̂ = v/(1 − β₂ᵗ)
//
// Source: Loshchilov & Hutter, "Decoupled Weight Decay Regularization", arXiv 1711.05101, algorithm 2. The update is
// ATen's fused kernel, which torch.optim.AdamW(fused=True) runs (`adamw_torch_fused`); bfloat16 weights with masters have one of
// our own where there are sixteen lanes (cpu/lanes.hpp), whose bits are the same. On another device than the CPU all parameters are updated by
// a few calls with lists, those with masters in pieces, whose gradients in float32 share memory. λ applies where
// model::Parameter::weight_decay is set. p is the master of a parameter (master_weight.hpp): float32 where the model
// computes in bfloat16. Moments have its dtype and shape; a parameter without gradient in a step is left alone and its
// t does not advance. Element-wise, so neither threads nor order can change a bit.
//
// Errors: [rlalgo.optim.1] a checkpoint's state does not fit the parameters; [.4] a parameter that is not contiguous.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/model/policy.hpp>
#include <rlalgo/optim/concept.hpp>
#include <rlalgo/optim/device_clip.hpp>
#include <rlalgo/optim/master_weight.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::optim {

struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  std::int64_t elements_at_once = std::int64_t{1}
                                  << 25U;  // on a device, of weights with masters: 128 MB of gradients in float32
};

class AdamW {
 public:
  using Config = AdamWConfig;
  static constexpr Hooks hooks{.set_momentum = true, .clips_on_device = true, .set_rates = true};

  // Parameters that do not require grad are not trained and have no state.
  explicit AdamW(std::vector<model::Parameter> parameters, AdamWConfig config = {});

  // One update with this learning rate, from the gradients in place.
  void step(double learning_rate);

  // Where all parameters lie on one device that is not the CPU.
  [[nodiscard]] bool clips_on_device() const;
  // Of the first parameter; the CPU where there is none.
  [[nodiscard]] at::Device device() const {
    return entries_.empty() ? at::Device(at::kCPU) : entries_.front().parameter.value.device();
  }
  void step(double learning_rate, const DeviceClip& clip);

  // β₁ from the next update on.
  void set_momentum(double beta1) { config_.beta1 = beta1; }

  // Factors of the rate by the names of parameters, from the next update on.
  void set_rates(const Rates& rates);

  // Drops the gradients and their memory.
  void zero_grad();

  // <parameter>.exp_avg, .exp_avg_sq, .step, and .master where it is separate; sharing memory with the optimizer.
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> state() const;

  // All or nothing: on an error the state is as before. A parameter with a master becomes its rounding.
  void load_state(const std::map<std::string, Tensor>& state);

 private:
  struct Entry {
    model::Parameter parameter;
    MasterWeight weight;
    Tensor exp_avg, exp_avg_sq;  // like the master
    Tensor updates;              // [] float32: t
    double rate = 1.0;           // times that of the schedule
  };
  // Of one dtype and device.
  struct UpdateList {
    std::vector<Tensor> values, gradients, exp_avgs, exp_avg_sqs, updates;
  };

  // Parameters that decay alike and have one factor.
  struct Alike {
    bool decayed;
    double rate;
    friend auto operator<=>(const Alike&, const Alike&) = default;
    [[nodiscard]] bool has(const Entry& e) const { return e.parameter.weight_decay == decayed && e.rate == rate; }
  };
  [[nodiscard]] std::set<Alike> lists() const;

  void update(double learning_rate, const Alike& alike);
  // The same of parameters on another device than the CPU, by lists. `clip` may be null.
  void update_on_device(double learning_rate, const Alike& alike, const DeviceClip* clip);
  void update_list(const UpdateList& list, double learning_rate, bool decayed, const DeviceClip* clip) const;

  AdamWConfig config_;
  std::vector<Entry> entries_;
};

}  // namespace rlalgo::optim

#ifndef RLALGO_COMPILED
#include <rlalgo/optim/detail/adamw_impl.hpp>
#endif
