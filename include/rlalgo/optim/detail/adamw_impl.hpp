// Definitions of adamw.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/cpu/features.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/detail/entries.hpp>
#include <rlalgo/optim/detail/master_update.hpp>
#include <rlalgo/optim/detail/on_device.hpp>
#include <rlalgo/optim/detail/rates.hpp>
#include <rlalgo/optim/master_weight.hpp>
#include <rlalgo/tensor/on_threads.hpp>
#include <rlalgo/tensor/tensor.hpp>

// Needs the tensor type before it.
#include <ATen/ops/_foreach_add_ops.h>
#include <ATen/ops/_foreach_copy_ops.h>
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
  for (const Alike& alike : lists()) {
    update(learning_rate * alike.rate, alike);
    update_on_device(learning_rate * alike.rate, alike, nullptr);
  }
}

RLALGO_INLINE std::set<AdamW::Alike> AdamW::lists() const {
  std::set<Alike> out;
  for (const Entry& e : entries_) out.insert({e.parameter.weight_decay, e.rate});
  return out;
}

RLALGO_INLINE bool AdamW::clips_on_device() const { return detail::on_one_device(entries_); }

RLALGO_INLINE void AdamW::step(double learning_rate, const DeviceClip& clip) {
  const c10::NoGradGuard no_grad;
  for (const Alike& alike : lists()) update_on_device(learning_rate * alike.rate, alike, &clip);
}

RLALGO_INLINE void AdamW::update_list(const UpdateList& list, double learning_rate, bool decayed,
                                      const DeviceClip* clip) const {
  const auto given = [](const Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; };
  at::_ops::_fused_adamw_::call(list.values, list.gradients, list.exp_avgs, list.exp_avg_sqs, {}, list.updates,
                                learning_rate, config_.beta1, config_.beta2, decayed ? config_.weight_decay : 0.0,
                                config_.epsilon, /*amsgrad=*/false, /*maximize=*/false,
                                /*grad_scale=*/clip != nullptr ? given(clip->divisor) : std::nullopt,
                                /*found_inf=*/clip != nullptr ? given(clip->skip) : std::nullopt);
}

RLALGO_INLINE void AdamW::update_on_device(double learning_rate, const Alike& alike, const DeviceClip* clip) {
  const bool decayed = alike.decayed;
  const std::int64_t most = std::max<std::int64_t>(config_.elements_at_once, 1);
  std::vector<Entry*> moved;
  for (Entry& e : entries_)
    if (alike.has(e) && !e.parameter.value.device().is_cpu() && e.parameter.value.grad().defined()) moved.push_back(&e);
  if (moved.empty()) return;
  std::vector<Tensor> counts;
  for (const Entry* e : moved) counts.push_back(e->updates);
  if (clip == nullptr)
    at::_ops::_foreach_add__Scalar::call(counts, 1.0);
  else
    at::_ops::_foreach_add__Tensor::call(counts, clip->skip.neg().add_(1.0), 1.0);
  std::map<std::pair<std::string, c10::ScalarType>, UpdateList> whole;  // by device and dtype
  // With a master of its own: pieces of parameters, and for their gradients in its precision the same memory.
  struct Piece {
    const Entry* entry;
    std::int64_t begin, size;
  };
  std::vector<Piece> pieces;
  std::int64_t together = 0;
  const auto flush = [&] {
    if (pieces.empty()) return;
    const Tensor wide = pieces.front().entry->weight.master().new_empty({together});
    UpdateList list;
    std::vector<Tensor> narrow, published;
    std::int64_t at = 0;
    for (const Piece& p : pieces) {
      const auto part = [&](const Tensor& x) { return x.view({-1}).narrow(0, p.begin, p.size); };
      list.values.push_back(part(p.entry->weight.master()));
      list.gradients.push_back(wide.narrow(0, std::exchange(at, at + p.size), p.size));
      list.exp_avgs.push_back(part(p.entry->exp_avg));
      list.exp_avg_sqs.push_back(part(p.entry->exp_avg_sq));
      list.updates.push_back(p.entry->updates);
      narrow.push_back(part(p.entry->parameter.value.grad().contiguous()));
      published.push_back(part(p.entry->weight.value().detach()));
    }
    at::_ops::_foreach_copy_::call(list.gradients, narrow, false);
    update_list(list, learning_rate, decayed, clip);
    at::_ops::_foreach_copy_::call(published, list.values, false);
    pieces.clear();
    together = 0;
  };
  for (const Entry* e : moved) {
    if (!e->weight.separate()) {
      UpdateList& list = whole[{e->weight.master().device().str(), e->weight.master().scalar_type()}];
      list.values.push_back(e->weight.master());
      list.gradients.push_back(e->weight.gradient());
      list.exp_avgs.push_back(e->exp_avg);
      list.exp_avg_sqs.push_back(e->exp_avg_sq);
      list.updates.push_back(e->updates);
      continue;
    }
    const Entry* const first = pieces.empty() ? e : pieces.front().entry;
    if (first->weight.master().device() != e->weight.master().device() ||
        first->parameter.value.scalar_type() != e->parameter.value.scalar_type())
      flush();
    for (std::int64_t begin = 0; begin < e->weight.master().numel();) {
      if (together == most) flush();
      const std::int64_t size = std::min(most - together, e->weight.master().numel() - begin);
      pieces.push_back({e, begin, size});
      together += size;
      begin += size;
    }
  }
  flush();
  for (const auto& [kind, list] : whole) update_list(list, learning_rate, decayed, clip);
}

RLALGO_INLINE void AdamW::set_rates(const Rates& rates) { detail::take_rates(entries_, rates); }

RLALGO_INLINE void AdamW::zero_grad() { detail::drop_gradients(entries_); }

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
  detail::load_entries(entries_, this->state(), state);
}

RLALGO_INLINE void AdamW::update(double learning_rate, const Alike& alike) {
  const bool decayed = alike.decayed;
  UpdateList whole;
#if defined(__x86_64__)
  // Of a bfloat16 weight whose gradient lies as it does, by a kernel of our own.
  const auto update_at_once = [&](Entry& e, const Tensor& gradient) {
    const Tensor& value = e.parameter.value;
    if (value.scalar_type() != c10::ScalarType::BFloat16 || gradient.scalar_type() != value.scalar_type() ||
        !gradient.is_contiguous() || !cpu::has_lanes())
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
      update_list({{piece(master)}, {copy}, {piece(m)}, {piece(v)}, {e.updates}}, learning_rate, decayed, nullptr);
      piece(value).copy_(piece(master));
    }
  };
  for (Entry& e : entries_) {
    const Tensor& gradient = e.parameter.value.grad();
    if (!alike.has(e) || !gradient.defined() || !e.parameter.value.device().is_cpu()) continue;
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
  if (!whole.values.empty()) update_list(whole, learning_rate, decayed, nullptr);
}

}  // namespace rlalgo::optim
