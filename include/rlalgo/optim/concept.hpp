// What an optimizer is: it updates the trained parameters from their gradients, and its state goes into checkpoints.
//
//   o.step(rate)        one update from the gradients in place; a parameter without gradient is left alone
//   o.zero_grad()       drops the gradients
//   o.state()           every tensor that a resumed run needs, by name, sharing memory with the optimizer
//   o.load_state(s)     takes over such tensors: all of them, or an error and nothing
//
// and, where it has one, of its momentum (Adam's β₁), which it declares (Hooks):
//   o.set_momentum(β)   from the next update on; asked for by schedules that move it (one_cycle)
//
// or that parameters move at rates of their own (parameter_groups.hpp):
//   o.set_rates(r)      from the next update on a parameter moves at r[its name] times the rate; one without an entry at the rate itself
//
// or that the host need not know the norm of the gradients before an update (device_clip.hpp):
//   o.clips_on_device() whether it can; then
//   o.step(rate, clip)  the same update of gradients / clip.divisor, and none where clip.skip is 1
//
// It is constructed from all parameters of the policy and its Config; those that do not require a gradient have no
// state. Equal gradients give equal bits, whatever the number of threads: a resumed run must repeat the one it resumes.
#pragma once

#include <concepts>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/hooks.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/optim/device_clip.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::optim {

// Factors of the rate by the names of parameters.
using Rates = std::map<std::string, double>;

template <class O>
concept Optimizer = requires(O optimizer, const O constant, const std::map<std::string, tensor::Tensor> state) {
  typename O::Config;
  requires std::default_initializable<typename O::Config>;
  requires std::constructible_from < O, std::vector<model::Parameter>,
  typename O::Config > ;
  optimizer.step(1e-6);
  optimizer.zero_grad();
  { constant.state() } -> std::same_as<std::vector<std::pair<std::string, tensor::Tensor>>>;
  optimizer.load_state(state);
};

// Optional members (core/hooks.hpp):
struct Hooks {
  bool set_momentum = false;  // void set_momentum(double)
  bool needs_whole_parameters =
      false;                     // no member: its updates are of whole parameters, it does not serve for shards of them
  bool clips_on_device = false;  // bool clips_on_device() const; void step(double, const DeviceClip&)
  bool set_rates = false;        // void set_rates(const Rates&)
};

template <class O>
[[nodiscard]] constexpr Hooks hooks_of() {
  constexpr Hooks declared = core::declared_hooks<O, Hooks>();
  RLALGO_HOOK(
      set_momentum, requires(O & optimizer) { optimizer.set_momentum(0.9); });
  RLALGO_HOOK(
      clips_on_device, requires(O & optimizer, const O& constant, const DeviceClip& clip) {
        { constant.clips_on_device() } -> std::same_as<bool>;
        optimizer.step(1e-6, clip);
      });
  RLALGO_HOOK(
      set_rates, requires(O & optimizer, const Rates& rates) { optimizer.set_rates(rates); });
  return declared;
}

template <class O>
concept HasMomentum = Optimizer<O> && hooks_of<O>()
.set_momentum;

}  // namespace rlalgo::optim
