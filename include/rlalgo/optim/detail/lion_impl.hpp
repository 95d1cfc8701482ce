// Definitions of lion.hpp.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/optim/detail/by_parameter.hpp>
#include <rlalgo/optim/detail/entries.hpp>
#include <rlalgo/optim/detail/on_device.hpp>
#include <rlalgo/optim/detail/rates.hpp>
#include <rlalgo/optim/lion.hpp>

namespace rlalgo::optim {

RLALGO_INLINE Lion::Lion(std::vector<model::Parameter> parameters, LionConfig config) : config_(config) {
  for (model::Parameter& p : parameters) {
    if (!p.value.requires_grad()) continue;
    MasterWeight weight(p.value);
    const Tensor master = weight.master();
    entries_.push_back({std::move(p), std::move(weight), master.new_zeros(master.sizes())});
  }
}

RLALGO_INLINE bool Lion::clips_on_device() const { return detail::on_one_device(entries_); }

RLALGO_INLINE void Lion::step(double learning_rate) { update(learning_rate, nullptr); }

RLALGO_INLINE void Lion::step(double learning_rate, const DeviceClip& clip) { update(learning_rate, &clip); }

RLALGO_INLINE void Lion::update(double learning_rate, const DeviceClip* clip) {
  detail::by_parameter(entries_, [&](Entry& e) {
    const Tensor g = detail::clipped_gradient(e.weight, clip), &p = e.weight.master(), &m = e.exp_avg;
    const detail::SkippedUpdate skipped(clip, {p, m});
    const double rate = learning_rate * e.rate;
    const Tensor u = m.mul(config_.beta1).add_(g, 1.0 - config_.beta1);
    if (e.parameter.weight_decay && config_.weight_decay != 0.0) p.mul_(1.0 - rate * config_.weight_decay);
    p.add_(u.sign_(), -rate);
    m.mul_(config_.beta2).add_(g, 1.0 - config_.beta2);
    skipped.settle();
    e.weight.publish();
  });
}

RLALGO_INLINE void Lion::set_rates(const Rates& rates) { detail::take_rates(entries_, rates); }

RLALGO_INLINE void Lion::zero_grad() { detail::drop_gradients(entries_); }

RLALGO_INLINE std::vector<std::pair<std::string, Tensor>> Lion::state() const {
  std::vector<std::pair<std::string, Tensor>> out;
  for (const Entry& e : entries_) {
    out.emplace_back(e.parameter.name + ".exp_avg", e.exp_avg);
    if (e.weight.separate()) out.emplace_back(e.parameter.name + ".master", e.weight.master());
  }
  return out;
}

RLALGO_INLINE void Lion::load_state(const std::map<std::string, Tensor>& state) {
  detail::load_entries(entries_, this->state(), state);
}

}  // namespace rlalgo::optim
