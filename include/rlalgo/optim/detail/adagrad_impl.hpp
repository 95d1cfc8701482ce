// Definitions of adagrad.hpp.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/optim/adagrad.hpp>
#include <rlalgo/optim/detail/by_parameter.hpp>
#include <rlalgo/optim/detail/entries.hpp>
#include <rlalgo/optim/detail/on_device.hpp>
#include <rlalgo/optim/detail/rates.hpp>

namespace rlalgo::optim {

RLALGO_INLINE Adagrad::Adagrad(std::vector<model::Parameter> parameters, AdagradConfig config) : config_(config) {
  for (model::Parameter& p : parameters) {
    if (!p.value.requires_grad()) continue;
    MasterWeight weight(p.value);
    const Tensor master = weight.master();
    Entry e{std::move(p), std::move(weight), master.new_zeros(master.sizes()),
            master.new_zeros({}, at::TensorOptions().dtype(c10::ScalarType::Float))};
    entries_.push_back(std::move(e));
  }
}

RLALGO_INLINE bool Adagrad::clips_on_device() const { return detail::on_one_device(entries_); }

RLALGO_INLINE void Adagrad::step(double learning_rate) { update(learning_rate, nullptr); }

RLALGO_INLINE void Adagrad::step(double learning_rate, const DeviceClip& clip) { update(learning_rate, &clip); }

RLALGO_INLINE void Adagrad::update(double learning_rate, const DeviceClip* clip) {
  detail::by_parameter(entries_, [&](Entry& e) {
    const Tensor& p = e.weight.master();
    const Tensor g = detail::decayed_gradient(e, config_.weight_decay, clip);
    const detail::SkippedUpdate skipped(clip, {p, e.sum, e.updates});
    const double rate = learning_rate * e.rate;
    e.sum.addcmul_(g, g);
    const Tensor below = e.sum.sqrt().add_(config_.epsilon);
    if (config_.lr_decay == 0.0)
      p.addcdiv_(g, below, -rate);
    else if (g.is_cpu())
      p.addcdiv_(g, below, -rate / (1.0 + e.updates.item<double>() * config_.lr_decay));
    else  // how many there were is known there
      p.addcdiv_(g.div(e.updates.mul(config_.lr_decay).add_(1.0).to(g.scalar_type())), below, -rate);
    e.updates.add_(1.0);
    skipped.settle();
    e.weight.publish();
  });
}

RLALGO_INLINE void Adagrad::set_momentum(double /*momentum*/) {
  core::raise_usage("optim", 8,
                    {.what = "the schedule moves a momentum, and Adagrad has none",
                     .remedy = "take a schedule that moves the rate alone"});
}

RLALGO_INLINE void Adagrad::set_rates(const Rates& rates) { detail::take_rates(entries_, rates); }

RLALGO_INLINE void Adagrad::zero_grad() { detail::drop_gradients(entries_); }

RLALGO_INLINE std::vector<std::pair<std::string, Tensor>> Adagrad::state() const {
  std::vector<std::pair<std::string, Tensor>> out;
  for (const Entry& e : entries_) {
    const std::string& name = e.parameter.name;
    out.emplace_back(name + ".sum", e.sum);
    out.emplace_back(name + ".step", e.updates);
    if (e.weight.separate()) out.emplace_back(name + ".master", e.weight.master());
  }
  return out;
}

RLALGO_INLINE void Adagrad::load_state(const std::map<std::string, Tensor>& state) {
  detail::load_entries(entries_, this->state(), state);
}

}  // namespace rlalgo::optim
