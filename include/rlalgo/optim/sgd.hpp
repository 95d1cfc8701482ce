// Stochastic gradient descent, with or without momentum.
//
//   g ← g + λp;   without μ: p ← p − lr·g
//   b ← μb + (1 − τ)g, of the first update b ← g;   p ← p − lr·b, with Nesterov's p ← p − lr·(g + μb)
//
// Source: Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013, as torch.optim.SGD computes
// it, which transformers runs as `sgd`: the decay is part of the gradient, and of the momentum. τ: dampening. λ applies where
// model::Parameter::weight_decay is set. p is the master of a parameter (master_weight.hpp); b has its dtype and shape; a parameter
// without gradient in a step is left alone. Element-wise: it serves for shards of parameters, too.
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

struct SgdConfig {
  std::optional<double> momentum = std::nullopt;  // none: no buffers
  double dampening = 0.0;
  bool nesterov = false;
  double weight_decay = 0.0;
};

class Sgd {
 public:
  using Config = SgdConfig;
  static constexpr Hooks hooks{.set_momentum = true, .clips_on_device = true, .set_rates = true};

  // Parameters that do not require grad are not trained and have no state.
  explicit Sgd(std::vector<model::Parameter> parameters, SgdConfig config = {});

  void step(double learning_rate);

  // On another device than the CPU the clip is applied there, and the host waits for nothing (device_clip.hpp).
  [[nodiscard]] bool clips_on_device() const;
  void step(double learning_rate, const DeviceClip& clip);

  // μ from the next update on, where there is one.
  void set_momentum(double momentum);

  // Factors of the rate by the names of parameters, from the next update on.
  void set_rates(const Rates& rates);

  void zero_grad();

  // <parameter>.momentum_buffer and .step with a momentum, .master where it is separate. They share memory with the optimizer.
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> state() const;

  // All or nothing: on an error the state is as before.
  void load_state(const std::map<std::string, Tensor>& state);

 private:
  struct Entry {
    model::Parameter parameter;
    MasterWeight weight;
    Tensor buffer;      // with μ
    Tensor updates;     // [] float32 where the master is, with μ
    double rate = 1.0;  // times that of the schedule
  };

  // `clip` may be null.
  void update(double learning_rate, const DeviceClip* clip);

  SgdConfig config_;
  std::vector<Entry> entries_;
};

}  // namespace rlalgo::optim

#ifndef RLALGO_COMPILED
#include <rlalgo/optim/detail/sgd_impl.hpp>
#endif
