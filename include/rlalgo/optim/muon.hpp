// Muon: a matrix moves by the orthogonal matrix nearest to its momentum; what is no matrix of a linear map is moved by AdamW.
//
//   matrix   b ← μb + g;   h = g + μb (Nesterov) or b;   p ← p·(1 − lr·λ) − 0.2·lr·√max(rows, columns)·O(h)
//            O: X ← h/(‖h‖ + 10⁻⁷), of the wide orientation; n times X ← aX + (bA + cA²)X, A = X Xᵀ;
//               (a, b, c) = (3.4445, −4.7750, 2.0315): singular values near 1, in bfloat16
//   others   m ← β₁m + (1 − β₁)g;  v ← β₂v + (1 − β₂)g²;
//            p ← p·(1 − lr·λ) − lr·√(1 − β₂ᵗ)/(1 − β₁ᵗ) · m/(√v + ε)
//
// Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024); the factor 0.2·√max and the common
// learning rate are Liu et al., "Muon is Scalable for LLM Training", arXiv 2502.16982, equation 4. In the order and with the defaults
// of axolotl 0.19's `muon` (axolotl-contribs-mit 0.0.6; torch.optim.Muon with adjust_lr_fn "match_rms_adamw" has the same matrices).
// Others are: embeddings and the head, modules that an adapter trains whole, norms, biases, magnitudes.
// Departure: axolotl leaves vectors (norms, biases) as they are, without a word; here they are trained, as in the papers.
// λ applies where model::Parameter::weight_decay is set. p is the master of a parameter (master_weight.hpp), b, m and v are like it.
// A parameter without gradient in a step is left alone. A matrix has to be whole: it does not serve for shards.
//
// Errors: [rlalgo.optim.1] a checkpoint's state does not fit the parameters.
#pragma once

#include <cstdint>
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

struct MuonConfig {
  double momentum = 0.95;  // μ
  bool nesterov = true;
  std::int64_t ns_steps = 5;  // n
  double weight_decay = 0.0;
  double beta1 = 0.95;  // of the others, as the next two
  double beta2 = 0.95;
  double epsilon = 1e-8;
};

class Muon {
 public:
  using Config = MuonConfig;
  static constexpr Hooks hooks{
      .set_momentum = true, .needs_whole_parameters = true, .clips_on_device = true, .set_rates = true};

  // Parameters that do not require grad are not trained and have no state.
  explicit Muon(std::vector<model::Parameter> parameters, MuonConfig config = {});

  void step(double learning_rate);

  // Where all parameters lie on one device that is not the CPU.
  [[nodiscard]] bool clips_on_device() const;
  void step(double learning_rate, const DeviceClip& clip);

  // μ from the next update on.
  void set_momentum(double momentum) { config_.momentum = momentum; }

  // Factors of the rate by the names of parameters, from the next update on.
  void set_rates(const Rates& rates);

  void zero_grad();

  // <parameter>.momentum_buffer of a matrix; .exp_avg, .exp_avg_sq and .step of the others; .master where it is separate. They share
  // memory with the optimizer.
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> state() const;

  // All or nothing: on an error the state is as before.
  void load_state(const std::map<std::string, Tensor>& state);

 private:
  struct Entry {
    model::Parameter parameter;
    MasterWeight weight;
    Tensor buffer;               // of a matrix
    Tensor exp_avg, exp_avg_sq;  // of the others
    Tensor updates;              // [] float32: t, of the others
    double rate = 1.0;           // times that of the schedule
  };

  void update(double learning_rate, const DeviceClip* clip);
  void move_matrix(Entry& e, const Tensor& g, double learning_rate) const;
  void move_other(Entry& e, const Tensor& g, double learning_rate) const;

  MuonConfig config_;
  std::vector<Entry> entries_;
};

namespace detail {

// Whether a parameter is the matrix of a linear map, by its name and shape.
[[nodiscard]] bool is_moved_whole(const model::Parameter& p);

// O(h) [rows, columns], bfloat16.
[[nodiscard]] Tensor orthogonalized(const Tensor& h, std::int64_t steps);

}  // namespace detail

}  // namespace rlalgo::optim

#ifndef RLALGO_COMPILED
#include <rlalgo/optim/detail/muon_impl.hpp>
#endif
