// The operations of training with an attention that reads pages: what a pass on a device computes with, layer after layer.
//
// Rows of a pass that no sequence has (paged_rows.hpp) have zeros for attention.
//
// A run of one row is attended to by the project's own kernel (cuda/decode_attention.cuh) where weights and pages are bfloat16 and the
// program uses it: a row's numbers from there depend on its own sequence alone. Prompts are one call for several sequences
// (prompt_rows.hpp) where there is one for the layer and the tensors: no cap, pages in the dtype of the queries. Else pages are gathered
// into [B, S] positions, in pieces of as many sequences, or rows of one, as keep what is gathered and the scores within AttentionPieces.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/inference/attention_pieces.hpp>
#include <rlalgo/inference/detail/paged_rows.hpp>
#include <rlalgo/inference/detail/prompt_rows.hpp>
#include <rlalgo/inference/detail/tensor_pages.hpp>
#include <rlalgo/model/cuda_operations.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>
#include <rlalgo/tensor/varlen_attention.hpp>

namespace rlalgo::inference::detail {

// Where a layer's keys and values lie in the arena; `kept`: its number among those that keep any. A position has `width` elements a head.
[[nodiscard]] inline cuda::Pages page_places(const model::DecoderConfig& config, const TensorPages& pages,
                                             std::int64_t kept) {
  const std::int64_t layers = std::max<std::int64_t>(1, config.attention_layers()),
                     width = pages.arena().size(1) / (layers * 2 * cpu::page_positions * config.kv_heads),
                     position = config.kv_heads * width, part = cpu::page_positions * position;
  return {.page_stride = pages.arena().size(1),
          .key_offset = 2 * kept * part,
          .value_offset = (2 * kept + 1) * part,
          .position_stride = position,
          .head_stride = width,
          .float8 = pages.type() == at::kByte};
}
[[nodiscard]] inline double score_scale(const model::DecoderConfig& config, const model::LayerSpec& spec) {
  return spec.score_scale != 0.0 ? spec.score_scale : 1.0 / std::sqrt(static_cast<double>(config.head_dim));
}
// What attention over a layer's pages is given, but for a pass's rows.
[[nodiscard]] inline cuda::DecodeAttention attention_over(const model::DecoderConfig& config,
                                                          const model::LayerSpec& spec, const TensorPages& pages,
                                                          const cuda::Pages& places) {
  cuda::DecodeAttention out;
  out.arena = pages.arena().const_data_ptr();
  out.heads = static_cast<int>(config.heads);
  out.kv_heads = static_cast<int>(config.kv_heads);
  out.head_dim = static_cast<int>(config.head_dim);
  out.window = spec.window;
  out.softcap = static_cast<float>(spec.score_cap);
  out.scale = static_cast<float>(score_scale(config, spec));
  out.pages = places;
  return out;
}

// The operations of training with the attention of a pass over pages. One layer at a time.
class PagedOperations final : public model::CudaOperations {
 public:
  PagedOperations(const model::DecoderConfig& config, const TensorPages& pages, const tensor::OwnKernels& kernels,
                  AttentionPieces pieces = {})
      : CudaOperations(kernels), config_(config), pages_(pages), pieces_(pieces) {}

  // Whether a row of one position is attended to by the kernel, in passes over activations of that dtype.
  [[nodiscard]] bool attends_by_kernel(at::ScalarType type) const {
    const tensor::OwnKernels& own = kernels();
    return own.table != nullptr && cuda::in_use(cuda::Kernel::decode_attention) && type == at::kBFloat16 &&
           pages_.type() != at::kFloat && pages_.device().type() == own.device && config_.head_dim % 8 == 0 &&
           page_places(config_, pages_, 0).head_stride % 8 == 0;
  }

  // Keys and values go to pages as they are rotated.
  [[nodiscard]] const model::RawHeadsAttention* of_raw_heads(const model::RawHeads& /*heads*/,
                                                             const model::AttentionLayout& /*layout*/) const override {
    return nullptr;
  }

  // Of prompts that are attended to by calls for several, in passes over activations of that dtype; nothing: they are not.
  [[nodiscard]] std::optional<PromptPlaces> prompt_places(at::ScalarType type) const {
    bool some = false;
    for (std::int64_t l = 0; l < config_.layers && !some; ++l) some = config_.spec(l).score_cap == 0.0;
    if (!kernels().has_attention() || pages_.device().type() != kernels().device || pages_.type() != type || !some)
      return std::nullopt;
    return PromptPlaces{
        .layers = std::max<std::int64_t>(1, config_.attention_layers()),
        .most_keys = std::max<std::int64_t>(1, pieces_.gathered / (2 * config_.kv_heads * config_.head_dim))};
  }

  void begin(const PagedRows& rows) { rows_ = &rows; }
  void enter_layer(std::int64_t layer) {
    layer_ = layer;
    kept_layer_ = config_.attention_layers(layer);
  }

  // Stores k and v, then attends to the pages. There is a log-sum where sinks want it; nothing is differentiated.
  [[nodiscard]] model::AttentionOutput attention(const tensor::Tensor& q, const tensor::Tensor& k,
                                                 const tensor::Tensor& v,
                                                 const model::AttentionLayout& layout_of_training) const override {
    if (const std::int64_t given = rows_->page.size(0); given < q.size(0)) {
      const auto some = [&](const tensor::Tensor& x) { return x.narrow(0, 0, given); };
      const model::AttentionOutput part = attention(some(q), some(k), some(v), layout_of_training);
      model::AttentionOutput out{tensor::zeros_like(q), {}};
      some(out.value).copy_(part.value);
      if (part.log_sum.defined()) {
        out.log_sum = part.log_sum.new_zeros({q.size(0), q.size(1)});
        some(out.log_sum).copy_(part.log_sum);
      }
      return out;
    }
    const std::int64_t layers = std::max<std::int64_t>(1, config_.attention_layers());
    const cuda::Pages places = page_places(config_, pages_, kept_layer_);
    const std::int64_t width = places.head_stride;
    const tensor::Tensor wide = pages_.arena()
                                    .view({-1, layers, 2, cpu::page_positions, config_.kv_heads, width})
                                    .select(1, kept_layer_),  // [N, 2, 32, kv, …]
        layer = wide.narrow(4, 0, config_.head_dim);          // [N, 2, 32, kv, D]
    const tensor::Tensor alike = places.float8 ? tensor::Tensor() : pages_.arena();
    const cuda::Kernels* const own = config_.head_dim % 8 == 0 && width % 8 == 0
                                         ? kernels().take(cuda::Kernel::decode_attention, q, k, v, alike)
                                         : nullptr;
    if (own != nullptr) {
      write(*own, places, k, v);
    } else {
      tensor::put(wide.select(1, 0), rows_->page, rows_->place, stored(k, places.float8, width));
      tensor::put(wide.select(1, 1), rows_->page, rows_->place, stored(v, places.float8, width));
    }
    const auto attend_to = [&](const PagedRows::Run& run, const tensor::Tensor& queries) {
      return own != nullptr && run.rows_each == 1 && q.scalar_type() == at::kBFloat16
                 ? attend_by_kernel(*own, places, run, queries)
                 : attend_in_pieces(run, queries, layer);
    };
    const tensor::VarlenAttention* const whole =
        rows_->prompts.empty() || config_.spec(layer_).score_cap > 0.0 ? nullptr : kernels().take_attention(q);
    if (whole != nullptr && rows_->prompts.size() == 1 && rows_->prompts.front().count == q.size(0))
      return attend_whole(*whole, rows_->prompts.front(), q);
    if (rows_->runs.size() == 1 && !rows_->runs.front().rows.defined() && whole == nullptr)
      return attend_to(rows_->runs.front(), q);
    model::AttentionOutput out{tensor::empty_like(q), {}};
    if (config_.spec(layer_).sinks) out.log_sum = q.new_empty({q.size(0), q.size(1)}, q.options().dtype(at::kFloat));
    if (whole != nullptr)
      for (const PromptRows& prompts : rows_->prompts) attend_whole(*whole, prompts, q, out);
    for (const PagedRows::Run& run : rows_->runs) {
      if (whole != nullptr && run.rows_each > 1) continue;
      const model::AttentionOutput part = attend_to(run, q.index_select(0, run.rows));
      out.value.index_copy_(0, run.rows, part.value);
      if (part.log_sum.defined()) out.log_sum.index_copy_(0, run.rows, part.log_sum);
    }
    return out;
  }

 private:
  // As pages have it: float8 in bytes, what is beyond the largest at that; zeros behind a head that is narrower than its place.
  [[nodiscard]] static tensor::Tensor stored(const tensor::Tensor& x, bool float8, std::int64_t width) {
    tensor::Tensor out =
        float8 ? x.to(at::kFloat).clamp_(-448.0, 448.0).to(at::ScalarType::Float8_e4m3fn).view(at::kByte) : x;
    if (x.size(2) == width) return out;
    tensor::Tensor padded = out.new_zeros({out.size(0), out.size(1), width});
    padded.narrow(2, 0, out.size(2)).copy_(out);
    return padded;
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
    const tensor::Tensor partial =
        tensor::empty({cuda::decode_partial_floats(run.sequences, heads, dim, pages)}, q.options().dtype(at::kFloat));
    cuda::DecodeAttention over = attention_over(config_, spec, pages_, places);
    over.q = static_cast<const std::uint16_t*>(q.const_data_ptr());
    over.table = run.pages.const_data_ptr<std::int64_t>();
    over.positions = run.positions.const_data_ptr<std::int64_t>();
    over.partial = partial.mutable_data_ptr<float>();
    over.out = static_cast<std::uint16_t*>(out.value.mutable_data_ptr());
    over.log_sum = spec.sinks ? out.log_sum.mutable_data_ptr<float>() : nullptr;
    over.rows = run.sequences;
    over.max_pages = pages;
    tensor::launch(own, own.decode_attention, over, cuda::Kernel::decode_attention, q);
    return out;
  }

  // Keys and values of all its sequences, then one call.
  [[nodiscard]] model::AttentionOutput attend_whole(const tensor::VarlenAttention& attention, const PromptRows& prompts,
                                                    const tensor::Tensor& q) const {
    const std::int64_t keys = prompts.positions.size(0) / 2, width = page_places(config_, pages_, 0).head_stride;
    tensor::Tensor gathered =
        pages_.arena()
            .view({-1, config_.kv_heads, width})
            .index_select(0, kept_layer_ == 0 ? prompts.positions
                                              : prompts.positions.add(kept_layer_ * PromptPlaces::layer_rows));
    if (width != config_.head_dim) gathered = gathered.narrow(2, 0, config_.head_dim).contiguous();
    tensor::VarlenSequences sequences = prompts.sequences;
    sequences.scale = score_scale(config_, config_.spec(layer_));
    sequences.window = config_.spec(layer_).window;
    const tensor::VarlenOutput out =
        attention.forward(q, gathered.narrow(0, 0, keys), gathered.narrow(0, keys, keys), sequences);
    return {out.value, config_.spec(layer_).sinks ? out.log_sum.t().contiguous() : tensor::Tensor()};
  }
  void attend_whole(const tensor::VarlenAttention& attention, const PromptRows& prompts, const tensor::Tensor& q,
                    const model::AttentionOutput& out) const {
    const auto put = [&](const tensor::Tensor& to, const tensor::Tensor& from) {
      if (prompts.rows.defined())
        to.index_copy_(0, prompts.rows, from);
      else
        to.narrow(0, prompts.first, prompts.count).copy_(from);
    };
    const model::AttentionOutput part = attend_whole(
        attention, prompts,
        prompts.rows.defined() ? q.index_select(0, prompts.rows) : q.narrow(0, prompts.first, prompts.count));
    put(out.value, part.value);
    if (part.log_sum.defined()) put(out.log_sum, part.log_sum);
  }

  // Of so many sequences at a time, or of one so many rows.
  [[nodiscard]] model::AttentionOutput attend_in_pieces(const PagedRows::Run& run, const tensor::Tensor& q,
                                                        const tensor::Tensor& layer) const {
    const std::int64_t s = run.pages_each * cpu::page_positions, m = run.rows_each;
    const std::int64_t gathered =
                           std::max<std::int64_t>(1, pieces_.gathered / (2 * s * config_.kv_heads * config_.head_dim)),
                       rows = std::max<std::int64_t>(1, pieces_.scores / (s * config_.heads));
    const std::int64_t sequences = std::min({run.sequences, gathered, std::max<std::int64_t>(1, rows / m)}),
                       each = std::min(m, std::max<std::int64_t>(1, rows / sequences));
    if (sequences == run.sequences && each == m) return attend(run, q, layer);
    std::vector<tensor::Tensor> values, log_sums;
    for (std::int64_t b = 0; b < run.sequences; b += sequences) {
      const std::int64_t some = std::min(sequences, run.sequences - b);
      for (std::int64_t first = 0; first < m; first += each) {  // one sequence, or all of its rows
        PagedRows::Run part{.pages = run.pages.narrow(0, b * run.pages_each, some * run.pages_each),
                            .sequences = some,
                            .rows_each = std::min(each, m - first),
                            .pages_each = run.pages_each};
        part.positions = run.positions.narrow(0, b, some).narrow(1, first, part.rows_each);
        const model::AttentionOutput out = attend(part, q.narrow(0, b * m + first, some * part.rows_each), layer);
        values.push_back(out.value);
        if (out.log_sum.defined()) log_sums.push_back(out.log_sum);
      }
    }
    return {tensor::concatenate(values, 0), log_sums.empty() ? tensor::Tensor() : tensor::concatenate(log_sums, 0)};
  }

  // q [B·M, n, D], layer [N, 2, 32, kv, D] → [B·M, n, D], and [B·M, n] where the layer has sinks.
  [[nodiscard]] model::AttentionOutput attend(const PagedRows::Run& run, const tensor::Tensor& q,
                                              const tensor::Tensor& layer) const {
    const std::int64_t b = run.sequences, m = run.rows_each, s = run.pages_each * cpu::page_positions,
                       kv = config_.kv_heads, group = config_.heads / kv, d = config_.head_dim;
    const double scale = score_scale(config_, config_.spec(layer_));
    tensor::Tensor kept = layer.index_select(0, run.pages);
    if (pages_.type() == at::kByte) kept = kept.view(at::ScalarType::Float8_e4m3fn);
    kept = kept.view({b, run.pages_each, 2, cpu::page_positions, kv, d}).to(at::kFloat);
    const tensor::Tensor keys = kept.select(2, 0).reshape({b, s, kv, d}).permute({0, 2, 3, 1});    // [B, kv, D, S]
    const tensor::Tensor values = kept.select(2, 1).reshape({b, s, kv, d}).permute({0, 2, 1, 3});  // [B, kv, S, D]
    const tensor::Tensor queries = q.reshape({b, m, kv, group, d})
                                       .permute({0, 2, 3, 1, 4})
                                       .reshape({b, kv, group * m, d})
                                       .to(at::kFloat)
                                       .mul(scale);
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
  AttentionPieces pieces_;
  const PagedRows* rows_ = nullptr;
  std::int64_t layer_ = 0, kept_layer_ = 0;  // its number among those with keys
};

}  // namespace rlalgo::inference::detail
