// A layer's gated delta rule in a pass on the CPU (model/gated_delta.hpp has the formula): token after token, from the state that
// each row's sequence carries.
//
// What a sequence carries (KvCache::Sequence::state) is for each such layer its window [κ − 1, C], oldest first, then S [hv, d, e],
// in float32. A row's numbers depend on its own sequence alone, and on the order of its tokens, which is always the same.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <rlalgo/cpu/features.hpp>
#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/cpu/lanes.hpp>
#include <rlalgo/inference/detail/activations.hpp>
#include <rlalgo/inference/detail/decoder_view.hpp>
#include <rlalgo/inference/detail/phases.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/model/decoder_config.hpp>

namespace rlalgo::inference::detail {

// Numbers of a row that o_proj reads, at most.
[[nodiscard]] inline std::int64_t widest_mix(const model::DecoderConfig& config) {
  std::int64_t out = config.heads * config.head_dim;
  for (const model::LayerSpec& spec : config.specs) out = std::max(out, spec.delta.values());
  return out;
}

[[nodiscard]] inline bool has_output_gate(const model::DecoderConfig& config) {
  return std::any_of(config.specs.begin(), config.specs.end(), [](const auto& spec) { return spec.output_gate; });
}

// One token of one head: S [d, e] in place, and o [e]. k has length 1.
struct DeltaStep {
  const float *q, *k, *v;  // [d] ×2, [e]
  float alpha, beta;
  std::int64_t d, e;
  float *state, *scratch, *out;  // [d, e], [e], [e]
};

inline void delta_step_plain(const DeltaStep& s) {
  std::fill_n(s.scratch, s.e, 0.0F);
  for (std::int64_t i = 0; i < s.d; ++i) {
    float* const row = s.state + i * s.e;
    for (std::int64_t j = 0; j < s.e; ++j) {
      row[j] *= s.alpha;
      s.scratch[j] += row[j] * s.k[i];
    }
  }
  for (std::int64_t j = 0; j < s.e; ++j) s.scratch[j] = s.beta * (s.v[j] - s.scratch[j]);
  std::fill_n(s.out, s.e, 0.0F);
  for (std::int64_t i = 0; i < s.d; ++i) {
    float* const row = s.state + i * s.e;
    for (std::int64_t j = 0; j < s.e; ++j) {
      row[j] += s.k[i] * s.scratch[j];
      s.out[j] += row[j] * s.q[i];
    }
  }
}

#if defined(__x86_64__)
// The same, sixteen columns at a time, which are read once from memory and once from the caches.
[[RLALGO_LANES]] inline void delta_step_lanes(const DeltaStep& s) {
  namespace lanes = cpu::lanes;
  const __m512 alpha = _mm512_set1_ps(s.alpha), beta = _mm512_set1_ps(s.beta);
  for (std::int64_t j = 0; j < s.e; j += lanes::count) {
    const __mmask16 some = lanes::first(s.e - j);
    __m512 seen = _mm512_setzero_ps(), out = _mm512_setzero_ps();
    for (std::int64_t i = 0; i < s.d; ++i) {
      const __m512 row = _mm512_mul_ps(alpha, lanes::load(s.state + i * s.e + j, some));
      lanes::store(s.state + i * s.e + j, some, row);
      seen = _mm512_fmadd_ps(row, _mm512_set1_ps(s.k[i]), seen);
    }
    const __m512 change = _mm512_mul_ps(beta, _mm512_sub_ps(lanes::load(s.v + j, some), seen));
    for (std::int64_t i = 0; i < s.d; ++i) {
      const __m512 row = _mm512_fmadd_ps(_mm512_set1_ps(s.k[i]), change, lanes::load(s.state + i * s.e + j, some));
      lanes::store(s.state + i * s.e + j, some, row);
      out = _mm512_fmadd_ps(row, _mm512_set1_ps(s.q[i]), out);
    }
    lanes::store(s.out + j, some, out);
  }
}
#endif

inline void delta_step(const DeltaStep& s) {
#if defined(__x86_64__)
  static const bool wide = cpu::has_lanes();
  if (wide) return delta_step_lanes(s);
#endif
  delta_step_plain(s);
}

class DeltaPass {
 public:
  // Memory for the widest layer; none where no layer has the rule.
  DeltaPass(const model::DecoderConfig& config, std::int64_t max_rows)
      : hidden_(config.hidden_size), epsilon_(static_cast<float>(config.norm.epsilon)) {
    std::int64_t channels = 0, values = 0, heads = 0, grouped = 0;
    for (std::int64_t l = 0; l < config.layers; ++l) {
      const model::DeltaSpec& d = config.spec(l).delta;
      channels = std::max(channels, d.channels());
      values = std::max(values, d.values());
      heads = std::max(heads, d.value_heads);
      if (d.grouped) grouped = std::max(grouped, d.channels() + d.values());
    }
    if (heads == 0) return;
    inputs_ = Activations(max_rows, channels);
    mixed_ = Activations(max_rows, channels);
    gates_ = Activations(max_rows, values);
    beta_ = Activations(max_rows, heads);
    alpha_ = Activations(max_rows, heads);
    if (grouped > 0) {
      grouped_ = Activations(max_rows, grouped);
      grouped_small_ = Activations(max_rows, 2 * heads);
    }
    ones_.assign(static_cast<std::size_t>(channels), 1.0F);
  }

  // out[i] = what out_proj is given of x[i]. `offset`: of the layer in what sequences carry, in numbers. `pass` as for ExpertPass.
  template <class Pass>
  void run(Pass& pass, Phases& phases, const cpu::Kernels& kernels, const LayerView& layer,
           const model::DeltaSpec& spec, Activations& x, std::span<const Row> rows, std::int64_t offset,
           Activations& out) {
    const auto m = static_cast<std::int64_t>(rows.size());
    find_runs(rows);
    project(pass, phases, layer, spec, x, m);
    phases.run(m, {.each = 1, .flops = (2 * spec.kernel + 40) * spec.channels()},
               [&](PhaseRows of, std::int64_t begin, std::int64_t end, int) {
                 for (std::int64_t i = of.first + begin; i < of.first + end; ++i)
                   convolve(kernels, layer, spec, rows, i, offset);
               });
    const auto runs = static_cast<std::int64_t>(runs_.size());
    const std::int64_t state = spec.key_dim * spec.value_dim;
    phases.run(1, {.columns = runs * spec.value_heads, .flops = 8 * state * (m / std::max<std::int64_t>(1, runs) + 1)},
               [&](PhaseRows, std::int64_t begin, std::int64_t end, int) {
                 std::vector<float> scratch(static_cast<std::size_t>(spec.value_dim));
                 for (std::int64_t item = begin; item < end; ++item)
                   follow(pass, kernels, layer, spec, rows, runs_[static_cast<std::size_t>(item / spec.value_heads)],
                          item % spec.value_heads, offset + spec.window_size(), scratch.data(), out);
               });
    phases.run(1, {.columns = runs, .flops = 4 * spec.window_size()},
               [&](PhaseRows, std::int64_t begin, std::int64_t end, int) {
                 for (std::int64_t r = begin; r < end; ++r)
                   keep_windows(spec, rows, runs_[static_cast<std::size_t>(r)], offset);
               });
    pass.rows_anew();
  }

 private:
  // Rows [begin, end) of one sequence.
  struct Run {
    std::int64_t begin, end;
  };

  [[nodiscard]] static float* carried(std::byte* state, std::int64_t offset) {
    return reinterpret_cast<float*>(state) + offset;
  }

  void find_runs(std::span<const Row> rows) {
    runs_.clear();
    begin_.resize(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      if (i == 0 || rows[i].state != rows[i - 1].state) runs_.push_back({at, at});
      runs_.back().end = at + 1;
      begin_[i] = runs_.back().begin;
    }
  }

  template <class Pass>
  void project(Pass& pass, Phases& phases, const LayerView& layer, const model::DeltaSpec& spec, Activations& x,
               std::int64_t m) {
    const auto product = [&](const Matrix& map, Activations& to) {
      phases.run(m, {.columns = map.rows, .flops = 2 * hidden_},
                 [&](PhaseRows rows, std::int64_t begin, std::int64_t end, int) {
                   pass.multiply(map, x, rows, begin, end, to.row(rows.first) + begin, to.stride());
                 });
    };
    if (!spec.grouped) {
      pass.low_rank({&layer.in_proj_qkv, &layer.in_proj_z, &layer.in_proj_b, &layer.in_proj_a}, x, m);
      product(layer.in_proj_qkv, inputs_);
      product(layer.in_proj_z, gates_);
      product(layer.in_proj_b, beta_);
      product(layer.in_proj_a, alpha_);
      return;
    }
    pass.low_rank({&layer.in_proj_qkvz, &layer.in_proj_ba}, x, m);
    product(layer.in_proj_qkvz, grouped_);
    product(layer.in_proj_ba, grouped_small_);
    for (std::int64_t i = 0; i < m; ++i) ungroup(spec, i);
  }

  void ungroup(const model::DeltaSpec& spec, std::int64_t i) {
    const std::int64_t d = spec.key_dim, share = spec.value_heads / spec.key_heads, values = share * spec.value_dim;
    const float *from = grouped_.row(i), *small = grouped_small_.row(i);
    float* const to = inputs_.row(i);
    for (std::int64_t h = 0; h < spec.key_heads; ++h) {
      std::copy_n(from, d, to + h * d);
      std::copy_n(from + d, d, to + spec.keys() + h * d);
      std::copy_n(from + 2 * d, values, to + 2 * spec.keys() + h * values);
      std::copy_n(from + 2 * d + values, values, gates_.row(i) + h * values);
      from += 2 * (d + values);
      std::copy_n(small, share, beta_.row(i) + h * share);
      std::copy_n(small + share, share, alpha_.row(i) + h * share);
      small += 2 * share;
    }
  }

  // The inputs of the j-th token before row i; null: there is none.
  [[nodiscard]] const float* before(const model::DeltaSpec& spec, std::span<const Row> rows, std::int64_t i,
                                    std::int64_t j, std::int64_t offset) const {
    const Row& row = rows[static_cast<std::size_t>(i)];
    const std::int64_t begin = begin_[static_cast<std::size_t>(i)];
    if (row.position < j) return nullptr;
    if (i - j >= begin) return inputs_.row(i - j);
    return carried(row.state, offset) + (spec.kernel - 1 + i - j - begin) * spec.channels();
  }

  // q, k and v of row i, and its gates.
  void convolve(const cpu::Kernels& kernels, const LayerView& layer, const model::DeltaSpec& spec,
                std::span<const Row> rows, std::int64_t i, std::int64_t offset) {
    const std::int64_t channels = spec.channels(), taps = spec.kernel;
    float* const out = mixed_.row(i);
    for (std::int64_t j = 0; j < taps; ++j) {
      const float* const from = before(spec, rows, i, j, offset);
      const float* const weight = layer.conv + taps - 1 - j;
      if (j == 0)
        for (std::int64_t c = 0; c < channels; ++c) out[c] = from[c] * weight[c * taps];
      else if (from != nullptr)
        for (std::int64_t c = 0; c < channels; ++c) out[c] += from[c] * weight[c * taps];
    }
    kernels.silu_multiply(out, ones_.data(), channels);
    const float scale = 1.0F / std::sqrt(static_cast<float>(spec.key_dim));
    for (std::int64_t h = 0; h < 2 * spec.key_heads; ++h) {
      float* const head = out + h * spec.key_dim;
      float sum = 1e-6F;
      for (std::int64_t c = 0; c < spec.key_dim; ++c) sum += head[c] * head[c];
      const float factor = (h < spec.key_heads ? scale : 1.0F) / std::sqrt(sum);
      for (std::int64_t c = 0; c < spec.key_dim; ++c) head[c] *= factor;
    }
    for (std::int64_t h = 0; h < spec.value_heads; ++h) {
      float &b = beta_.row(i)[h], &a = alpha_.row(i)[h];
      b = 1.0F / (1.0F + std::exp(-b));
      const float x = a + layer.dt_bias[h], softplus = std::max(x, 0.0F) + std::log1p(std::exp(-std::abs(x)));
      a = std::exp(-std::exp(layer.a_log[h]) * softplus);
    }
  }

  // One value head of a run.
  template <class Pass>
  void follow(Pass& pass, const cpu::Kernels& kernels, const LayerView& layer, const model::DeltaSpec& spec,
              std::span<const Row> rows, const Run& run, std::int64_t h, std::int64_t offset, float* scratch,
              Activations& out) {
    const std::int64_t d = spec.key_dim, e = spec.value_dim, key_head = h / (spec.value_heads / spec.key_heads);
    const Row& first = rows[static_cast<std::size_t>(run.begin)];
    float* const state = carried(first.state, offset) + h * d * e;
    if (first.position == 0) std::fill_n(state, d * e, 0.0F);
    for (std::int64_t i = run.begin; i < run.end; ++i) {
      const float* const x = mixed_.row(i);
      float *const o = out.row(i) + h * e, *const gate = gates_.row(i) + h * e;
      delta_step({.q = x + key_head * d,
                  .k = x + spec.keys() + key_head * d,
                  .v = x + 2 * spec.keys() + h * e,
                  .alpha = alpha_.row(i)[h],
                  .beta = beta_.row(i)[h],
                  .d = d,
                  .e = e,
                  .state = state,
                  .scratch = scratch,
                  .out = o});
      kernels.rms_norm(o, layer.delta_norm, epsilon_, o, e);
      kernels.silu_multiply(gate, o, e);
      std::copy_n(gate, e, o);
      pass.round(out, i, h * e, (h + 1) * e);
      if (std::byte* const saved = rows[static_cast<std::size_t>(i)].saved; saved != nullptr)
        std::copy_n(state, d * e, carried(saved, offset) + h * d * e);
    }
  }

  // What the next tokens still see: behind rows whose state is saved, and behind the last one.
  void keep_windows(const model::DeltaSpec& spec, std::span<const Row> rows, const Run& run,
                    std::int64_t offset) const {
    const std::int64_t channels = spec.channels(), window = spec.kernel - 1;
    const auto keep = [&](std::int64_t i, std::byte* to) {
      for (std::int64_t j = 0; j < window; ++j) {  // from old to new: what is overwritten has been read
        float* const place = carried(to, offset) + j * channels;
        const float* const from = before(spec, rows, i, window - 1 - j, offset);
        if (from == nullptr)
          std::fill_n(place, channels, 0.0F);
        else if (from != place)
          std::memcpy(place, from, static_cast<std::size_t>(channels) * sizeof(float));
      }
    };
    for (std::int64_t i = run.begin; i < run.end; ++i)
      if (std::byte* const saved = rows[static_cast<std::size_t>(i)].saved; saved != nullptr) keep(i, saved);
    keep(run.end - 1, rows[static_cast<std::size_t>(run.begin)].state);
  }

  std::int64_t hidden_;
  float epsilon_;
  Activations inputs_{0, 0}, mixed_{0, 0};           // [max_rows, C]
  Activations gates_{0, 0};                          // [max_rows, hv·e]
  Activations beta_{0, 0}, alpha_{0, 0};             // [max_rows, hv]
  Activations grouped_{0, 0}, grouped_small_{0, 0};  // [max_rows, C + hv·e], [max_rows, 2hv]
  std::vector<float> ones_;                          // [C]
  std::vector<Run> runs_;
  std::vector<std::int64_t> begin_;  // of each row's run
};

}  // namespace rlalgo::inference::detail
