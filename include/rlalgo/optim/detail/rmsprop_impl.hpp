// Definitions of rmsprop.hpp.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/optim/detail/by_parameter.hpp>
#include <rlalgo/optim/detail/entries.hpp>
#include <rlalgo/optim/detail/on_device.hpp>
#include <rlalgo/optim/detail/rates.hpp>
#include <rlalgo/optim/rmsprop.hpp>

namespace rlalgo::optim {

RLALGO_INLINE RmsProp::RmsProp(std::vector<model::Parameter> parameters, RmsPropConfig config) : config_(config) {
  for (model::Parameter& p : parameters) {
    if (!p.value.requires_grad()) continue;
    MasterWeight weight(p.value);
    const Tensor master = weight.master();
    Entry e{std::move(p), std::move(weight), master.new_zeros(master.sizes()), {}, {}};
    if (config_.centered) e.mean = master.new_zeros(master.sizes());
    if (config_.momentum) e.buffer = master.new_zeros(master.sizes());
    entries_.push_back(std::move(e));
  }
}

RLALGO_INLINE bool RmsProp::clips_on_device() const { return detail::on_one_device(entries_); }

RLALGO_INLINE void RmsProp::step(double learning_rate) { update(learning_rate, nullptr); }

RLALGO_INLINE void RmsProp::step(double learning_rate, const DeviceClip& clip) { update(learning_rate, &clip); }

RLALGO_INLINE void RmsProp::update(double learning_rate, const DeviceClip* clip) {
  detail::by_parameter(entries_, [&](Entry& e) {
    const Tensor& p = e.weight.master();
    const Tensor g = detail::decayed_gradient(e, config_.weight_decay, clip);
    const detail::SkippedUpdate skipped(clip, {p, e.square, e.mean, e.buffer});
    const double rate = learning_rate * e.rate;
    e.square.mul_(config_.alpha).addcmul_(g, g, 1.0 - config_.alpha);
    Tensor below = e.square;
    if (config_.centered) {
      e.mean.lerp_(g, 1.0 - config_.alpha);
      below = e.square.addcmul(e.mean, e.mean, -1.0);
    }
    below = below.sqrt().add_(config_.epsilon);
    if (config_.momentum) {
      e.buffer.mul_(*config_.momentum).addcdiv_(g, below);
      p.add_(e.buffer, -rate);
    } else {
      p.addcdiv_(g, below, -rate);
    }
    skipped.settle();
    e.weight.publish();
  });
}

RLALGO_INLINE void RmsProp::set_momentum(double momentum) {
  if (!config_.momentum)
    core::raise_usage("optim", 8,
                      {.what = "the schedule moves a momentum, and RMSprop without one has none",
                       .remedy = "give it a momentum, or take a schedule that moves the rate alone"});
  config_.momentum = momentum;
}

RLALGO_INLINE void RmsProp::set_rates(const Rates& rates) { detail::take_rates(entries_, rates); }

RLALGO_INLINE void RmsProp::zero_grad() { detail::drop_gradients(entries_); }

RLALGO_INLINE std::vector<std::pair<std::string, Tensor>> RmsProp::state() const {
  std::vector<std::pair<std::string, Tensor>> out;
  for (const Entry& e : entries_) {
    const std::string& name = e.parameter.name;
    out.emplace_back(name + ".square_avg", e.square);
    if (config_.centered) out.emplace_back(name + ".grad_avg", e.mean);
    if (config_.momentum) out.emplace_back(name + ".momentum_buffer", e.buffer);
    if (e.weight.separate()) out.emplace_back(name + ".master", e.weight.master());
  }
  return out;
}

RLALGO_INLINE void RmsProp::load_state(const std::map<std::string, Tensor>& state) {
  detail::load_entries(entries_, this->state(), state);
}

}  // namespace rlalgo::optim
