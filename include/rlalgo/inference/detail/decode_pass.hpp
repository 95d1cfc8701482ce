// A pass that decodes, by the project's own kernels and the products of LibTorch: at most nine launches a layer, into memory that is
// there already, so that it can be recorded once and replayed.
//
//   norm · q, k, v · heads (norms, rotation, pages) · attention · o and residual · norm · gate, up · gated · down and residual
//
// Rows are padded to a bucket, pages to a power of two; a plan is the memory of one such pass and, where the device records, its graph.
// A padded row has no position: it is attended to by nobody and writes no page. What a graph reads lies where it lay: the arena, the
// weights, the plan's own memory; where one of them has moved, the pass is recorded again. Weights that are updated in place are read as
// they are.
//
// Adapters (pass_adapters.hpp) are two more launches for each group of maps that has one: q, k, v; o; gate, up; down. DoRA's ν is one more
// for q, k, v and for gate, up, and two more for o and down, whose product does not go to the residual at once. Rows of several adapters
// and of none in one pass (adapter_bank.hpp): one more each, for the columns that are not a row's own, and one for ν of the rows. A plan
// has a graph for each of the weights, or banks, that were last decoded with.
//
// Matrices in bytes (quantised_copies.hpp) are multiplied by cuda/product_8bit.cuh, one launch in the place of each product: nine, too.
//
// Errors: [rlalgo.inference.20] a graph that could not be launched.
//
// Layers that it does not know (fits()) are computed by model/decoder_layer.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/index_select_ops.h>

#include <rlalgo/core/error.hpp>
#include <rlalgo/inference/detail/byte_product.hpp>
#include <rlalgo/inference/detail/decode_plan.hpp>
#include <rlalgo/inference/detail/joined_maps.hpp>
#include <rlalgo/inference/detail/paged_operations.hpp>
#include <rlalgo/inference/detail/paged_rows.hpp>
#include <rlalgo/inference/detail/pass_adapters.hpp>
#include <rlalgo/inference/detail/tensor_pages.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/inference/quantised_copies.hpp>
#include <rlalgo/model/cuda_operations.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/decoder_layer.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/host_copies.hpp>
#include <rlalgo/tensor/side_stream.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::inference::detail {

// Names where the weights lie that a pass reads.
[[nodiscard]] inline std::uint64_t places_of(const model::DecoderWeights& weights,
                                             std::span<const LayerAdapters> adapters = {}) {
  std::uint64_t out = 14695981039346656037ULL;
  const auto add = [&out](const tensor::Tensor& x) {
    out = (out ^ reinterpret_cast<std::uintptr_t>(x.defined() ? x.const_data_ptr() : nullptr)) * 1099511628211ULL;
  };
  add(weights.embedding);
  add(weights.final_norm);
  for (const LayerAdapters& one : adapters)
    for (const LowRankMaps* const maps : {&one.qkv, &one.o, &one.gate_up, &one.down}) {
      add(maps->a);
      add(maps->b);
      add(maps->scale);
      // An adapter may lie where one of another rank lay.
      out = (out ^ static_cast<std::uint64_t>(maps->rank() + maps->units)) * 1099511628211ULL;
    }
  for (const model::LayerWeights& w : weights.layers) {
    for (const tensor::Tensor* const one : {&w.attention_norm, &w.mlp_norm, &w.q_norm, &w.k_norm}) add(*one);
    for (const model::Linear* const map : {&w.q_proj, &w.k_proj, &w.v_proj, &w.qkv_proj, &w.o_proj, &w.gate_proj,
                                           &w.up_proj, &w.gate_up_proj, &w.down_proj}) {
      add(map->quantised ? map->quantised->codes() : map->weight);
      add(map->bias);
    }
  }
  return out;
}

class DecodePass {
 public:
  DecodePass(const model::DecoderConfig& config, const TensorPages& pages, const tensor::OwnKernels& kernels)
      : config_(config), pages_(pages), kernels_(kernels), stream_(pages.device()) {}
  DecodePass(const DecodePass&) = delete;
  DecodePass& operator=(const DecodePass&) = delete;

  // Whether passes with these weights are computed here; `bytes`: of each layer, where the maps are copies in bytes.
  [[nodiscard]] bool fits(const model::DecoderWeights& w, std::span<const LayerBytes> bytes = {}) const {
    if (kernels_.table == nullptr || pages_.device().type() != kernels_.device || pages_.type() == at::kFloat ||
        w.embedding.scalar_type() != at::kBFloat16 || config_.head_dim % 8 != 0 || config_.head_dim > cuda::heads_width)
      return false;
    for (const cuda::Kernel kernel :
         {cuda::Kernel::rms_norm, cuda::Kernel::rotate, cuda::Kernel::gated, cuda::Kernel::decode_attention})
      if (!cuda::in_use(kernel)) return false;
    for (std::int64_t l = 0; l < config_.layers; ++l)
      if (!knows(config_.spec(l), w.layers[static_cast<std::size_t>(l)],
                 bytes.empty() ? nullptr : &bytes[static_cast<std::size_t>(l)]))
        return false;
    return !config_.norm.centred;
  }

  // States [rows, H] behind the final norm. `angles`: cosines and sines of each rotation, [positions, half].
  // `bytes`, `adapters`: of each layer, or none; `places`: places_of() all. `padded`: what a pass has rows, at least as many as are given; 0: the
  // bucket of their number. `bank`: whose the adapters are, with the place of each row; none: all rows have the same ones.
  [[nodiscard]] tensor::Tensor run(const model::DecoderWeights& w, std::span<const JoinedMaps> joined,
                                   std::span<const LayerBytes> bytes, std::span<const LayerAdapters> adapters,
                                   std::uint64_t places, std::span<const Row> rows,
                                   std::span<const std::array<tensor::Tensor, 2>> angles, std::int64_t padded = 0,
                                   const BankRows& bank = {}) {
    const auto count = static_cast<std::int64_t>(rows.size());
    std::int64_t longest = 1;
    for (const Row& row : rows) longest = std::max(longest, pages_of(row));
    const tensor::SideStream::Scope scope(stream_);
    DecodePlan& plan = plan_of(padded > 0 ? padded : bucket(count), std::bit_ceil(static_cast<std::uint64_t>(longest)));
    plan.fill(rows, bank.places, numbers_);
    const Read read{w, joined, bytes, adapters, angles, bank.others};
    plan.make_room(adapters, bank);
    if (!records()) {
      compute(plan, read);
      return plan.last.narrow(0, 0, count);
    }
    const DecodePlan::Reads reads{pages_.arena().const_data_ptr(), angles.empty() ? 0 : angles[0][0].size(0)};
    DecodePlan::Recorded& recorded = plan.recorded_of(places);
    const auto thread = std::exchange(recorded.thread, std::this_thread::get_id());
    if (recorded.graph != nullptr && recorded.reads == reads) {
      replay(plan, recorded);
    } else if (recorded.reads == reads && thread == recorded.thread) {
      record(plan, recorded, read);
    } else {
      // The first pass of its kind on this thread: libraries make what they need for it, which may not be made while a pass is recorded.
      recorded.graph.reset();
      compute(plan, read);
    }
    recorded.reads = reads;
    return plan.last.narrow(0, 0, count);
  }

  // Forgets graphs and memory.
  void release() { plans_.clear(); }

  // The number of rows that a pass of `rows` is computed with.
  [[nodiscard]] static std::int64_t bucket(std::int64_t rows) {
    for (const std::int64_t one : {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256})
      if (rows <= one) return one;
    return (rows + 127) / 128 * 128;
  }

 private:
  static constexpr int most_refused = 3;  // then the device does not record

  // What a pass reads beside its plan.
  struct Read {
    const model::DecoderWeights& weights;
    std::span<const JoinedMaps> joined;
    std::span<const LayerBytes> bytes;
    std::span<const LayerAdapters> adapters;
    std::span<const std::array<tensor::Tensor, 2>> angles;
    const tensor::Tensor& others;  // of a bank, or undefined
  };
  [[nodiscard]] static bool plain(const model::Linear& map) {
    return map.weight.defined() && !map.quantised && map.weight.is_contiguous() &&
           map.weight.scalar_type() == at::kBFloat16;
  }
  [[nodiscard]] bool in_bytes(const LayerBytes& bytes) const {
    return bytes.complete() && multiplies_bytes(kernels_, *bytes.qkv) && multiplies_bytes(kernels_, *bytes.o) &&
           multiplies_bytes(kernels_, *bytes.gate_up) && multiplies_bytes(kernels_, *bytes.down);
  }
  [[nodiscard]] bool knows(const model::LayerSpec& spec, const model::LayerWeights& w, const LayerBytes* bytes) const {
    const auto whole = [&] {
      return (spec.fused_qkv ? plain(w.qkv_proj) : plain(w.q_proj) && plain(w.k_proj) && plain(w.v_proj)) &&
             (spec.fused_gate_up ? plain(w.gate_up_proj) : plain(w.gate_proj) && plain(w.up_proj)) && plain(w.o_proj) &&
             plain(w.down_proj);
    };
    return (bytes != nullptr ? in_bytes(*bytes) : whole()) && !spec.mlp_bias && w.attention_norm.defined() &&
           w.mlp_norm.defined() && !w.attention_output_norm.defined() && !w.mlp_output_norm.defined() &&
           !spec.parallel && !spec.sinks && !spec.output_gate && spec.experts.count == 0 && !spec.delta.present() &&
           spec.residual_scale == 1.0 && spec.head_norm != model::HeadNorm::all;
  }

  [[nodiscard]] bool records() const { return kernels_.table->graph_begin != nullptr && refused_ < most_refused; }

  [[nodiscard]] DecodePlan& plan_of(std::int64_t rows, std::uint64_t pages) {
    const auto found = plans_.find({rows, pages});
    if (found != plans_.end()) return found->second;
    DecodePlan plan(config_, pages_.device(), rows, static_cast<std::int64_t>(pages));  // all of its memory, or none
    return plans_.emplace(std::pair(rows, pages), std::move(plan)).first->second;
  }

  void compute(DecodePlan& plan, const Read& read) {
    const cuda::Kernels& own = *kernels_.table;
    const model::DecoderWeights& w = read.weights;
    at::_ops::index_select_out::call(w.embedding, 0, plan.ids, plan.x);
    if (config_.embedding_scale != 1.0) plan.x.mul_(model::embedding_scale(config_, at::kBFloat16));
    if (read.others.defined()) at::_ops::index_select_out::call(read.others, 0, plan.adapter, plan.hidden);
    static const LayerAdapters none;
    static const LayerBytes plain_maps;
    for (std::int64_t l = 0; l < config_.layers; ++l) {
      const auto at = static_cast<std::size_t>(l);
      layer(own, plan, w.layers[at], read.joined[at], read.bytes.empty() ? plain_maps : read.bytes[at],
            read.adapters.empty() ? none : read.adapters[at], l, read.angles);
    }
    norm(own, plan.x, w.final_norm, plan.last);
  }

  // out ← x Wᵀ.
  static void multiply(const tensor::Tensor& x, const tensor::Tensor& weight, const tensor::Tensor& out) {
    tensor::addmm_(out, x, weight.t(), 0.0);
  }

  // y ← ν ⊙ y.
  static void scale(const DecodePlan& plan, const LowRankMaps& maps, const tensor::Tensor& y) {
    if (!maps.scale.defined()) return;
    if (maps.units == 0) {
      y.mul_(maps.scale);
      return;
    }
    const std::int64_t width = maps.scale.size(1);
    tensor::Tensor rows = plan.scale.view({-1}).narrow(0, 0, plan.rows * width).view({plan.rows, width});
    at::_ops::index_select_out::call(maps.scale, 0, plan.adapter, rows);
    y.mul_(rows);
  }

  // y += (x Aᵀ) Bᵀ.
  static void adapt(const DecodePlan& plan, const LowRankMaps& maps, const tensor::Tensor& x, const tensor::Tensor& y) {
    if (!maps.defined()) return;
    const tensor::Tensor rank =
        plan.rank.view({-1}).narrow(0, 0, plan.rows * maps.rank()).view({plan.rows, maps.rank()});
    multiply(x, maps.a, rank);
    if (maps.units > 0)
      rank.view({plan.rows, maps.units, -1}).masked_fill_(plan.hidden.narrow(1, 0, maps.units).unsqueeze(2), 0.0);
    tensor::addmm_(y, rank, maps.b.t());
  }

  void layer(const cuda::Kernels& own, DecodePlan& plan, const model::LayerWeights& w, const JoinedMaps& joined,
             const LayerBytes& bytes, const LayerAdapters& adapters, std::int64_t l,
             std::span<const std::array<tensor::Tensor, 2>> angles) {
    const model::LayerSpec& spec = config_.spec(l);
    const std::int64_t n = config_.heads * config_.head_dim, kv = config_.kv_heads * config_.head_dim,
                       inner = config_.intermediate_size;
    norm(own, plan.x, w.attention_norm, plan.normed);
    const tensor::Tensor parts[] = {plan.joined.narrow(1, 0, n), plan.joined.narrow(1, n, kv),
                                    plan.joined.narrow(1, n + kv, kv)};
    const model::Linear* const maps[] = {&w.q_proj, &w.k_proj, &w.v_proj};
    if (bytes.qkv)
      multiply_bytes(own, plan.normed, *bytes.qkv, plan.joined);
    else if (joined.qkv.defined())
      multiply(plan.normed, joined.qkv, plan.joined);
    else
      for (std::size_t i = 0; i < 3; ++i) multiply(plan.normed, maps[i]->weight, parts[i]);
    scale(plan, adapters.qkv, plan.joined);
    adapt(plan, adapters.qkv, plan.normed, plan.joined);
    if (!joined.qkv_bias.defined())
      for (std::size_t i = 0; i < 3; ++i)
        if (maps[i]->bias.defined()) parts[i].add_(maps[i]->bias);
    attend(own, plan, w, joined.qkv_bias, l, angles);
    add(own, plan, plan.attended, w.o_proj, bytes.o, adapters.o);
    norm(own, plan.x, w.mlp_norm, plan.normed);
    if (bytes.gate_up) {
      multiply_bytes(own, plan.normed, *bytes.gate_up, plan.gate_up);
    } else if (joined.gate_up.defined()) {
      multiply(plan.normed, joined.gate_up, plan.gate_up);
    } else {
      multiply(plan.normed, w.gate_proj.weight, plan.gate_up.narrow(1, 0, inner));
      multiply(plan.normed, w.up_proj.weight, plan.gate_up.narrow(1, inner, inner));
    }
    scale(plan, adapters.gate_up, plan.gate_up);
    adapt(plan, adapters.gate_up, plan.normed, plan.gate_up);
    auto* const gate = static_cast<std::uint16_t*>(plan.gate_up.mutable_data_ptr());
    tensor::launch(own, own.gated,
                   {.gate = gate,
                    .up = gate + inner,
                    .out = plan.active.mutable_data_ptr(),
                    .count = plan.rows * inner,
                    .width = inner,
                    .stride = 2 * inner,
                    .activation = model::kernel_activation(spec.activation),
                    .element = cuda::Element::bfloat16},
                   cuda::Kernel::gated, plan.gate_up);
    add(own, plan, plan.active, w.down_proj, bytes.down, adapters.down);
  }

  // x += y Wᵀ + bias, and what an adapter adds.
  static void add(const cuda::Kernels& own, const DecodePlan& plan, const tensor::Tensor& y, const model::Linear& map,
                  const ByteWeight& bytes, const LowRankMaps& adapter) {
    if (adapter.scale.defined()) {
      if (bytes)
        multiply_bytes(own, y, *bytes, plan.normed);  // which nobody reads any more
      else
        multiply(y, map.weight, plan.normed);
      scale(plan, adapter, plan.normed);
      plan.x.add_(plan.normed);
    } else if (bytes) {
      multiply_bytes(own, y, *bytes, plan.x, true);
    } else {
      tensor::addmm_(plan.x, y, map.weight.t());
    }
    if (map.bias.defined()) plan.x.add_(map.bias);
    adapt(plan, adapter, y, plan.x);
  }

  void norm(const cuda::Kernels& own, const tensor::Tensor& x, const tensor::Tensor& weight,
            const tensor::Tensor& out) const {
    tensor::launch(own, own.rms_norm,
                   {.x = x.mutable_data_ptr(),
                    .weight = weight.const_data_ptr(),
                    .y = out.mutable_data_ptr(),
                    .rows = x.size(0),
                    .width = x.size(1),
                    .epsilon = static_cast<float>(config_.norm.epsilon),
                    .one_more = config_.norm.unit_offset,
                    .once = config_.norm.rounded_once,
                    .element = cuda::Element::bfloat16},
                   cuda::Kernel::rms_norm, x);
  }

  void attend(const cuda::Kernels& own, DecodePlan& plan, const model::LayerWeights& w, const tensor::Tensor& bias,
              std::int64_t l, std::span<const std::array<tensor::Tensor, 2>> angles) const {
    const model::LayerSpec& spec = config_.spec(l);
    const cuda::Pages places = page_places(config_, pages_, config_.attention_layers(l));
    const auto* const table = spec.rotary() ? &angles[static_cast<std::size_t>(spec.rope)] : nullptr;
    const bool norms = spec.head_norm != model::HeadNorm::none;
    tensor::launch(own, own.heads,
                   {.joined = plan.joined.const_data_ptr(),
                    .bias = bias.defined() ? bias.const_data_ptr() : nullptr,
                    .q_weight = norms ? w.q_norm.const_data_ptr() : nullptr,
                    .k_weight = norms ? w.k_norm.const_data_ptr() : nullptr,
                    .epsilon = static_cast<float>(config_.norm.epsilon),
                    .one_more = config_.norm.unit_offset,
                    .once = config_.norm.rounded_once,
                    .cosine = table == nullptr ? nullptr : (*table)[0].const_data_ptr<float>(),
                    .sine = table == nullptr ? nullptr : (*table)[1].const_data_ptr<float>(),
                    .positions = plan.positions.const_data_ptr<std::int64_t>(),
                    .half = table == nullptr ? 0 : (*table)[0].size(1),
                    .interleaved = table != nullptr && config_.ropes[static_cast<std::size_t>(spec.rope)].interleaved,
                    .q = plan.q.mutable_data_ptr(),
                    .arena = pages_.arena().mutable_data_ptr(),
                    .page = plan.page.const_data_ptr<std::int64_t>(),
                    .place = plan.place.const_data_ptr<std::int64_t>(),
                    .rows = plan.rows,
                    .heads = config_.heads,
                    .kv_heads = config_.kv_heads,
                    .head_dim = config_.head_dim,
                    .pages = places,
                    .element = cuda::Element::bfloat16},
                   cuda::Kernel::rotate, plan.joined);
    cuda::DecodeAttention over = attention_over(config_, spec, pages_, places);
    over.q = static_cast<const std::uint16_t*>(plan.q.const_data_ptr());
    over.table = plan.table.const_data_ptr<std::int64_t>();
    over.positions = plan.positions.const_data_ptr<std::int64_t>();
    over.partial = plan.partial.mutable_data_ptr<float>();
    over.arrived = static_cast<std::uint32_t*>(plan.arrived.mutable_data_ptr());
    over.out = static_cast<std::uint16_t*>(plan.attended.mutable_data_ptr());
    over.rows = plan.rows;
    over.max_pages = static_cast<int>(plan.pages);
    tensor::launch(own, own.decode_attention, over, cuda::Kernel::decode_attention, plan.q);
  }

  // Computes the pass where it cannot be recorded; what stands in the way of both is said by that.
  void record(DecodePlan& plan, DecodePlan::Recorded& recorded, const Read& read) {
    const cuda::Kernels& own = *kernels_.table;
    cuda::Graph graph = nullptr;
    bool good = own.graph_begin(stream_.handle()) == 0;
    if (good) {
      try {
        compute(plan, read);
      } catch (const std::exception&) {
        good = false;
      }
      good = own.graph_end(stream_.handle(), &graph) == 0 && good;
    }
    const std::shared_ptr<void> made(graph, [free = own.graph_free](cuda::Graph one) {
      if (one != nullptr) free(one);
    });
    if (good) {
      recorded.graph = made;
      replay(plan, recorded);
    } else {  // what was recorded has not run
      ++refused_;
      compute(plan, read);
    }
  }

  void replay(const DecodePlan& plan, DecodePlan::Recorded& recorded) {
    const int error = kernels_.table->graph_replay(recorded.graph.get(), stream_.handle());
    if (error == 0) return;
    recorded.graph.reset();  // the next pass is computed, and recorded again
    recorded.reads = {};
    core::raise(
        "inference", 20,
        {.what = "a recorded pass could not be launched",
         .found = std::string(kernels_.table->error_text(error)) + " (CUDA error " + std::to_string(error) + ")",
         .where = "a graph of " + std::to_string(plan.rows) + " rows and " + std::to_string(plan.pages) +
                  " pages each on " + pages_.device().str() + ", stream " +
                  std::to_string(stream_.stream() ? stream_.stream()->id() : 0),
         .remedy = "an earlier kernel may have failed: CUDA_LAUNCH_BLOCKING=1 names it; without decode_attention in "
                   "RLALGO_CUDA_KERNELS nothing is recorded"});
  }

  const model::DecoderConfig& config_;
  const TensorPages& pages_;
  const tensor::OwnKernels& kernels_;
  tensor::SideStream stream_;
  std::map<std::pair<std::int64_t, std::uint64_t>, DecodePlan> plans_;
  std::vector<std::int64_t> numbers_;
  int refused_ = 0;  // passes that could not be recorded
};

}  // namespace rlalgo::inference::detail
