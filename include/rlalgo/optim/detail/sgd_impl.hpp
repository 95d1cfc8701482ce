// Definitions of sgd.hpp.
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
#include <rlalgo/optim/sgd.hpp>

namespace rlalgo::optim {

RLALGO_INLINE Sgd::Sgd(std::vector<model::Parameter> parameters, SgdConfig config) : config_(config) {
  for (model::Parameter& p : parameters) {
    if (!p.value.requires_grad()) continue;
    MasterWeight weight(p.value);
    const Tensor master = weight.master();
    Entry e{std::move(p), std::move(weight), {}, {}};
    if (config_.momentum) {
      e.buffer = master.new_zeros(master.sizes());
      e.updates = master.new_zeros({}, at::TensorOptions().dtype(c10::ScalarType::Float));
    }
    entries_.push_back(std::move(e));
  }
}

RLALGO_INLINE bool Sgd::clips_on_device() const { return detail::on_one_device(entries_); }

RLALGO_INLINE void Sgd::step(double learning_rate) { update(learning_rate, nullptr); }

RLALGO_INLINE void Sgd::step(double learning_rate, const DeviceClip& clip) { update(learning_rate, &clip); }

RLALGO_INLINE void Sgd::update(double learning_rate, const DeviceClip* clip) {
  detail::by_parameter(entries_, [&](Entry& e) {
    const Tensor& p = e.weight.master();
    const Tensor g = detail::decayed_gradient(e, config_.weight_decay, clip);
    const detail::SkippedUpdate skipped(clip, {p, e.buffer, e.updates});
    const double rate = learning_rate * e.rate;
    if (!config_.momentum) {
      p.add_(g, -rate);
    } else {
      e.buffer.mul_(*config_.momentum);
      if (config_.dampening == 0.0)
        e.buffer.add_(g);
      else if (g.is_cpu())
        e.buffer.add_(g, e.updates.item<double>() == 0.0 ? 1.0 : 1.0 - config_.dampening);
      else  // how many there were is known there
        e.buffer.add_(g.mul(e.updates.ne(0).to(g.scalar_type()).mul_(-config_.dampening).add_(1.0)));
      e.updates.add_(1.0);
      p.add_(config_.nesterov ? g.add(e.buffer, *config_.momentum) : e.buffer, -rate);
    }
    skipped.settle();
    e.weight.publish();
  });
}

RLALGO_INLINE void Sgd::set_momentum(double momentum) {
  if (!config_.momentum)
    core::raise_usage("optim", 8,
                      {.what = "the schedule moves a momentum, and SGD without one has none",
                       .remedy = "give it a momentum, or take a schedule that moves the rate alone"});
  config_.momentum = momentum;
}

RLALGO_INLINE void Sgd::set_rates(const Rates& rates) { detail::take_rates(entries_, rates); }

RLALGO_INLINE void Sgd::zero_grad() { detail::drop_gradients(entries_); }

RLALGO_INLINE std::vector<std::pair<std::string, Tensor>> Sgd::state() const {
  std::vector<std::pair<std::string, Tensor>> out;
  for (const Entry& e : entries_) {
    const std::string& name = e.parameter.name;
    if (config_.momentum) {
      out.emplace_back(name + ".momentum_buffer", e.buffer);
      out.emplace_back(name + ".step", e.updates);
    }
    if (e.weight.separate()) out.emplace_back(name + ".master", e.weight.master());
  }
  return out;
}

RLALGO_INLINE void Sgd::load_state(const std::map<std::string, Tensor>& state) {
  detail::load_entries(entries_, this->state(), state);
}

}  // namespace rlalgo::optim
