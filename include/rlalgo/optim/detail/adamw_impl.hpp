// Definitions of adamw.hpp.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/detail/named_state.hpp>
#include <rlalgo/optim/master_weight.hpp>
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
  const auto own = this->state();
  detail::require_same_tensors(own, state);
  for (const auto& [name, target] : own) target.copy_(state.at(name));
  for (const Entry& e : entries_) e.weight.publish();
}

RLALGO_INLINE void AdamW::update(double learning_rate, bool decayed) {
  constexpr std::size_t most_copies = std::size_t{64} << 20U;  // bytes of gradients in the masters' precision
  std::vector<const Entry*> taken;
  std::vector<Tensor> values, gradients, exp_avgs, exp_avg_sqs, updates;
  std::size_t copies = 0;
  const auto flush = [&] {
    if (taken.empty()) return;
    at::_ops::_fused_adamw_::call(values, gradients, exp_avgs, exp_avg_sqs, {}, updates, learning_rate, config_.beta1,
                                  config_.beta2, decayed ? config_.weight_decay : 0.0, config_.epsilon,
                                  /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/std::nullopt,
                                  /*found_inf=*/std::nullopt);
    for (const Entry* e : taken) e->weight.publish();
    taken.clear();
    for (auto* list : {&values, &gradients, &exp_avgs, &exp_avg_sqs, &updates}) list->clear();
    copies = 0;
  };
  for (Entry& e : entries_) {
    if (e.parameter.weight_decay != decayed || !e.parameter.value.grad().defined()) continue;
    e.updates.add_(1.0);
    taken.push_back(&e);
    values.push_back(e.weight.master());
    gradients.push_back(e.weight.gradient());  // contiguous: the kernel walks memory
    exp_avgs.push_back(e.exp_avg);
    exp_avg_sqs.push_back(e.exp_avg_sq);
    updates.push_back(e.updates);
    if (e.weight.separate()) copies += gradients.back().nbytes();
    if (copies >= most_copies) flush();
  }
  flush();
}

}  // namespace rlalgo::optim
