// Definitions of adafactor.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/optim/adafactor.hpp>
#include <rlalgo/optim/detail/by_parameter.hpp>
#include <rlalgo/optim/detail/entries.hpp>
#include <rlalgo/optim/detail/on_device.hpp>
#include <rlalgo/optim/detail/rates.hpp>

namespace rlalgo::optim {

namespace detail {

// √(mean x²)
inline double root_mean_square(const Tensor& x) {
  return x.norm(2).item<double>() / std::sqrt(static_cast<double>(x.numel()));
}

}  // namespace detail

RLALGO_INLINE Adafactor::Adafactor(std::vector<model::Parameter> parameters, AdafactorConfig config) : config_(config) {
  for (model::Parameter& p : parameters) {
    if (!p.value.requires_grad()) continue;
    MasterWeight weight(p.value);
    const Tensor master = weight.master();
    Entry e{std::move(p), std::move(weight), {}, {}, {}, {}, {}};
    if (master.dim() >= 2) {
      std::vector<std::int64_t> rows = master.sizes().vec(), columns = rows;
      rows.pop_back();
      columns.erase(columns.end() - 2);
      e.row = master.new_zeros(rows);
      e.column = master.new_zeros(columns);
    } else {
      e.square = master.new_zeros(master.sizes());
    }
    if (config_.beta1) e.exp_avg = master.new_zeros(master.sizes());
    e.updates = master.new_zeros({}, master.options().dtype(c10::ScalarType::Float));
    entries_.push_back(std::move(e));
  }
}

RLALGO_INLINE bool Adafactor::clips_on_device() const { return detail::on_one_device(entries_); }

RLALGO_INLINE void Adafactor::step(double learning_rate) {
  detail::by_parameter(entries_, [&](Entry& e) {
    if (e.parameter.value.device().is_cpu())
      update(e, learning_rate * e.rate);
    else
      update_on_device(e, learning_rate * e.rate, nullptr);
  });
}

RLALGO_INLINE void Adafactor::step(double learning_rate, const DeviceClip& clip) {
  detail::by_parameter(entries_, [&](Entry& e) { update_on_device(e, learning_rate * e.rate, &clip); });
}

RLALGO_INLINE void Adafactor::update_on_device(Entry& e, double learning_rate, const DeviceClip* clip) const {
  const Tensor g = detail::clipped_gradient(e.weight, clip), &p = e.weight.master();
  const detail::SkippedUpdate skipped(clip, {p, e.row, e.column, e.square, e.exp_avg, e.updates});
  e.updates.add_(1.0);
  const Tensor fresh = e.updates.to(at::kDouble).pow(config_.decay_rate);  // 1 − β
  const Tensor beta = fresh.neg().add_(1.0).to(p.scalar_type()), rest = fresh.to(p.scalar_type());
  const auto blend = [&](const Tensor& x, const Tensor& with) { x.mul_(beta).add_(with.mul(rest)); };
  const auto size_of = [](const Tensor& x) {
    return x.norm(2).div_(std::sqrt(static_cast<double>(x.numel())));  // √(mean x²)
  };
  Tensor u = g.mul(g).add_(config_.epsilon_square);
  if (e.row.defined()) {
    blend(e.row, u.mean(-1));
    blend(e.column, u.mean(-2));
    const Tensor row_factor = e.row.div(e.row.mean(-1, /*keepdim=*/true)).rsqrt_().unsqueeze(-1);
    u = row_factor.mul(e.column.unsqueeze(-2).rsqrt()).mul_(g);
  } else {
    blend(e.square, u);
    u = e.square.rsqrt().mul_(g);
  }
  u.div_(size_of(u).div_(config_.clip_threshold).clamp_min_(1.0)).mul_(learning_rate);
  Tensor scale;  // of the parameter, in the rate
  if (config_.scale_parameter) {
    scale = size_of(p).clamp_min_(config_.epsilon_scale);
    u.mul_(scale);
  }
  if (config_.beta1) u = e.exp_avg.mul_(*config_.beta1).add_(u, 1.0 - *config_.beta1);
  if (e.parameter.weight_decay && config_.weight_decay != 0.0)
    p.add_(scale.defined() ? p.mul(scale) : p, -config_.weight_decay * learning_rate);
  p.sub_(u);
  skipped.settle();
  e.weight.publish();
}

RLALGO_INLINE void Adafactor::update(Entry& e, double learning_rate) const {
  const Tensor g = e.weight.gradient(), &p = e.weight.master();
  e.updates.add_(1.0);
  const double t = e.updates.item<double>();
  const double rate = config_.scale_parameter
                          ? learning_rate * std::max(config_.epsilon_scale, detail::root_mean_square(p))
                          : learning_rate;
  const double beta = 1.0 - std::pow(t, config_.decay_rate);
  Tensor u = g.mul(g).add_(config_.epsilon_square);
  if (e.row.defined()) {
    e.row.mul_(beta).add_(u.mean(-1), 1.0 - beta);
    e.column.mul_(beta).add_(u.mean(-2), 1.0 - beta);
    const Tensor row_factor = e.row.div(e.row.mean(-1, /*keepdim=*/true)).rsqrt_().unsqueeze(-1);
    u = row_factor.mul(e.column.unsqueeze(-2).rsqrt()).mul_(g);
  } else {
    e.square.mul_(beta).add_(u, 1.0 - beta);
    u = e.square.rsqrt().mul_(g);
  }
  const Tensor size = u.norm(2).div_(std::sqrt(static_cast<double>(u.numel())));  // stays on the device
  u.div_(size.div_(config_.clip_threshold).clamp_min_(1.0)).mul_(rate);
  if (config_.beta1) u = e.exp_avg.mul_(*config_.beta1).add_(u, 1.0 - *config_.beta1);
  if (e.parameter.weight_decay && config_.weight_decay != 0.0) p.add_(p, -config_.weight_decay * rate);
  p.sub_(u);
  e.weight.publish();
}

RLALGO_INLINE void Adafactor::set_momentum(double beta1) {
  if (!config_.beta1)
    core::raise_usage("optim", 8,
                      {.what = "the schedule moves a momentum, and Adafactor without beta1 has none",
                       .remedy = "give it a beta1, or take a schedule that moves the rate alone"});
  config_.beta1 = beta1;
}

RLALGO_INLINE void Adafactor::set_rates(const Rates& rates) { detail::take_rates(entries_, rates); }

RLALGO_INLINE void Adafactor::zero_grad() { detail::drop_gradients(entries_); }

RLALGO_INLINE std::vector<std::pair<std::string, Tensor>> Adafactor::state() const {
  std::vector<std::pair<std::string, Tensor>> out;
  for (const Entry& e : entries_) {
    const std::string& name = e.parameter.name;
    if (e.row.defined()) {
      out.emplace_back(name + ".exp_avg_sq_row", e.row);
      out.emplace_back(name + ".exp_avg_sq_col", e.column);
    } else {
      out.emplace_back(name + ".exp_avg_sq", e.square);
    }
    if (config_.beta1) out.emplace_back(name + ".exp_avg", e.exp_avg);
    out.emplace_back(name + ".step", e.updates);
    if (e.weight.separate()) out.emplace_back(name + ".master", e.weight.master());
  }
  return out;
}

RLALGO_INLINE void Adafactor::load_state(const std::map<std::string, Tensor>& state) {
  detail::load_entries(entries_, this->state(), state);
}

}  // namespace rlalgo::optim
