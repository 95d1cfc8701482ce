// The experts of a layer in a pass on the CPU (model/experts.hpp has the formula): rows are sorted by expert, and all experts'
// products are one phase.
//
// A row's numbers do not depend on the others: its logits, the choice, each expert's product of it and the order of the sum are
// its own.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <c10/util/BFloat16.h>

#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/inference/detail/activations.hpp>
#include <rlalgo/inference/detail/decoder_view.hpp>
#include <rlalgo/inference/detail/phases.hpp>
#include <rlalgo/model/decoder_config.hpp>

namespace rlalgo::inference::detail {

class ExpertPass {
 public:
  // Memory for the widest layer; none where no layer has experts.
  ExpertPass(const model::DecoderConfig& config, std::int64_t max_rows, bool rounded) : hidden_(config.hidden_size) {
    std::int64_t pairs = 0, count = 0, width = 0, shared = 0;
    for (std::int64_t l = 0; l < config.layers; ++l) {
      const model::ExpertSpec& e = config.spec(l).experts;
      pairs = std::max(pairs, e.chosen * max_rows);
      count = std::max(count, e.count);
      width = std::max(width, e.width);
      shared = std::max(shared, e.shared_width);
    }
    if (count == 0) return;
    most_pairs_ = pairs;
    logits_ = Activations(max_rows, count);
    rows_ = Activations(pairs, hidden_, rounded);
    gate_ = Activations(pairs, width, rounded);
    up_ = Activations(pairs, width);
    given_ = Activations(pairs, hidden_);
    if (shared == 0) return;
    shared_gate_ = Activations(max_rows, shared, rounded);
    shared_up_ = Activations(max_rows, shared);
    strength_ = Activations(max_rows, 1);
  }

  // The experts that row i of the last run passed, the likeliest first.
  [[nodiscard]] std::size_t expert(std::int64_t row, std::int64_t number, std::int64_t chosen) const {
    return expert_[static_cast<std::size_t>(row * chosen + number)];
  }

  // Rows that the products of experts have at most.
  [[nodiscard]] std::int64_t most_pairs() const { return most_pairs_; }

  // out[i] = what the layer's experts make of x[i], for m rows. `pass` has what the products of a pass share:
  //   multiply(matrix, x, rows, begin, end, y, ldy), low_rank(maps, x, m), rows_anew(), and round(x, row, begin, end).
  template <class Pass>
  void run(Pass& pass, Phases& phases, const cpu::Kernels& kernels, const LayerView& layer,
           const model::LayerSpec& spec, Activations& x, std::int64_t m, Activations& out) {
    const model::ExpertSpec& e = spec.experts;
    const auto act_multiply =
        spec.activation == model::Activation::silu ? kernels.silu_multiply : kernels.gelu_tanh_multiply;
    phases.run(m, {.columns = e.count, .flops = 2 * hidden_},
               [&](PhaseRows rows, std::int64_t begin, std::int64_t end, int) {
                 pass.multiply(layer.router, x, rows, begin, end, logits_.row(rows.first) + begin, logits_.stride());
               });
    choose(e, m, layer.router.bf16);
    for (std::size_t at = 0; at < token_.size(); ++at) {
      std::copy_n(x.row(token_[at]), hidden_, rows_.row(static_cast<std::int64_t>(at)));
      pass.round(rows_, static_cast<std::int64_t>(at), 0, hidden_);
    }
    pass.rows_anew();
    low_rank(pass, phases, kernels, layer, rows_, [](const auto& expert) -> const Matrix& { return expert.gate_proj; });
    each_part(phases, e.width, 4 * hidden_, [&](std::size_t i, PhaseRows rows, std::int64_t begin, std::int64_t end) {
      const auto& expert = layer.experts[i];
      pass.multiply(expert.gate_proj, rows_, rows, begin, end, gate_.row(rows.first) + begin, gate_.stride());
      pass.multiply(expert.up_proj, rows_, rows, begin, end, up_.row(rows.first) + begin, up_.stride());
      for (std::int64_t at = rows.first; at < rows.first + rows.count; ++at) {
        if (e.gate_limit > 0.0) clamp(e, gate_.row(at) + begin, up_.row(at) + begin, end - begin);
        act_multiply(gate_.row(at) + begin, up_.row(at) + begin, end - begin);
        pass.round(gate_, at, begin, end);
      }
    });
    pass.rows_anew();
    low_rank(pass, phases, kernels, layer, gate_, [](const auto& expert) -> const Matrix& { return expert.down_proj; });
    each_part(phases, hidden_, 2 * e.width, [&](std::size_t i, PhaseRows rows, std::int64_t begin, std::int64_t end) {
      pass.multiply(layer.experts[i].down_proj, gate_, rows, begin, end, given_.row(rows.first) + begin,
                    given_.stride());
    });
    phases.run(m, {.each = 1, .flops = 4 * e.chosen * hidden_},
               [&](PhaseRows rows, std::int64_t begin, std::int64_t end, int) {
                 for (std::int64_t i = rows.first + begin; i < rows.first + end; ++i) add_up(e, i, out.row(i));
               });
    if (e.shared_width > 0) add_shared(pass, phases, act_multiply, layer, e, x, m, out);
  }

 private:
  // What act(gate)·up reads of clamped gates (model/experts.hpp).
  static void clamp(const model::ExpertSpec& e, float* gate, float* up, std::int64_t n) {
    const auto limit = static_cast<float>(e.gate_limit), slope = static_cast<float>(e.gate_slope);
    for (std::int64_t j = 0; j < n; ++j) {
      gate[j] = slope * std::min(gate[j], limit);
      up[j] = (std::clamp(up[j], -limit, limit) + 1.0F) / slope;
    }
  }

  // The experts of each row, sorted as model::ExpertGroups are. Logits of bfloat16 weights are rounded, as training has them.
  void choose(const model::ExpertSpec& e, std::int64_t m, bool rounded) {
    const auto count = static_cast<std::size_t>(e.count), chosen = static_cast<std::size_t>(e.chosen);
    std::vector<std::size_t> order(count);
    std::vector<std::size_t>& expert = expert_;
    expert.resize(static_cast<std::size_t>(m) * chosen);
    weight_.assign(expert.size(), 0.0F);
    for (std::int64_t i = 0; i < m; ++i) {
      float* const p = logits_.row(i);
      if (rounded)
        for (std::size_t j = 0; j < count; ++j) p[j] = static_cast<float>(c10::BFloat16(p[j]));
      const float most = *std::max_element(p, p + count);
      float sum = 0.0F;
      for (std::size_t j = 0; j < count; ++j) sum += p[j] = std::exp(p[j] - most);
      for (std::size_t j = 0; j < count; ++j) p[j] /= sum;
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::partial_sort(order.begin(), order.begin() + e.chosen, order.end(),
                        [&](std::size_t a, std::size_t b) { return p[a] > p[b] || (p[a] == p[b] && a < b); });
      const std::size_t first = static_cast<std::size_t>(i) * chosen;
      float total = e.normalised ? 0.0F : 1.0F;
      for (std::size_t j = 0; j < chosen && e.normalised; ++j) total += p[order[j]];
      for (std::size_t j = 0; j < chosen; ++j) {
        expert[first + j] = order[j];
        weight_[first + j] = p[order[j]] / total;
      }
    }
    begin_.assign(count + 1, 0);
    for (const std::size_t one : expert) ++begin_[one + 1];
    std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
    token_.resize(expert.size());
    place_.resize(expert.size());
    std::vector<std::int64_t> next(begin_.begin(), begin_.end() - 1);
    for (std::size_t pair = 0; pair < expert.size(); ++pair) {
      place_[pair] = next[expert[pair]]++;
      token_[static_cast<std::size_t>(place_[pair])] = static_cast<std::int64_t>(pair / chosen);
    }
    busy_.clear();
    for (std::size_t i = 0; i < count; ++i)
      if (begin_[i + 1] > begin_[i]) busy_.push_back(i);
  }

  // The A x of every expert's rows, where experts have an adapter; gate and up have one A.
  template <class Pass, class Map>
  void low_rank(Pass& pass, Phases& phases, const cpu::Kernels& kernels, const LayerView& layer, Activations& x,
                Map&& map) {
    const Matrix& first = map(layer.experts.front());
    if (first.rank == 0) return;
    each_part(phases, first.rank, 2 * first.columns,
              [&](std::size_t i, PhaseRows rows, std::int64_t begin, std::int64_t end) {
                kernels.linear_f32({.x = x.row(rows.first),
                                    .m = rows.count,
                                    .k = first.columns,
                                    .ldx = x.stride(),
                                    .w = map(layer.experts[i]).lora_a,
                                    .begin = begin,
                                    .end = end,
                                    .y = pass.rank_.row(rows.first) + begin,
                                    .ldy = pass.rank_.stride(),
                                    .x_version = pass.version_});
              });
  }

  // f(expert, its rows, begin, end) over columns [0, width) of every expert that has rows.
  template <class F>
  void each_part(Phases& phases, std::int64_t width, std::int64_t flops, F&& f) {
    const auto busy = static_cast<std::int64_t>(busy_.size());
    const std::int64_t rows_each =
        (static_cast<std::int64_t>(token_.size()) + busy - 1) / std::max<std::int64_t>(1, busy);
    phases.run(1, {.columns = busy * width, .flops = flops * rows_each},
               [&](PhaseRows, std::int64_t begin, std::int64_t end, int) {
                 while (begin < end) {
                   const std::size_t i = busy_[static_cast<std::size_t>(begin / width)];
                   const std::int64_t from = begin % width, to = std::min(width, from + end - begin);
                   f(i, PhaseRows{begin_[i], begin_[i + 1] - begin_[i]}, from, to);
                   begin += to - from;
                 }
               });
  }

  void add_up(const model::ExpertSpec& e, std::int64_t i, float* out) const {
    std::fill_n(out, hidden_, 0.0F);
    for (std::int64_t j = 0; j < e.chosen; ++j) {
      const auto pair = static_cast<std::size_t>(i * e.chosen + j);
      const float* const given = given_.row(place_[pair]);
      for (std::int64_t n = 0; n < hidden_; ++n) out[n] += weight_[pair] * given[n];
    }
  }

  template <class Pass, class Act>
  void add_shared(Pass& pass, Phases& phases, Act act_multiply, const LayerView& layer, const model::ExpertSpec& e,
                  Activations& x, std::int64_t m, Activations& out) {
    const auto& shared = layer.shared;
    pass.low_rank({&shared.gate_proj, &shared.up_proj, &layer.shared_gate}, x, m);
    phases.run(m, {.columns = e.shared_width, .flops = 4 * hidden_},
               [&](PhaseRows rows, std::int64_t begin, std::int64_t end, int) {
                 pass.multiply(shared.gate_proj, x, rows, begin, end, shared_gate_.row(rows.first) + begin,
                               shared_gate_.stride());
                 pass.multiply(shared.up_proj, x, rows, begin, end, shared_up_.row(rows.first) + begin,
                               shared_up_.stride());
                 for (std::int64_t i = rows.first; i < rows.first + rows.count; ++i) {
                   act_multiply(shared_gate_.row(i) + begin, shared_up_.row(i) + begin, end - begin);
                   pass.round(shared_gate_, i, begin, end);
                 }
               });
    pass.multiply(layer.shared_gate, x, {0, m}, 0, 1, strength_.row(0), strength_.stride());
    for (std::int64_t i = 0; i < m; ++i) strength_.row(i)[0] = 1.0F / (1.0F + std::exp(-strength_.row(i)[0]));
    pass.rows_anew();
    pass.low_rank({&shared.down_proj}, shared_gate_, m);
    phases.run(m, {.columns = hidden_, .flops = 2 * e.shared_width},
               [&](PhaseRows rows, std::int64_t begin, std::int64_t end, int) {
                 pass.multiply(shared.down_proj, shared_gate_, rows, begin, end, given_.row(rows.first) + begin,
                               given_.stride());
                 for (std::int64_t i = rows.first; i < rows.first + rows.count; ++i)
                   for (std::int64_t n = begin; n < end; ++n) out.row(i)[n] += strength_.row(i)[0] * given_.row(i)[n];
               });
  }

  std::int64_t hidden_, most_pairs_ = 0;
  Activations logits_{0, 0};                         // [max_rows, E]
  Activations rows_{0, 0}, given_{0, 0};             // [max_rows · k, H]
  Activations gate_{0, 0}, up_{0, 0};                // [max_rows · k, I]
  Activations shared_gate_{0, 0}, shared_up_{0, 0};  // [max_rows, I']
  Activations strength_{0, 0};                       // [max_rows, 1]
  std::vector<float> weight_;                        // of each pair
  std::vector<std::int64_t> begin_, token_, place_;  // as in model::ExpertGroups
  std::vector<std::size_t> busy_;                    // experts that have rows
  std::vector<std::size_t> expert_;                  // of each pair
};

}  // namespace rlalgo::inference::detail
