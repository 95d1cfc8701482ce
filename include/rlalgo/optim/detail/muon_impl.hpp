// Definitions of muon.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/cpu/features.hpp>
#include <rlalgo/optim/detail/by_parameter.hpp>
#include <rlalgo/optim/detail/entries.hpp>
#include <rlalgo/optim/detail/on_device.hpp>
#include <rlalgo/optim/detail/rates.hpp>
#include <rlalgo/optim/muon.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::optim {

namespace detail {

RLALGO_INLINE bool is_moved_whole(const model::Parameter& p) {
  const std::string& name = p.name;
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  const bool saved = name.starts_with("base_model.model.") && !has(".lora_");  // by an adapter, in a copy
  return p.value.dim() == 2 && !saved && !has("embed_tokens") && !has("lm_head");
}

RLALGO_INLINE Tensor orthogonalized(const Tensor& h, std::int64_t steps) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  const bool tall = h.size(0) > h.size(1);
  // Products of bfloat16 numbers are added in float32 and rounded; where the processor has no such instruction, the same is done with
  // float32 matrices that hold them.
  const bool wide = h.device().is_cpu() && !cpu::multiplies_bfloat16();
  const auto product = [&](const Tensor& x, const Tensor& y) {
    if (!wide) return tensor::mm(x, y);
    return tensor::mm(x.to(at::kFloat), y.to(at::kFloat)).to(at::kBFloat16);
  };
  Tensor x = h.to(at::kBFloat16);
  if (tall) x = x.t();
  x = x.div(x.norm().add(1e-7)).contiguous();
  for (std::int64_t i = 0; i < steps; ++i) {
    const Tensor gram = product(x, x.t().contiguous());
    const Tensor polynomial = gram.mul(b).add_(product(gram.mul(c), gram));
    x = x.mul(a).add_(product(polynomial, x));
  }
  return tall ? x.t() : x;
}

}  // namespace detail

RLALGO_INLINE Muon::Muon(std::vector<model::Parameter> parameters, MuonConfig config) : config_(config) {
  for (model::Parameter& p : parameters) {
    if (!p.value.requires_grad()) continue;
    MasterWeight weight(p.value);
    const Tensor master = weight.master();
    const bool matrix = detail::is_moved_whole(p);
    Entry e{std::move(p), std::move(weight), {}, {}, {}, {}};
    if (matrix) {
      e.buffer = master.new_zeros(master.sizes());
    } else {
      e.exp_avg = master.new_zeros(master.sizes());
      e.exp_avg_sq = master.new_zeros(master.sizes());
      e.updates = master.new_zeros({}, master.options().dtype(c10::ScalarType::Float));
    }
    entries_.push_back(std::move(e));
  }
}

RLALGO_INLINE bool Muon::clips_on_device() const { return detail::on_one_device(entries_); }

RLALGO_INLINE void Muon::step(double learning_rate) { update(learning_rate, nullptr); }

RLALGO_INLINE void Muon::step(double learning_rate, const DeviceClip& clip) { update(learning_rate, &clip); }

RLALGO_INLINE void Muon::update(double learning_rate, const DeviceClip* clip) {
  detail::by_parameter(entries_, [&](Entry& e) {
    const Tensor& p = e.weight.master();
    const double rate = learning_rate * e.rate;
    const Tensor g = detail::clipped_gradient(e.weight, clip);
    const detail::SkippedUpdate skipped(clip, {p, e.buffer, e.exp_avg, e.exp_avg_sq, e.updates});
    if (e.parameter.weight_decay && config_.weight_decay != 0.0) p.mul_(1.0 - rate * config_.weight_decay);
    if (e.buffer.defined())
      move_matrix(e, g, rate);
    else
      move_other(e, g, rate);
    skipped.settle();
    e.weight.publish();
  });
}

RLALGO_INLINE void Muon::move_matrix(Entry& e, const Tensor& g, double learning_rate) const {
  const Tensor& p = e.weight.master();
  e.buffer.mul_(config_.momentum).add_(g);
  const Tensor h = config_.nesterov ? g.add(e.buffer, config_.momentum) : e.buffer;
  const auto longer = static_cast<double>(std::max(p.size(0), p.size(1)));
  p.add_(detail::orthogonalized(h, config_.ns_steps), -learning_rate * 0.2 * std::sqrt(longer));
}

RLALGO_INLINE void Muon::move_other(Entry& e, const Tensor& g, double learning_rate) const {
  e.updates.add_(1.0);
  e.exp_avg.lerp_(g, 1.0 - config_.beta1);
  e.exp_avg_sq.lerp_(g.mul(g), 1.0 - config_.beta2);
  const Tensor change = e.exp_avg.div(e.exp_avg_sq.sqrt().add_(config_.epsilon)), &p = e.weight.master();
  if (!p.device().is_cpu()) {  // t stays where it is
    const Tensor t = e.updates.to(at::kDouble);
    const Tensor scale =
        tensor::power(config_.beta2, t).neg_().add_(1.0).sqrt_().div_(tensor::power(config_.beta1, t).neg_().add_(1.0));
    p.add_(change.mul_(scale.mul_(-learning_rate).to(p.scalar_type())));
    return;
  }
  const double t = e.updates.item<double>();
  const double scale = (1.0 - std::pow(config_.beta1, t)) / std::sqrt(1.0 - std::pow(config_.beta2, t));
  p.add_(change, -learning_rate / scale);
}

RLALGO_INLINE void Muon::set_rates(const Rates& rates) { detail::take_rates(entries_, rates); }

RLALGO_INLINE void Muon::zero_grad() { detail::drop_gradients(entries_); }

RLALGO_INLINE std::vector<std::pair<std::string, Tensor>> Muon::state() const {
  std::vector<std::pair<std::string, Tensor>> out;
  for (const Entry& e : entries_) {
    const std::string& name = e.parameter.name;
    if (e.buffer.defined()) {
      out.emplace_back(name + ".momentum_buffer", e.buffer);
    } else {
      out.emplace_back(name + ".exp_avg", e.exp_avg);
      out.emplace_back(name + ".exp_avg_sq", e.exp_avg_sq);
      out.emplace_back(name + ".step", e.updates);
    }
    if (e.weight.separate()) out.emplace_back(name + ".master", e.weight.master());
  }
  return out;
}

RLALGO_INLINE void Muon::load_state(const std::map<std::string, Tensor>& state) {
  detail::load_entries(entries_, this->state(), state);
}

}  // namespace rlalgo::optim
