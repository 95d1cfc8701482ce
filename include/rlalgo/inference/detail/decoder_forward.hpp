// The pass of a decoder on the CPU (forward.hpp), against the paged cache.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include <rlalgo/cpu/best_kernels.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/detail/activations.hpp>
#include <rlalgo/inference/detail/decoder_view.hpp>
#include <rlalgo/inference/detail/delta_pass.hpp>
#include <rlalgo/inference/detail/expert_notes.hpp>
#include <rlalgo/inference/detail/expert_pass.hpp>
#include <rlalgo/inference/detail/low_rank.hpp>
#include <rlalgo/inference/detail/one_row.hpp>
#include <rlalgo/inference/detail/packed_weights.hpp>
#include <rlalgo/inference/detail/page_places.hpp>
#include <rlalgo/inference/detail/phases.hpp>
#include <rlalgo/inference/detail/quantised_rows.hpp>
#include <rlalgo/inference/detail/rotary_table.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/os/thread_pool.hpp>

namespace rlalgo::inference::detail {

// A decoder's tensors, read through their pointers.
struct DecoderWeightsView final : Forward::Weights {
  DecoderView view;
  std::shared_ptr<const void> owner;  // keeps the tensors; null = somebody else does
  PackedWeights::Held packed;         // what the view has of their copies
};

class DecoderForward final : public Forward {
 public:
  DecoderForward(const model::DecoderConfig& config, const KvCache& cache, os::ThreadPool& pool, std::int64_t max_rows,
                 std::int64_t max_logits)
      : config_(config),
        cache_(cache),
        phases_(pool),
        d_(cache.padded_head_dim()),
        pairs_(cache.element() == CacheElement::bfloat16),
        places_(cache),
        x_(max_rows, config.hidden_size),
        normed_(max_rows, config.hidden_size, kernels_.round != nullptr),
        projected_(max_rows, config.hidden_size),
        q_(max_rows, config.heads * d_, pairs_),
        kv_(max_rows, 2 * config.kv_heads * d_, pairs_),
        attended_(max_rows, widest_mix(config), kernels_.round != nullptr),
        output_gate_(max_rows, has_output_gate(config) ? config.heads * config.head_dim : 0),
        gate_(max_rows, config.intermediate_size, kernels_.round != nullptr),
        up_(max_rows, config.intermediate_size),
        experts_(config, max_rows, kernels_.round != nullptr),
        notes_(config),
        delta_(config, max_rows),
        rank_(0, 0),
        selected_(max_logits, config.hidden_size, kernels_.round != nullptr),
        max_rows_(max_rows),
        max_logits_(max_logits),
        scratch_(static_cast<std::size_t>(pool.threads())) {
    for (const model::RopeConfig& rope : config.ropes) rotary_.emplace_back(rope, config.head_dim);
  }

  [[nodiscard]] std::int64_t max_rows() const override { return max_rows_; }
  [[nodiscard]] std::int64_t max_logits() const override { return max_logits_; }

  void reserve(std::int64_t length) override {
    logits_.resize(static_cast<std::size_t>(max_logits_ * config_.vocab_size));
    for (RotaryTable& table : rotary_) table.reserve(length);
    const std::int64_t padded = (length + cpu::page_positions - 1) / cpu::page_positions * cpu::page_positions;
    const std::int64_t group = config_.heads / config_.kv_heads;
    for (Scratch& s : scratch_) {
      s.scores.resize(std::max(s.scores.size(), static_cast<std::size_t>(group * padded / 16)));
      s.out.resize(static_cast<std::size_t>(group * d_));
    }
  }

  void run(const Weights& weights, std::span<const Row> rows) override {
    const DecoderView& view = static_cast<const DecoderWeightsView&>(weights).view;
    rows_ = rows;
    if (rows.empty()) return;
    rounds_ = view.bf16 && !view.int8 && kernels_.round != nullptr;
    packed_linear_ = view.packed_linear;
    phases_.divide_rows_from(view.int8   ? kernels_.rows_apart_int8
                             : view.bf16 ? kernels_.rows_apart_bf16
                                         : kernels_.rows_apart_f32);
    alone_ = std::adjacent_find(rows.begin(), rows.end(),
                                [](const Row& a, const Row& b) { return a.pages == b.pages; }) == rows.end();
    if (const std::int64_t needed = view.adapted_experts ? std::max(max_rows_, experts_.most_pairs()) : max_rows_;
        view.most_ranks > rank_columns_ || (view.most_ranks > 0 && needed > rank_rows_)) {
      rank_columns_ = std::max(rank_columns_, view.most_ranks);
      rank_rows_ = std::max(rank_rows_, needed);
      rank_ = Activations(rank_rows_, rank_columns_);
    }
    for (std::int64_t i = 0; i < m(); ++i) embed_row(config_, view.embedding, row(i).token, x_.row(i));
    kept_layer_ = carried_ = 0;
    for (std::int64_t l = 0; l < config_.layers; ++l) {
      const LayerView& layer = view.layers[static_cast<std::size_t>(l)];
      const auto residual_scale = static_cast<float>(config_.spec(l).residual_scale);
      norm(layer.attention_norm);
      mix(layer, l);
      add_branch(layer.o_proj, attended_, layer.attention_output_norm, residual_scale);
      if (!config_.spec(l).parallel) norm(layer.mlp_norm);
      if (config_.spec(l).experts.count > 0) {
        experts_.run(*this, phases_, kernels_, layer, config_.spec(l), normed_, m(), projected_);
        add_projected(layer.mlp_output_norm, residual_scale);
        if (cache_.note_bytes() > 0) notes_.write(cache_, rows_, l, config_.spec(l).experts.chosen, experts_);
        continue;
      }
      if (config_.spec(l).fused_gate_up)
        low_rank({&layer.gate_up_proj}, normed_, m());
      else
        low_rank({&layer.gate_proj, &layer.up_proj}, normed_, m());
      gate_up(layer, config_.spec(l).activation);
      add_branch(layer.down_proj, gate_, layer.mlp_output_norm, residual_scale);
    }
    norm(view.final_norm);
  }

  // logits[i, :] = W · x_i for the rows asked for.
  const float* logits(const Weights& weights, std::span<const std::int64_t> rows) override {
    const Matrix& w = static_cast<const DecoderWeightsView&>(weights).view.head;
    const std::int64_t m = static_cast<std::int64_t>(rows.size());
    for (std::int64_t i = 0; i < m; ++i) {
      std::copy_n(normed_.row(rows[static_cast<std::size_t>(i)]), config_.hidden_size, selected_.row(i));
      if (config_.logit_scale != 1.0)
        for (std::int64_t j = 0; j < config_.hidden_size; ++j)
          selected_.row(i)[j] *= static_cast<float>(config_.logit_scale);
      round(selected_, i, 0, config_.hidden_size);
    }
    rows_anew();
    low_rank({&w}, selected_, m);
    phases_.run(m, {.columns = w.rows, .flops = 2 * w.columns},
                [&](PhaseRows of, std::int64_t begin, std::int64_t end, int) {
                  multiply(w, selected_, of, begin, end, logits_.data() + of.first * w.rows + begin, w.rows);
                });
    if (config_.logit_cap > 0.0) bend_logits(m);
    return logits_.data();
  }

 private:
  friend class ExpertPass;
  friend class DeltaPass;

  // l ← c·tanh(l/c), of the first m rows
  void bend_logits(std::int64_t m) {
    const auto cap = static_cast<float>(config_.logit_cap);
    const std::int64_t width = config_.vocab_size;
    phases_.run(m, {.columns = width, .flops = 20}, [&](PhaseRows of, std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = of.first; i < of.first + of.count; ++i)
        for (float *l = logits_.data() + i * width + begin, *last = logits_.data() + i * width + end; l != last; ++l)
          *l = cap * std::tanh(*l / cap);
    });
  }

  // What o_proj reads of a row: attention, or a gated delta rule.
  void mix(const LayerView& layer, std::int64_t l) {
    const model::LayerSpec& spec = config_.spec(l);
    if (spec.delta.present()) {
      delta_.run(*this, phases_, kernels_, layer, spec.delta, normed_, rows_, carried_, attended_);
      carried_ += spec.delta.window_size() + spec.delta.state_size();
      return;
    }
    if (spec.fused_qkv)
      low_rank({&layer.qkv_proj}, normed_, m());
    else
      low_rank({&layer.q_proj, &layer.k_proj, &layer.v_proj}, normed_, m());
    project_heads(layer, l);
    attend(layer, l);
    ++kept_layer_;
  }

  struct Scratch {
    std::vector<Activations::Line<float>> scores;
    std::vector<float> out;
  };

  [[nodiscard]] std::int64_t m() const { return static_cast<std::int64_t>(rows_.size()); }
  [[nodiscard]] const Row& row(std::int64_t i) const { return rows_[static_cast<std::size_t>(i)]; }

  // y[i, n − begin] = W[n] · x_i + bias[n] for n in [begin, end); y is where the first of the rows has its column `begin`.
  void multiply(const Matrix& w, Activations& x, PhaseRows rows, std::int64_t begin, std::int64_t end, float* y,
                std::int64_t ldy) const {
    const cpu::LinearArgs args{.x = x.row(rows.first),
                               .m = rows.count,
                               .k = w.columns,
                               .ldx = x.stride(),
                               .w = w.packed != nullptr ? w.packed : w.data,
                               .begin = begin,
                               .end = end,
                               .y = y,
                               .ldy = ldy,
                               .x_bf16 = rounds_ ? x.rounded(rows.first) : nullptr,
                               .x_version = version_};
    const auto linear = w.packed != nullptr ? packed_linear_ : w.bf16 ? kernels_.linear_bf16 : kernels_.linear_f32;
    w.quantised != nullptr ? multiply_quantised(*w.quantised, w.first_row, w.bf16, args, linear) : linear(args);
    if (w.rank > 0) add_low_rank(kernels_, rank_, w, rows, begin, end, y, ldy);
    if (w.bias == nullptr) return;
    for (std::int64_t i = 0; i < rows.count; ++i)
      for (std::int64_t n = begin; n < end; ++n) y[i * ldy + n - begin] += w.bias[n];
  }

  // rank_[i, ·] = A x_i for the adapters of maps that read the same x.
  void low_rank(std::initializer_list<const Matrix*> maps, Activations& x, std::int64_t m) {
    std::int64_t total = 0, columns = 0;
    for (const Matrix* map : maps) {
      total += map->rank;
      columns = map->columns;
    }
    if (total == 0) return;
    phases_.run(m, {.columns = total, .flops = 2 * columns},
                [&](PhaseRows rows, std::int64_t begin, std::int64_t end, int) {
                  for (const Matrix* map : maps) {
                    const std::int64_t first = std::max(begin, map->rank_offset);
                    const std::int64_t last = std::min(end, map->rank_offset + map->rank);
                    if (first >= last) continue;
                    kernels_.linear_f32({.x = x.row(rows.first),
                                         .m = rows.count,
                                         .k = map->columns,
                                         .ldx = x.stride(),
                                         .w = map->lora_a,
                                         .begin = first - map->rank_offset,
                                         .end = last - map->rank_offset,
                                         .y = rank_.row(rows.first) + first,
                                         .ldy = rank_.stride(),
                                         .x_version = version_});
                  }
                });
  }

  void normalise(const float* x, const float* weight, float* out, std::int64_t n) const {
    normalise_row(kernels_, config_.norm, x, weight, out, n);
  }

  // The rows that the products of a branch read: normalised, or as they are.
  void norm(const float* weight) {
    // An element takes as long as thirteen operations of a product do.
    const PhaseWork work{.each = 1, .flops = 13 * config_.hidden_size};
    phases_.run(m(), work, [&](PhaseRows rows, std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = rows.first + begin; i < rows.first + end; ++i) {
        if (weight != nullptr)
          normalise(x_.row(i), weight, normed_.row(i), config_.hidden_size);
        else
          std::copy_n(x_.row(i), config_.hidden_size, normed_.row(i));
        round(normed_, i, 0, config_.hidden_size);
      }
    });
    rows_anew();
  }

  // Elements [begin, end) of row i, once for all the products that read them.
  void round(Activations& x, std::int64_t i, std::int64_t begin, std::int64_t end) const {
    if (rounds_) kernels_.round(x.row(i) + begin, end - begin, x.rounded(i) + begin);
  }

  // The rows that the next products read are all there.
  void rows_anew() {
    static std::atomic<std::uint64_t> versions{0};
    version_ = versions.fetch_add(1, std::memory_order_relaxed) + 1;
  }

  // One item = one head of q, k or v for all rows: projected, normalised, rotated, rounded, and, where another row may
  // read it, stored. Heads that are normalised together wait for each other.
  void project_heads(const LayerView& layer, std::int64_t l) {
    const std::int64_t heads = config_.heads, kv_heads = config_.kv_heads, d = config_.head_dim;
    const model::LayerSpec& spec = config_.spec(l);
    const HeadFinish finish{spec.rotary() ? &rotary_[static_cast<std::size_t>(spec.rope)] : nullptr,
                            spec.rotary() && config_.ropes[static_cast<std::size_t>(spec.rope)].interleaved};
    const bool together = spec.head_norm == model::HeadNorm::all;
    const auto store = [&](bool keys, std::int64_t h, std::int64_t i) {
      if (alone_) return;
      keys ? store_key(h, i) : store_value(h, i);
    };
    const std::int64_t gates = spec.output_gate ? heads : 0, of_query = spec.output_gate ? 2 * d : d;
    const PhaseWork work{.columns = heads + 2 * kv_heads + gates, .flops = 2 * config_.hidden_size * d};
    phases_.run(m(), work, [&](PhaseRows rows, std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t item = begin; item < end; ++item) {
        if (const std::int64_t h = item - heads - 2 * kv_heads; h >= 0) {
          multiply(layer.q_proj, normed_, rows, (2 * h + 1) * d, (2 * h + 2) * d, output_gate_.row(rows.first) + h * d,
                   output_gate_.stride());
          continue;
        }
        const std::int64_t of_kv = item - heads, h = of_kv < 0 ? item : of_kv % kv_heads;
        const bool queries = of_kv < 0, keys = !queries && of_kv < kv_heads;
        Activations& out = queries ? q_ : kv_;
        const std::int64_t column = (queries ? item : of_kv) * d_;
        const Matrix& w = queries ? layer.q_proj : keys ? layer.k_proj : layer.v_proj;
        const std::int64_t from = h * (queries ? of_query : d);
        multiply(w, normed_, rows, from, from + d, out.row(rows.first) + column, out.stride());
        if (together && (queries || keys)) continue;
        const float* const weight = queries ? layer.q_norm : keys ? layer.k_norm : nullptr;
        for (std::int64_t i = rows.first; i < rows.first + rows.count; ++i) {
          finish_head(out, i, column, weight, queries || keys ? finish : HeadFinish{});
          if (!queries) store(keys, h, i);
        }
      }
    });
    if (!together) return;
    const PhaseWork norms{.each = 1, .flops = 13 * (heads + kv_heads) * d};
    phases_.run(m(), norms, [&](PhaseRows rows, std::int64_t begin, std::int64_t end, int) {
      std::vector<float> joined(static_cast<std::size_t>(heads * d));
      for (std::int64_t i = rows.first + begin; i < rows.first + end; ++i) {
        normalise_together(q_.row(i), heads, layer.q_norm, joined);
        normalise_together(kv_.row(i), kv_heads, layer.k_norm, joined);
        for (std::int64_t h = 0; h < heads; ++h) finish_head(q_, i, h * d_, nullptr, finish);
        for (std::int64_t h = 0; h < kv_heads; ++h) {
          finish_head(kv_, i, h * d_, nullptr, finish);
          store(true, h, i);
        }
      }
    });
  }

  // All `count` heads of a row by one norm.
  void normalise_together(float* row, std::int64_t count, const float* weight, std::vector<float>& joined) const {
    const std::int64_t d = config_.head_dim;
    for (std::int64_t h = 0; h < count; ++h) std::copy_n(row + h * d_, d, joined.data() + h * d);
    normalise(joined.data(), weight, joined.data(), count * d);
    for (std::int64_t h = 0; h < count; ++h) std::copy_n(joined.data() + h * d, d, row + h * d_);
  }

  struct HeadFinish {
    const RotaryTable* rotary = nullptr;  // null: not rotated
    bool interleaved = false;
  };

  // Columns [column, column + d_) of row i of `out`: normalised, rotated, padded, and rounded where attention reads that.
  void finish_head(Activations& out, std::int64_t i, std::int64_t column, const float* norm_weight,
                   const HeadFinish& finish) {
    const std::int64_t d = config_.head_dim;
    float* const x = out.row(i) + column;
    if (norm_weight != nullptr) normalise(x, norm_weight, x, d);
    if (finish.rotary != nullptr) {
      const std::int64_t position = row(i).position, half = finish.rotary->half();
      const float *const cosines = finish.rotary->cosines(position), *const sines = finish.rotary->sines(position);
      if (finish.interleaved)
        rotate_interleaved(x, cosines, sines, half);
      else
        kernels_.rotate(x, x + half, cosines, sines, half);
    }
    std::fill(x + d, x + d_, 0.0f);  // the kernels read whole lanes
    if (pairs_) kernels_.round(x, d_, out.rounded(i) + column);
  }

  void store_key(std::int64_t h, std::int64_t i) {
    places_.store_key(row(i), kept_layer_, h, kv_.row(i) + h * d_, pairs_ ? kv_.rounded(i) + h * d_ : nullptr);
  }
  void store_value(std::int64_t h, std::int64_t i) {
    const std::int64_t column = (config_.kv_heads + h) * d_;
    places_.store_value(row(i), kept_layer_, h, kv_.row(i) + column, pairs_ ? kv_.rounded(i) + column : nullptr);
  }

  // Items are (kv head, row), rows innermost: rows of one group read the same prompt pages one after the other.
  void attend(const LayerView& layer, std::int64_t l) {
    const std::int64_t kv_heads = config_.kv_heads, group = config_.heads / kv_heads, d = config_.head_dim;
    const model::LayerSpec& spec = config_.spec(l);
    const std::int64_t window = spec.window;
    const auto begin_of = [&](const Row& row) {
      return window > 0 ? std::max<std::int64_t>(0, row.position + 1 - window) : 0;
    };
    std::int64_t positions = 0;
    for (const Row& row : rows_) positions += row.position + 1 - begin_of(row);
    const auto scale =
        static_cast<float>(spec.score_scale != 0.0 ? spec.score_scale : 1.0 / std::sqrt(static_cast<double>(d)));
    const auto attention = pairs_ ? kernels_.attention_bf16 : kernels_.attention;
    const bool direct = d == d_;  // else the heads lie closer together than the kernel writes them
    const PhaseWork work{.each = kv_heads, .flops = 4 * group * d * positions / std::max<std::int64_t>(1, m())};
    phases_.run(m(), work, [&](PhaseRows rows, std::int64_t begin, std::int64_t end, int thread) {
      Scratch& scratch = scratch_[static_cast<std::size_t>(thread)];
      const auto head_of = [&](std::int64_t item) { return item / rows.count; };
      const auto row_of = [&](std::int64_t item) { return rows.first + item % rows.count; };
      const auto first_keys = [&](std::int64_t item) {
        const Row& of = row(row_of(item));
        return of.pages[begin_of(of) / cpu::page_positions] + cache_.key_offset(kept_layer_, head_of(item));
      };
      for (std::int64_t item = begin; item < end; ++item) {
        const std::int64_t h = head_of(item), i = row_of(item);
        float* const out = attended_.row(i) + h * group * d;
        if (alone_) {  // by the thread that reads those lines next
          store_key(h, i);
          store_value(h, i);
          if (item + 1 < end) places_.fetch(row(row_of(item + 1)), kept_layer_, head_of(item + 1));
        }
        const std::int64_t hidden = begin_of(row(i)), pages = hidden / cpu::page_positions;  // left out
        attention({.q = q_.row(i) + h * group * d_,
                   .ldq = d_,
                   .group = group,
                   .d = d_,
                   .pages = row(i).pages + pages,
                   .key_offset = cache_.key_offset(kept_layer_, h),
                   .value_offset = cache_.value_offset(kept_layer_, h),
                   .length = row(i).position + 1 - pages * cpu::page_positions,
                   .first = hidden - pages * cpu::page_positions,
                   .scale = scale,
                   .cap = static_cast<float>(spec.score_cap),
                   .sinks = layer.sinks != nullptr ? layer.sinks + h * group : nullptr,
                   .scores = scratch.scores.data()->elements.data(),
                   .out = direct ? out : scratch.out.data(),
                   .ldo = d_,
                   .next = item + 1 < end ? first_keys(item + 1) : nullptr,
                   .q_bf16 = pairs_ ? q_.rounded(i) + h * group * d_ : nullptr});
        for (std::int64_t g = 0; g < group && !direct; ++g) std::copy_n(scratch.out.data() + g * d_, d, out + g * d);
        if (spec.output_gate) shut(out, output_gate_.row(i) + h * group * d, group * d);
        round(attended_, i, h * group * d, (h + 1) * group * d);
      }
    });
    rows_anew();
  }

  // x ← x·σ(gate)
  static void shut(float* x, const float* gate, std::int64_t n) {
    for (std::int64_t j = 0; j < n; ++j) x[j] /= 1.0F + std::exp(-gate[j]);
  }

  // x += scale · projected, or scale · norm(projected)
  void add_projected(const float* norm_weight, float scale) {
    const PhaseWork work{.each = 1, .flops = 13 * config_.hidden_size};
    phases_.run(m(), work, [&](PhaseRows rows, std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = rows.first + begin; i < rows.first + end; ++i) {
        float* const row = projected_.row(i);
        if (norm_weight != nullptr) normalise(row, norm_weight, row, config_.hidden_size);
        add_scaled(x_.row(i), row, config_.hidden_size, scale);
      }
    });
  }

  // x += scale · W · y, or scale · norm(W · y)
  void add_branch(const Matrix& w, Activations& y, const float* norm_weight, float scale) {
    low_rank({&w}, y, m());
    const PhaseWork work{.columns = config_.hidden_size, .flops = 2 * w.columns};
    phases_.run(m(), work, [&](PhaseRows rows, std::int64_t begin, std::int64_t end, int) {
      multiply(w, y, rows, begin, end, projected_.row(rows.first) + begin, projected_.stride());
      if (norm_weight != nullptr) return;
      for (std::int64_t i = rows.first; i < rows.first + rows.count; ++i)
        add_scaled(x_.row(i) + begin, projected_.row(i) + begin, end - begin, scale);
    });
    if (norm_weight != nullptr) add_projected(norm_weight, scale);
  }

  // x += scale · y, in the place of y
  void add_scaled(float* x, float* y, std::int64_t n, float scale) const {
    if (scale != 1.0F)
      for (std::int64_t j = 0; j < n; ++j) y[j] *= scale;
    kernels_.add(x, y, n);
  }

  void gate_up(const LayerView& layer, model::Activation activation) {
    const auto act_multiply =
        activation == model::Activation::silu ? kernels_.silu_multiply : kernels_.gelu_tanh_multiply;
    const PhaseWork work{.columns = config_.intermediate_size, .flops = 4 * config_.hidden_size};
    phases_.run(m(), work, [&](PhaseRows rows, std::int64_t begin, std::int64_t end, int) {
      multiply(layer.gate_proj, normed_, rows, begin, end, gate_.row(rows.first) + begin, gate_.stride());
      multiply(layer.up_proj, normed_, rows, begin, end, up_.row(rows.first) + begin, up_.stride());
      for (std::int64_t i = rows.first; i < rows.first + rows.count; ++i) {
        act_multiply(gate_.row(i) + begin, up_.row(i) + begin, end - begin);
        round(gate_, i, begin, end);
      }
    });
    rows_anew();
  }

  const model::DecoderConfig& config_;
  const KvCache& cache_;
  Phases phases_;
  const cpu::Kernels& kernels_ = cpu::best_kernels();
  std::vector<RotaryTable> rotary_;  // of each rotation of the configuration
  std::int64_t d_;                   // padded head dimension
  bool pairs_;                       // keys and values are bfloat16
  PagePlaces places_;
  std::span<const Row> rows_;
  Activations x_, normed_, projected_;  // [max_rows, H]
  Activations q_;                       // [max_rows, heads · d_]
  Activations kv_;                      // [max_rows, 2 · kv_heads · d_]
  Activations attended_;                // [max_rows, heads · d, or values of a gated delta rule]
  Activations output_gate_;             // [max_rows, heads · d], where a layer has one
  Activations gate_, up_;               // [max_rows, I]
  ExpertPass experts_;
  ExpertNotes notes_;
  DeltaPass delta_;
  Activations rank_;           // [max_rows, most adapter columns of one input]
  Activations selected_;       // [max_logits, H]
  std::vector<float> logits_;  // [max_logits, V]
  std::int64_t max_rows_, max_logits_, rank_columns_ = 0, rank_rows_ = 0;
  // Of the layer: its number among those with keys; its place in what sequences carry.
  std::int64_t kept_layer_ = 0, carried_ = 0;
  bool alone_ = false;   // rows of this pass are of different sequences: none reads what another one stores
  bool rounds_ = false;  // this pass's products read rows as bfloat16
  void (*packed_linear_)(const cpu::LinearArgs&) = nullptr;  // of its packed weights
  std::uint64_t version_ = 0;                                // of the rows that products read, of no other pass either
  std::vector<Scratch> scratch_;                             // per thread
};

}  // namespace rlalgo::inference::detail
