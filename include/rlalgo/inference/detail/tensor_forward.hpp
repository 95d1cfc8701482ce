// A pass on any device that ATen knows: the layers of training (model/decoder_layer.hpp) with an attention that reads pages.
//
// So what a family of models is, adapters included, is written once, and the engine's numbers are those of the trainer's
// pass to rounding. Activations, keys and values have the dtype of the weights; scores, softmax and sums are in
// float32.
//
// The rows of a pass fall into runs of one sequence. A run of one row (decoding) joins all others of its kind: their pages
// are gathered into [B, S] positions, S of the longest, what lies behind a row's own position hidden. A longer run (a
// prompt) attends alone. A row's numbers are those of its tokens, but their last bits may depend on which rows are
// computed with it, as a device's products do; equal passes give equal bits.
//
// On a GPU a run of one row is attended to by the project's own kernel (cuda/decode_attention.cuh) where weights and pages are
// bfloat16 and the program has it: a row's numbers from there depend on its own sequence alone.
//
// Host reads a pass: none; host writes: token ids, angles, and the numbers of pages.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/inference/detail/kernels.hpp>
#include <rlalgo/inference/detail/rotary_table.hpp>
#include <rlalgo/inference/detail/tensor_pages.hpp>
#include <rlalgo/inference/detail/tensor_states.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/model/cuda_operations.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/decoder_layer.hpp>
#include <rlalgo/model/linear.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::inference::detail {

// A decoder's tensors, read where they lie.
struct TensorWeightsView final : Forward::Weights {
  model::DecoderWeights weights;
  std::shared_ptr<const void> owner;  // keeps what they share; null = somebody else does
};

// The rows of a pass, as attention needs them: who sees which pages, and where each row's key and value go.
struct PagedRows {
  struct Run {
    tensor::Tensor rows;       // [B·M] of the pass; undefined: all of it
    tensor::Tensor pages;      // [B·P] numbers
    tensor::Tensor positions;  // [B, M]
    std::int64_t sequences = 0, rows_each = 0, pages_each = 0;
  };
  std::vector<Run> runs;
  tensor::Tensor page, place;  // [T] each: page of a row, and place in it
};

// The operations of training with the attention of a pass over pages. One layer at a time.
class PagedOperations final : public model::CudaOperations {
 public:
  PagedOperations(const model::DecoderConfig& config, const TensorPages& pages, tensor::OwnKernels kernels)
      : CudaOperations(kernels), config_(config), pages_(pages) {}

  void begin(const PagedRows& rows) { rows_ = &rows; }
  void enter_layer(std::int64_t layer) {
    layer_ = layer;
    kept_layer_ = config_.attention_layers(layer);
  }

  // Stores k and v, then attends to the pages. There is a log-sum where sinks want it; nothing is differentiated.
  [[nodiscard]] model::AttentionOutput attention(const tensor::Tensor& q, const tensor::Tensor& k,
                                                 const tensor::Tensor& v,
                                                 const model::AttentionLayout& /*layout*/) const override {
    const std::int64_t layers = std::max<std::int64_t>(1, config_.attention_layers());
    const std::int64_t width = pages_.arena().size(1) / (layers * 2 * page_positions * config_.kv_heads);
    const tensor::Tensor layer = pages_.arena()
                                     .view({-1, layers, 2, page_positions, config_.kv_heads, width})
                                     .select(1, kept_layer_)
                                     .narrow(4, 0, config_.head_dim);  // [N, 2, 32, kv, D]
    const cuda::Pages places = places_of(width);
    const cuda::Kernels* const own = config_.head_dim % 8 == 0 && width % 8 == 0
                                         ? kernels().take(cuda::Kernel::decode_attention, q, k, v, pages_.arena())
                                         : nullptr;
    if (own != nullptr) {
      write(*own, places, k, v);
    } else {
      tensor::put(layer.select(1, 0), rows_->page, rows_->place, k);
      tensor::put(layer.select(1, 1), rows_->page, rows_->place, v);
    }
    const auto attend_to = [&](const PagedRows::Run& run, const tensor::Tensor& queries) {
      return own != nullptr && run.rows_each == 1 && q.scalar_type() == at::kBFloat16
                 ? attend_by_kernel(*own, places, run, queries)
                 : attend(run, queries, layer);
    };
    if (rows_->runs.size() == 1 && !rows_->runs.front().rows.defined()) return attend_to(rows_->runs.front(), q);
    model::AttentionOutput out{tensor::empty_like(q), {}};
    if (config_.spec(layer_).sinks) out.log_sum = q.new_empty({q.size(0), q.size(1)}, q.options().dtype(at::kFloat));
    for (const PagedRows::Run& run : rows_->runs) {
      const model::AttentionOutput part = attend_to(run, q.index_select(0, run.rows));
      out.value.index_copy_(0, run.rows, part.value);
      if (part.log_sum.defined()) out.log_sum.index_copy_(0, run.rows, part.log_sum);
    }
    return out;
  }

 private:
  // Of this layer, in a page of positions of kv_heads·width elements.
  [[nodiscard]] cuda::Pages places_of(std::int64_t width) const {
    const std::int64_t position = config_.kv_heads * width, part = page_positions * position;
    return {.page_stride = pages_.arena().size(1),
            .key_offset = 2 * kept_layer_ * part,
            .value_offset = (2 * kept_layer_ + 1) * part,
            .position_stride = position,
            .head_stride = width};
  }

  void write(const cuda::Kernels& own, const cuda::Pages& places, const tensor::Tensor& k,
             const tensor::Tensor& v) const {
    tensor::launch(own, own.page_write,
                   {.k = k.const_data_ptr(),
                    .v = v.const_data_ptr(),
                    .arena = pages_.arena().mutable_data_ptr(),
                    .page = rows_->page.const_data_ptr<std::int64_t>(),
                    .place = rows_->place.const_data_ptr<std::int64_t>(),
                    .rows = k.size(0),
                    .heads = config_.kv_heads,
                    .head_dim = config_.head_dim,
                    .pages = places,
                    .element = tensor::element_of(k)},
                   cuda::Kernel::decode_attention, k);
  }

  // q [B, n, D] of a run of one row each.
  [[nodiscard]] model::AttentionOutput attend_by_kernel(const cuda::Kernels& own, const cuda::Pages& places,
                                                        const PagedRows::Run& run, const tensor::Tensor& q) const {
    const model::LayerSpec& spec = config_.spec(layer_);
    const auto heads = static_cast<int>(config_.heads), dim = static_cast<int>(config_.head_dim),
               pages = static_cast<int>(run.pages_each);
    model::AttentionOutput out{tensor::empty_like(q), {}};
    if (spec.sinks) out.log_sum = q.new_empty({run.sequences, config_.heads}, q.options().dtype(at::kFloat));
    const tensor::Tensor partial = tensor::empty({cuda::decode_partial_floats(run.sequences, heads, dim, pages)},
                                                 q.options().dtype(at::kFloat));
    const auto bits = [](const void* memory) { return static_cast<const std::uint16_t*>(memory); };
    tensor::launch(own, own.decode_attention,
                   {.q = bits(q.const_data_ptr()),
                    .arena = bits(pages_.arena().const_data_ptr()),
                    .table = run.pages.const_data_ptr<std::int64_t>(),
                    .positions = run.positions.const_data_ptr<std::int64_t>(),
                    .partial = partial.mutable_data_ptr<float>(),
                    .out = static_cast<std::uint16_t*>(out.value.mutable_data_ptr()),
                    .log_sum = spec.sinks ? out.log_sum.mutable_data_ptr<float>() : nullptr,
                    .rows = run.sequences,
                    .heads = heads,
                    .kv_heads = static_cast<int>(config_.kv_heads),
                    .head_dim = dim,
                    .max_pages = pages,
                    .window = spec.window,
                    .softcap = static_cast<float>(spec.score_cap),
                    .scale = static_cast<float>(spec.score_scale != 0.0 ? spec.score_scale
                                                                        : 1.0 / std::sqrt(static_cast<double>(dim))),
                    .pages = places},
                   cuda::Kernel::decode_attention, q);
    return out;
  }

  // q [B·M, n, D], layer [N, 2, 32, kv, D] → [B·M, n, D], and [B·M, n] where the layer has sinks.
  [[nodiscard]] model::AttentionOutput attend(const PagedRows::Run& run, const tensor::Tensor& q,
                                              const tensor::Tensor& layer) const {
    const std::int64_t b = run.sequences, m = run.rows_each, s = run.pages_each * page_positions, kv = config_.kv_heads,
                       group = config_.heads / kv, d = config_.head_dim;
    const double scale = config_.spec(layer_).score_scale;
    const tensor::Tensor kept =
        layer.index_select(0, run.pages).view({b, run.pages_each, 2, page_positions, kv, d}).to(at::kFloat);
    const tensor::Tensor keys = kept.select(2, 0).reshape({b, s, kv, d}).permute({0, 2, 3, 1});    // [B, kv, D, S]
    const tensor::Tensor values = kept.select(2, 1).reshape({b, s, kv, d}).permute({0, 2, 1, 3});  // [B, kv, S, D]
    const tensor::Tensor queries = q.reshape({b, m, kv, group, d})
                                       .permute({0, 2, 3, 1, 4})
                                       .reshape({b, kv, group * m, d})
                                       .to(at::kFloat)
                                       .mul(scale != 0.0 ? scale : 1.0 / std::sqrt(static_cast<double>(d)));
    tensor::Tensor scores = queries.matmul(keys).view({b, kv, group, m, s});
    if (const double cap = config_.spec(layer_).score_cap; cap > 0.0) scores.div_(cap).tanh_().mul_(cap);
    scores.masked_fill_(hidden(run, s).view({b, 1, 1, m, s}), -std::numeric_limits<double>::infinity());
    const tensor::Tensor weights = scores.softmax(-1).view({b, kv, group * m, s});
    tensor::Tensor log_sum;
    if (config_.spec(layer_).sinks)
      log_sum = scores.logsumexp(-1).permute({0, 3, 1, 2}).reshape({b * m, config_.heads}).contiguous();
    return {weights.matmul(values)
                .view({b, kv, group, m, d})
                .permute({0, 3, 1, 2, 4})
                .reshape({b * m, config_.heads, d})
                .to(q.scalar_type())
                .contiguous(),
            log_sum};
  }

  // [B, M, S]: positions that a row does not see.
  [[nodiscard]] tensor::Tensor hidden(const PagedRows::Run& run, std::int64_t s) const {
    const tensor::Tensor at = tensor::arange(0, s, 1, run.positions.options()).view({1, 1, s});
    const tensor::Tensor own = run.positions.unsqueeze(2);  // [B, M, 1]
    tensor::Tensor out = at.gt(own);
    if (const std::int64_t window = config_.spec(layer_).window; window > 0) out.logical_or_(at.le(own.sub(window)));
    return out;
  }

  const model::DecoderConfig& config_;
  const TensorPages& pages_;
  const PagedRows* rows_ = nullptr;
  std::int64_t layer_ = 0, kept_layer_ = 0;  // its number among those with keys
};

class TensorForward final : public Forward {
 public:
  // `states`: what sequences carry, a row each, as detail/delta_pass.hpp has it.
  TensorForward(const model::DecoderConfig& config, const TensorPages& pages, const TensorPages& states,
                std::int64_t max_rows, std::int64_t max_logits, tensor::OwnKernels kernels = {})
      : config_(config),
        pages_(pages),
        states_(config, states),
        operations_(config, pages, kernels),
        max_rows_(max_rows),
        max_logits_(max_logits) {
    for (const model::RopeConfig& rope : config.ropes) rotary_.emplace_back(rope, config.head_dim);
  }

  [[nodiscard]] std::int64_t max_rows() const override { return max_rows_; }
  [[nodiscard]] std::int64_t max_logits() const override { return max_logits_; }
  void reserve(std::int64_t length) override {
    for (RotaryTable& table : rotary_) table.reserve(length);
  }

  void run(const Weights& weights, std::span<const Row> rows) override {
    if (rows.empty()) return;
    const c10::NoGradGuard no_grad;
    const model::DecoderWeights& w = static_cast<const TensorWeightsView&>(weights).weights;
    const PagedRows paged = lay_out(rows);
    operations_.begin(paged);
    std::vector<model::RopeTable> ropes;
    for (std::size_t i = 0; i < rotary_.size(); ++i) {
      ropes.push_back(angles(rotary_[i], rows));
      ropes.back().interleaved = config_.ropes[i].interleaved;
    }
    std::vector<std::int64_t> ids;
    ids.reserve(rows.size());
    for (const Row& row : rows) ids.push_back(row.token);
    tensor::Tensor x = operations_.rows(w.embedding, on_device(ids));
    if (config_.embedding_scale != 1.0) x.mul_(model::embedding_scale(config_, x.scalar_type()));
    const model::AttentionLayout none;
    states_.begin(rows);
    for (std::int64_t l = 0; l < config_.layers; ++l) {
      operations_.enter_layer(l);
      const model::LayerSpec& spec = config_.spec(l);
      model::LayerContext context{.config = config_,
                                  .spec = spec,
                                  .operations = operations_,
                                  .layout = none,
                                  .rope = spec.rotary() ? &ropes[static_cast<std::size_t>(spec.rope)] : nullptr};
      if (spec.delta.present()) states_.enter_layer(l, context);
      x = model::layer_forward(context, w.layers[static_cast<std::size_t>(l)], x, {}, nullptr);
      if (spec.delta.present()) states_.leave_layer(l);
    }
    last_ = operations_.rms_norm(x, w.final_norm, config_.norm).value;
  }

  [[nodiscard]] const float* logits(const Weights& weights, std::span<const std::int64_t> rows) override {
    const c10::NoGradGuard no_grad;
    const model::DecoderWeights& w = static_cast<const TensorWeightsView&>(weights).weights;
    const std::vector<std::int64_t> wanted(rows.begin(), rows.end());
    const tensor::Tensor hidden = last_.index_select(0, on_device(wanted));
    const model::Linear head{w.lm_head.defined() ? w.lm_head : w.embedding, {}, w.lm_head_lora};
    logits_ = model::linear(hidden, head).to(at::Device(at::kCPU), at::kFloat).contiguous();
    if (config_.logit_scale != 1.0) logits_.mul_(config_.logit_scale);
    if (config_.logit_cap > 0.0) logits_.div_(config_.logit_cap).tanh_().mul_(config_.logit_cap);
    return logits_.const_data_ptr<float>();
  }

 private:
  [[nodiscard]] tensor::Tensor on_device(const std::vector<std::int64_t>& values) const {
    return tensor::from_values(values, at::TensorOptions().dtype(at::kLong).device(pages_.device()));
  }

  [[nodiscard]] model::RopeTable angles(const RotaryTable& table, std::span<const Row> rows) const {
    const std::int64_t half = table.half();
    std::vector<float> cosines, sines;
    for (const Row& row : rows) {
      cosines.insert(cosines.end(), table.cosines(row.position), table.cosines(row.position) + half);
      sines.insert(sines.end(), table.sines(row.position), table.sines(row.position) + half);
    }
    const auto options = at::TensorOptions().dtype(at::kFloat).device(pages_.device());
    return {tensor::from_values(cosines, options).view({-1, half}),
            tensor::from_values(sines, options).view({-1, half})};
  }

  [[nodiscard]] PagedRows lay_out(std::span<const Row> rows) const {
    struct Builder {
      std::vector<std::int64_t> rows, positions;
      std::vector<std::span<std::byte* const>> pages;  // of each sequence
    };
    PagedRows out;
    Builder single;
    std::vector<std::int64_t> page, place;
    const auto add = [&](const Builder& b, std::int64_t rows_each) {
      PagedRows::Run run{.sequences = static_cast<std::int64_t>(b.pages.size()), .rows_each = rows_each};
      for (const auto& pages : b.pages)
        run.pages_each = std::max(run.pages_each, static_cast<std::int64_t>(pages.size()));
      std::vector<std::int64_t> numbers;
      for (const auto& pages : b.pages) {
        for (const std::byte* one : pages) numbers.push_back(TensorPages::number(one));
        // Behind the end of a sequence: some page of it, hidden.
        numbers.resize(numbers.size() + static_cast<std::size_t>(run.pages_each) - pages.size(), numbers.back());
      }
      if (b.rows.size() < rows.size()) run.rows = on_device(b.rows);
      run.pages = on_device(numbers);
      run.positions = on_device(b.positions).view({run.sequences, rows_each});
      out.runs.push_back(std::move(run));
    };
    for (std::size_t begin = 0; begin < rows.size();) {
      std::size_t end = begin + 1;
      while (end < rows.size() && rows[end].pages == rows[begin].pages) ++end;
      Builder longer;
      Builder& to = end == begin + 1 ? single : longer;
      for (std::size_t i = begin; i < end; ++i) {
        const std::int64_t position = rows[i].position;
        to.rows.push_back(static_cast<std::int64_t>(i));
        to.positions.push_back(position);
        page.push_back(TensorPages::number(rows[i].pages[position / page_positions]));
        place.push_back(position % page_positions);
      }
      to.pages.emplace_back(rows[begin].pages, static_cast<std::size_t>(rows[end - 1].position / page_positions + 1));
      if (&to == &longer) add(longer, static_cast<std::int64_t>(end - begin));
      begin = end;
    }
    if (!single.rows.empty()) add(single, 1);
    out.page = on_device(page);
    out.place = on_device(place);
    return out;
  }

  const model::DecoderConfig& config_;
  const TensorPages& pages_;
  TensorStates states_;
  PagedOperations operations_;
  std::vector<RotaryTable> rotary_;  // of each rotation of the configuration
  std::int64_t max_rows_, max_logits_;
  tensor::Tensor last_;    // [T, H] after the final norm
  tensor::Tensor logits_;  // [n, V] in host memory
};

}  // namespace rlalgo::inference::detail
