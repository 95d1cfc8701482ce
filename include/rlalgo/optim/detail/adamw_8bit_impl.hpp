// Definitions of adamw_8bit.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/optim/adamw_8bit.hpp>
#include <rlalgo/optim/detail/device_blocks.hpp>
#include <rlalgo/optim/detail/entries.hpp>
#include <rlalgo/optim/detail/named_state.hpp>
#include <rlalgo/optim/detail/on_device.hpp>
#include <rlalgo/optim/detail/rates.hpp>
#include <rlalgo/os/thread_pool.hpp>
#include <rlalgo/tensor/blockwise_8bit.hpp>
#include <rlalgo/tensor/tensor.hpp>
#include <rlalgo/tensor/threads.hpp>

namespace rlalgo::optim {

namespace detail {

using tensor::DynamicCode;

// What an update is the same for, for all elements of a tensor.
struct AdamStep {
  float beta1, rest1, beta2, rest2;  // rest = 1 − β
  float keep;                        // 1 − lr·λ
  float size;                        // −lr/(1 − β₁ᵗ)
  float root;                        // √(1 − β₂ᵗ)
  float epsilon;
};

// A tensor's memory.
struct AdamTensor {
  AdamStep step;
  const void* gradient;
  c10::ScalarType gradient_type;
  float* master;
  std::uint8_t *m, *v;
  float *m_scale, *v_scale;
  std::int64_t elements;
};

template <class T>
void widen(const void* from, std::int64_t begin, std::span<float> out) {
  const T* values = static_cast<const T*>(from) + begin;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(values[i]);
}

inline void widen(const AdamTensor& t, std::int64_t begin, std::span<float> out) {
  if (t.gradient_type == c10::ScalarType::BFloat16) return widen<c10::BFloat16>(t.gradient, begin, out);
  if (t.gradient_type == c10::ScalarType::Half) return widen<c10::Half>(t.gradient, begin, out);
  widen<float>(t.gradient, begin, out);
}

inline void update_block(const AdamTensor& t, std::int64_t block) {
  constexpr auto most = static_cast<std::int64_t>(DynamicCode::block);
  const DynamicCode &of_m = DynamicCode::with_sign(), &of_v = DynamicCode::without_sign();
  const std::int64_t begin = block * most;
  const auto n = static_cast<std::size_t>(std::min(most, t.elements - begin));
  std::array<float, DynamicCode::block> g{}, m{}, v{};
  const std::span<std::uint8_t> m_codes(t.m + begin, n), v_codes(t.v + begin, n);
  widen(t, begin, std::span(g).first(n));
  of_m.dequantize(m_codes, t.m_scale[block], std::span(m).first(n));
  of_v.dequantize(v_codes, t.v_scale[block], std::span(v).first(n));
  float* p = t.master + begin;
  const AdamStep& s = t.step;
  for (std::size_t i = 0; i < n; ++i) {
    m[i] = m[i] * s.beta1 + s.rest1 * g[i];
    v[i] = v[i] * s.beta2 + s.rest2 * g[i] * g[i];
    p[i] = p[i] * s.keep + s.size * m[i] / (std::sqrt(v[i]) / s.root + s.epsilon);
  }
  t.m_scale[block] = of_m.quantize(std::span(m).first(n), m_codes);
  t.v_scale[block] = of_v.quantize(std::span(v).first(n), v_codes);
}

inline bool ends_in_one_of(const std::string& name, const std::vector<std::string>& ends) {
  return std::any_of(ends.begin(), ends.end(), [&](const std::string& end) { return name.ends_with(end); });
}

// Whether moments of this parameter are quantised.
inline bool is_quantized(const model::Parameter& p, const AdamW8bitConfig& config) {
  const c10::ScalarType type = p.value.scalar_type();
  const bool narrow =
      type == c10::ScalarType::Float || type == c10::ScalarType::BFloat16 || type == c10::ScalarType::Half;
  return p.value.requires_grad() && narrow && p.value.numel() >= config.min_elements &&
         !ends_in_one_of(p.name, config.whole);
}

inline std::vector<model::Parameter> not_quantized(const std::vector<model::Parameter>& parameters,
                                                   const AdamW8bitConfig& config) {
  std::vector<model::Parameter> out;
  for (const model::Parameter& p : parameters)
    if (!is_quantized(p, config)) out.push_back(p);
  return out;
}

}  // namespace detail

RLALGO_INLINE AdamW8bit::AdamW8bit(std::vector<model::Parameter> parameters, AdamW8bitConfig config)
    : config_(config.adam),
      others_(detail::not_quantized(parameters, config), config.adam),
      others_left_(!detail::not_quantized(parameters, config).empty()),
      pool_(std::make_unique<os::ThreadPool>(tensor::available_threads())) {
  constexpr auto block = static_cast<std::int64_t>(tensor::DynamicCode::block);
  for (model::Parameter& p : parameters) {
    if (!detail::is_quantized(p, config)) continue;
    if (!p.value.is_contiguous())
      core::raise("optim", 4, {.what = "a trained parameter must be contiguous in memory", .found = p.name});
    MasterWeight weight(p.value);
    const Tensor master = weight.master();
    if (!master.device().is_cpu()) {  // states: below
      entries_.push_back({std::move(p), std::move(weight), {}, {}, {}, {}, {}});
      continue;
    }
    const auto bytes = master.options().dtype(c10::ScalarType::Byte);
    const std::int64_t blocks = (master.numel() + block - 1) / block;
    entries_.push_back({std::move(p), std::move(weight), master.new_zeros(master.sizes(), bytes),
                        master.new_zeros(master.sizes(), bytes), master.new_zeros({blocks}), master.new_zeros({blocks}),
                        master.new_zeros({})});
  }
  std::map<std::string, std::vector<Entry*>> elsewhere;  // by device
  for (Entry& e : entries_)
    if (!e.parameter.value.device().is_cpu()) elsewhere[e.parameter.value.device().str()].push_back(&e);
  for (const auto& [device, list] : elsewhere) {
    std::vector<detail::DeviceBlocks::Part> parts;
    for (const Entry* e : list) parts.push_back({e->parameter, e->weight});
    devices_.push_back(std::make_shared<detail::DeviceBlocks>(std::move(parts)));
    for (std::size_t i = 0; i < list.size(); ++i) {
      const detail::BlockState state = devices_.back()->state(i);
      list[i]->exp_avg = state.m;
      list[i]->exp_avg_sq = state.v;
      list[i]->exp_avg_scale = state.m_scale;
      list[i]->exp_avg_sq_scale = state.v_scale;
      list[i]->updates = state.updates;
    }
  }
}

RLALGO_INLINE void AdamW8bit::set_momentum(double beta1) {
  config_.beta1 = beta1;
  others_.set_momentum(beta1);
}

RLALGO_INLINE void AdamW8bit::set_rates(const Rates& rates) {
  others_.set_rates(rates);
  detail::take_rates(entries_, rates);
  for (const auto& blocks : devices_) blocks->set_rates(rates);
}

RLALGO_INLINE void AdamW8bit::zero_grad() {
  others_.zero_grad();
  detail::drop_gradients(entries_);
}

RLALGO_INLINE bool AdamW8bit::clips_on_device() const {
  if (entries_.empty()) return others_.clips_on_device();
  return detail::on_one_device(entries_) &&
         (!others_left_ ||
          (others_.clips_on_device() && others_.device() == entries_.front().parameter.value.device()));
}

RLALGO_INLINE void AdamW8bit::step(double learning_rate) {
  const c10::NoGradGuard no_grad;
  others_.step(learning_rate);
  update_here(learning_rate);
  for (const auto& blocks : devices_) blocks->step(config_, learning_rate, nullptr);
}

RLALGO_INLINE void AdamW8bit::step(double learning_rate, const DeviceClip& clip) {
  const c10::NoGradGuard no_grad;
  others_.step(learning_rate, clip);
  for (const auto& blocks : devices_) blocks->step(config_, learning_rate, &clip);
}

RLALGO_INLINE void AdamW8bit::update_here(double learning_rate) {
  constexpr std::int64_t blocks_of_a_task = 64;
  struct Task {
    const detail::AdamTensor* tensor;
    std::int64_t begin, end;
  };
  std::vector<Tensor> gradients;  // held until the update is over
  std::vector<detail::AdamTensor> tensors;
  std::vector<const Entry*> updated;
  for (Entry& e : entries_) {
    if (!e.parameter.value.device().is_cpu() || !e.parameter.value.grad().defined()) continue;
    e.updates.add_(1.0);
    const double t = e.updates.item<double>();
    const double rate = learning_rate * e.rate;
    const double decay = e.parameter.weight_decay ? config_.weight_decay : 0.0;
    gradients.push_back(e.parameter.value.grad().contiguous());
    tensors.push_back({.step = {.beta1 = static_cast<float>(config_.beta1),
                                .rest1 = static_cast<float>(1.0 - config_.beta1),
                                .beta2 = static_cast<float>(config_.beta2),
                                .rest2 = static_cast<float>(1.0 - config_.beta2),
                                .keep = static_cast<float>(1.0 - rate * decay),
                                .size = static_cast<float>(-rate / (1.0 - std::pow(config_.beta1, t))),
                                .root = static_cast<float>(std::sqrt(1.0 - std::pow(config_.beta2, t))),
                                .epsilon = static_cast<float>(config_.epsilon)},
                       .gradient = gradients.back().const_data_ptr(),
                       .gradient_type = gradients.back().scalar_type(),
                       .master = e.weight.master().mutable_data_ptr<float>(),
                       .m = e.exp_avg.mutable_data_ptr<std::uint8_t>(),
                       .v = e.exp_avg_sq.mutable_data_ptr<std::uint8_t>(),
                       .m_scale = e.exp_avg_scale.mutable_data_ptr<float>(),
                       .v_scale = e.exp_avg_sq_scale.mutable_data_ptr<float>(),
                       .elements = e.exp_avg.numel()});
    updated.push_back(&e);
  }
  std::vector<Task> tasks;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t blocks = updated[i]->exp_avg_scale.numel();
    for (std::int64_t b = 0; b < blocks; b += blocks_of_a_task)
      tasks.push_back({&tensors[i], b, std::min(blocks, b + blocks_of_a_task)});
  }
  pool_->run(static_cast<std::uint32_t>(tasks.size()), [&](std::uint32_t task, int) {
    for (std::int64_t b = tasks[task].begin; b < tasks[task].end; ++b) detail::update_block(*tasks[task].tensor, b);
  });
  for (const Entry* e : updated) e->weight.publish();
}

RLALGO_INLINE std::vector<std::pair<std::string, Tensor>> AdamW8bit::state() const {
  auto out = others_.state();
  for (const Entry& e : entries_) {
    out.emplace_back(e.parameter.name + ".exp_avg", e.exp_avg);
    out.emplace_back(e.parameter.name + ".exp_avg_sq", e.exp_avg_sq);
    out.emplace_back(e.parameter.name + ".exp_avg_scale", e.exp_avg_scale);
    out.emplace_back(e.parameter.name + ".exp_avg_sq_scale", e.exp_avg_sq_scale);
    out.emplace_back(e.parameter.name + ".step", e.updates);
    if (e.weight.separate()) out.emplace_back(e.parameter.name + ".master", e.weight.master());
  }
  return out;
}

RLALGO_INLINE void AdamW8bit::load_state(const std::map<std::string, Tensor>& state) {
  const c10::NoGradGuard no_grad;
  const auto own = this->state();
  detail::require_same_tensors(own, state);
  std::map<std::string, Tensor> of_others;
  for (const auto& [name, target] : others_.state()) of_others[name] = state.at(name);
  others_.load_state(of_others);
  for (const auto& [name, target] : own)
    if (!of_others.contains(name)) target.copy_(state.at(name));
  for (const Entry& e : entries_) e.weight.publish();
}

}  // namespace rlalgo::optim
