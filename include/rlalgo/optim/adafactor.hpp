// Adafactor: Adam's second moment of a matrix kept as one number per row and one per column, updates clipped by their own size.
//
//   β ← 1 − tᵈ;   s = g² + ε₁
//   matrix   r ← βr + (1 − β)·mean_columns(s);  c ← βc + (1 − β)·mean_rows(s);   u = g / √(r cᵀ / mean(r))
//   vector   v ← βv + (1 − β)s;                                                  u = g / √v
//   u ← u / max(1, rms(u)/τ);   a = lr·max(ε₂, rms(p)) with scale_parameter, else lr
//   with β₁: m ← β₁m + (1 − β₁)·a·u, moves by m;   p ← p·(1 − a·λ) − a·u
//
// Source: Shazeer & Stern, arXiv 1804.04235, algorithms 4 and 5; as transformers' Adafactor computes it, whose Trainer runs
// `adafactor` with relative_step and scale_parameter off: the learning rate is the schedule's. d: decay_rate, τ: clip_threshold.
// λ applies where model::Parameter::weight_decay is set. p is the master of a parameter (master_weight.hpp); moments have its dtype:
// [rows] and [columns] of a matrix, the shape of anything else. A parameter without gradient in a step is left alone and its t does
// not advance. A matrix has to be whole: it does not serve for shards.
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

struct AdafactorConfig {
  double epsilon_square = 1e-30;  // ε₁
  double epsilon_scale = 1e-3;    // ε₂
  double clip_threshold = 1.0;
  double decay_rate = -0.8;
  std::optional<double> beta1 = std::nullopt;  // none: no first moment
  double weight_decay = 0.0;
  bool scale_parameter = false;
};

class Adafactor {
 public:
  using Config = AdafactorConfig;
  static constexpr Hooks hooks{
      .set_momentum = true, .needs_whole_parameters = true, .clips_on_device = true, .set_rates = true};

  // Parameters that do not require grad are not trained and have no state.
  explicit Adafactor(std::vector<model::Parameter> parameters, AdafactorConfig config = {});

  void step(double learning_rate);

  // Where all parameters lie on one device that is not the CPU.
  [[nodiscard]] bool clips_on_device() const;
  void step(double learning_rate, const DeviceClip& clip);

  // β₁ from the next update on, where there is one.
  void set_momentum(double beta1);

  // Factors of the rate by the names of parameters, from the next update on.
  void set_rates(const Rates& rates);

  void zero_grad();

  // <parameter>.exp_avg_sq_row and .exp_avg_sq_col, or .exp_avg_sq; .exp_avg with β₁; .step; .master where it is separate. They share
  // memory with the optimizer.
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> state() const;

  // All or nothing: on an error the state is as before.
  void load_state(const std::map<std::string, Tensor>& state);

 private:
  struct Entry {
    model::Parameter parameter;
    MasterWeight weight;
    Tensor row, column;  // of a matrix
    Tensor square;       // of anything else
    Tensor exp_avg;      // with β₁
    Tensor updates;      // [] float32: t
    double rate = 1.0;   // times that of the schedule
  };

  void update(Entry& e, double learning_rate) const;
  // The same where the host reads nothing. `clip` may be null.
  void update_on_device(Entry& e, double learning_rate, const DeviceClip* clip) const;

  AdafactorConfig config_;
  std::vector<Entry> entries_;
};

}  // namespace rlalgo::optim

#ifndef RLALGO_COMPILED
#include <rlalgo/optim/detail/adafactor_impl.hpp>
#endif
