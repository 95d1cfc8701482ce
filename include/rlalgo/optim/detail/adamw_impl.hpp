// Definitions of adamw.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/cpu/features.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/detail/master_update.hpp>
#include <rlalgo/optim/detail/named_state.hpp>
#include <rlalgo/optim/master_weight.hpp>
#include <rlalgo/tensor/on_threads.hpp>
#include <rlalgo/tensor/tensor.hpp>

// Needs the tensor type before it.
#include <ATen/ops/_fused_adamw_ops.h>

namespace rlalgo::optim {

RLALGO_INLINE AdamW::AdamW(std::vector<model::Parameter> parameters, AdamWConfig config) : config_(config) {
  for (model::Parameter& p : parameters) {
    if (!p.value.requires_grad()) continue;
    if (!p.value.is_contiguous())
      core::raise("optim", 4, {.what = "a trained parameter must be contiguous in memory", .found = p.name});
    MasterWeight weight(p.value);
    const Tensor master = weight.master();
    entries_.push_back({std::move(p), std::move(weight), master.new_zeros(master.sizes()),
                        master.new_zeros(master.sizes()),
                        master.new_zeros({}, master.options().dtype(c10::ScalarType::Float))});
  }
}

RLALGO_INLINE void AdamW::step(double learning_rate) {
  const c10::NoGradGuard no_grad;
  update(learning_rate, true);
  update(learning_rate, false);
}

RLALGO_INLINE void AdamW::zero_grad() {
  for (Entry& e : entries_) e.parameter.value.mutable_grad() = Tensor();
}

RLALGO_INLINE std::vector<std::pair<std::string, Tensor>> AdamW::state() const {
  std::vector<std::pair<std::string, Tensor>> out;
  for (const Entry& e : entries_) {
    out.emplace_back(e.parameter.name + ".exp_avg", e.exp_avg);
    out.emplace_back(e.parameter.name + ".exp_avg_sq", e.exp_avg_sq);
    out.emplace_back(e.parameter.name + ".step", e.updates);
    if (e.weight.separate()) out.emplace_back(e.parameter.name + ".master", e.weight.master());
  }
  return out;
}

RLALGO_INLINE void AdamW::load_state(const std::map<std::string, Tensor>& state) {
  const c10::NoGradGuard no_grad;
  detail::load_tensors(this->state(), state);
  for (const Entry& e : entries_) e.weight.publish();
}

RLALGO_INLINE void AdamW::update(double learning_rate, bool decayed) {
  struct Lists {
    std::vector<Tensor> values, gradients, exp_avgs, exp_avg_sqs, updates;
  } whole;
  const auto apply = [&](const Lists& x) {
    at::_ops::_fused_adamw_::call(x.values, x.gradients, x.exp_avgs, x.exp_avg_sqs, {}, x.updates, learning_rate,
                                  config_.beta1, config_.beta2, decayed ? config_.weight_decay : 0.0, config_.epsilon,
                                  /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/std::nullopt,
                                  /*found_inf=*/std::nullopt);
  };
#if defined(__x86_64__)
  // Of a bfloat16 weight whose gradient lies as it does, by a kernel of our own.
  const auto update_at_once = [&](Entry& e, const Tensor& gradient) {
    const Tensor& value = e.parameter.value;
    if (value.scalar_type() != c10::ScalarType::BFloat16 || gradient.scalar_type() != value.scalar_type() ||
        !value.device().is_cpu() || !gradient.is_contiguous() || !cpu::has_lanes())
      return false;
    const double t = *e.updates.data_ptr<float>();
    const detail::AdamWNumbers numbers(learning_rate, config_.beta1, config_.beta2, config_.epsilon,
                                       decayed ? config_.weight_decay : 0.0, t);
    const detail::MasterMemory memory{gradient.const_data_ptr<c10::BFloat16>(),
                                      e.weight.master().mutable_data_ptr<float>(), e.exp_avg.mutable_data_ptr<float>(),
                                      e.exp_avg_sq.mutable_data_ptr<float>(), value.mutable_data_ptr<c10::BFloat16>()};
    tensor::on_stretches(gradient.numel(), std::int64_t{1} << 16U, [&](std::int64_t begin, std::int64_t end) {
      detail::update_masters(memory, begin, end, numbers);
    });
    return true;
  };
#endif
  // With a master piece by piece, of which gradient, master and rounding pass through the cache once, and for whose gradients in
  // the master's precision the same memory serves.
  constexpr std::int64_t most = std::int64_t{1} << 20U;
  Tensor wide;
  const auto update_pieces = [&](const Entry& e, const Tensor& gradient) {
    const Tensor g = gradient.flatten(), value = e.weight.value().detach().view({-1}),
                 master = e.weight.master().view({-1}), m = e.exp_avg.view({-1}), v = e.exp_avg_sq.view({-1});
    for (std::int64_t begin = 0; begin < g.size(0); begin += most) {
      const std::int64_t count = std::min(most, g.size(0) - begin);
      const auto piece = [&](const Tensor& x) { return x.narrow(0, begin, count); };
      if (!wide.defined() || wide.size(0) < count) wide = master.new_empty({count});
      const Tensor copy = wide.narrow(0, 0, count).copy_(piece(g));
      apply({{piece(master)}, {copy}, {piece(m)}, {piece(v)}, {e.updates}});
      piece(value).copy_(piece(master));
    }
  };
  for (Entry& e : entries_) {
    const Tensor& gradient = e.parameter.value.grad();
    if (e.parameter.weight_decay != decayed || !gradient.defined()) continue;
    e.updates.add_(1.0);
    if (e.weight.separate()) {
#if defined(__x86_64__)
      if (update_at_once(e, gradient)) continue;
#endif
      update_pieces(e, gradient);
      continue;
    }
    whole.values.push_back(e.weight.master());
    whole.gradients.push_back(e.weight.gradient());  // contiguous: the kernel walks memory
    whole.exp_avgs.push_back(e.exp_avg);
    whole.exp_avg_sqs.push_back(e.exp_avg_sq);
    whole.updates.push_back(e.updates);
  }
  if (!whole.values.empty()) apply(whole);
}

}  // namespace rlalgo::optim
