// Copies of a decoder's matrices in bytes on a device (quantization.hpp has the numbers): what a pass there multiplies by, made anew when
// the weights have changed, in the memory of the last ones.
//
//   int8   codes [rows, 32·groups], scales [rows, groups]      a group of 32 columns has a scale
//   fp8    codes [rows, 32·groups], scales [rows, 1]           a row has one
//
// Maps that read the same input (q, k, v; gate, up) are one matrix, one behind the other, so that cuda/product_8bit.cuh multiplies by all in
// one launch. An adapter is multiplied in first where EngineConfig::merge_adapter says so: W + s·B A is made for one map at a time, and
// no more of it is kept. Left as they are: embedding, maps in 4 or 8 bits, adapters that are not multiplied in, and the small maps that
// choose and weigh (LayerParts::each_map).
//
// Views of the same tensors share copies while one of them lives. A copy that no view has is written over by the next one of its
// place, so what has recorded its address reads the new values.
//
// Memory beside the copies: `piece` numbers of a matrix in float32, a few times. The host reads nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/inference/merged_adapter.hpp>
#include <rlalgo/inference/quantization.hpp>
#include <rlalgo/model/merged_weights.hpp>
#include <rlalgo/model/quantised_weight.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::inference {

// A matrix whose codes and scales are a copy.
using ByteWeight = std::shared_ptr<const model::QuantisedWeight>;

inline constexpr std::int64_t byte_group = cuda::product_8bit_group;

// Codes and scales of x [rows, columns] into codes [rows, 32·groups], scales [rows, groups or 1]; NaN where x is not finite.
inline void quantise_rows(Quantization how, const tensor::Tensor& x, const tensor::Tensor& codes,
                          const tensor::Tensor& scales) {
  constexpr std::int64_t piece = std::int64_t{1} << 22U;
  const c10::NoGradGuard no_grad;
  const std::int64_t rows = x.size(0), columns = x.size(1), padded = codes.size(1),
                     block = padded / std::max<std::int64_t>(1, scales.size(1)),
                     at_once = std::max<std::int64_t>(1, piece / std::max<std::int64_t>(1, padded));
  const double largest = how == Quantization::int8 ? 127.0 : 448.0;
  for (std::int64_t begin = 0; begin < rows; begin += at_once) {
    const std::int64_t count = std::min(at_once, rows - begin);
    tensor::Tensor part = x.narrow(0, begin, count).to(at::kFloat);
    if (padded > columns) part = tensor::concatenate({part, part.new_zeros({count, padded - columns})}, 1);
    part = part.contiguous().view({count, -1, block});
    const tensor::Tensor most = part.abs().amax(2), limit = most.new_full({}, largest);  // [count, blocks]
    const tensor::Tensor nothing = most.lt(1e-30F);  // its inverse would be infinite
    scales.narrow(0, begin, count).copy_(most.div(limit).masked_fill_(nothing, 0.0).add_(most.sub(most)));
    part = part.mul(limit.div(most).masked_fill_(nothing, 0.0).unsqueeze(2));
    if (how == Quantization::int8)
      part.round_();
    else
      part.clamp_(-largest, largest);
    codes.narrow(0, begin, count).copy_(part.view({count, padded}));
  }
}

// A matrix in bytes, and the maps whose rows it has.
struct ByteMatrix {
  ByteWeight whole;
  std::vector<ByteWeight> parts;
};

[[nodiscard]] inline std::int64_t padded_columns(std::int64_t columns) {
  return cuda::product_8bit_groups(columns) * byte_group;
}

// Of maps of so many rows each, [Σ rows, columns], not written to.
[[nodiscard]] inline ByteMatrix byte_matrix(Quantization how, const std::vector<std::int64_t>& rows,
                                            std::int64_t columns, const at::TensorOptions& options) {
  std::int64_t all = 0;
  for (const std::int64_t one : rows) all += one;
  const std::int64_t padded = padded_columns(columns), block = how == Quantization::int8 ? byte_group : padded;
  const auto plain = at::TensorOptions().device(options.device());
  const tensor::Tensor codes =
      tensor::empty({all, padded}, plain.dtype(how == Quantization::int8 ? at::kChar : at::ScalarType::Float8_e4m3fn));
  const tensor::Tensor scales =
      tensor::empty({all, padded / std::max<std::int64_t>(1, block)}, plain.dtype(at::kFloat));
  const auto of = [&](std::int64_t first, std::int64_t count) {
    return std::make_shared<const model::QuantisedWeight>(
        model::WeightCode::int8, count, columns, block, codes.narrow(0, first, count), scales.narrow(0, first, count),
        model::QuantisedWeight::Nested{}, options.dtype().toScalarType());
  };
  ByteMatrix out{of(0, all), {}};
  std::int64_t first = 0;
  for (const std::int64_t one : rows) {
    out.parts.push_back(of(first, one));
    first += one;
  }
  return out;
}

// see(maps) for every list of maps of a layer that are to be one matrix; of `Layer` LayerWeights or const LayerWeights.
template <class Layer, class See>
void visit_byte_maps(Layer& w, See&& see) {
  using Map = std::conditional_t<std::is_const_v<Layer>, const model::Linear, model::Linear>;
  using Maps = std::vector<Map*>;
  const auto may = [](const model::Linear& map) { return map.weight.defined() && !map.quantised; };
  const auto visit = [&](const Maps& maps) {
    const bool together = std::all_of(maps.begin(), maps.end(), [&](const model::Linear* map) {
      return may(*map) && map->weight.scalar_type() == maps.front()->weight.scalar_type();
    });
    if (together) return see(maps);
    for (Map* const map : maps)
      if (may(*map)) see(Maps{map});
  };
  visit({&w.q_proj, &w.k_proj, &w.v_proj});
  visit({&w.gate_proj, &w.up_proj});
  for (Map* const map : {&w.qkv_proj, &w.gate_up_proj, &w.o_proj, &w.down_proj, &w.in_proj_qkv, &w.in_proj_z,
                         &w.in_proj_qkvz, &w.shared.gate_proj, &w.shared.up_proj, &w.shared.down_proj})
    visit({map});
  for (auto& expert : w.experts)
    for (Map* const map : {&expert.gate_proj, &expert.up_proj, &expert.down_proj}) visit({map});
}

[[nodiscard]] inline const tensor::Tensor& head_of(const model::DecoderWeights& weights) {
  return weights.lm_head.defined() ? weights.lm_head : weights.embedding;
}

// What copies take.
[[nodiscard]] inline std::size_t quantised_bytes(Quantization how, const model::DecoderWeights& weights) {
  if (how == Quantization::none) return 0;
  std::int64_t out = 0;
  const auto add = [&](const tensor::Tensor& weight) {
    const std::int64_t padded = padded_columns(weight.size(1));
    out += weight.size(0) * (padded + 4 * (how == Quantization::int8 ? padded / byte_group : 1));
  };
  for (const model::LayerWeights& layer : weights.layers)
    visit_byte_maps(layer, [&](const auto& maps) {
      for (const model::Linear* const map : maps) add(map->weight);
    });
  add(head_of(weights));
  return static_cast<std::size_t>(out);
}

// What decode_pass.hpp multiplies by in a layer; null where it has no such matrix.
struct LayerBytes {
  ByteWeight qkv, o, gate_up, down;

  [[nodiscard]] bool complete() const { return qkv && o && gate_up && down; }
};

// A decoder whose maps hold copies.
struct QuantisedDecoder {
  model::DecoderWeights weights;
  ByteWeight head;
  std::vector<LayerBytes> layers;
  std::vector<std::shared_ptr<const ByteMatrix>> held;  // by a view, for as long as it is read
};

class QuantisedCopies {
 public:
  QuantisedCopies(Quantization how, bool merges) : how_(how), merges_(merges) {}

  // `contents`: a number that an earlier call for the same values had.
  [[nodiscard]] QuantisedDecoder of(const model::DecoderWeights& weights, std::optional<std::uint64_t> contents) {
    const c10::NoGradGuard no_grad;
    QuantisedDecoder out{.weights = weights, .head = {}, .layers = {}, .held = {}};
    const tensor::Tensor nobody = model::stand_in({1, 1}, weights.embedding.options().requires_grad(false));
    std::size_t place = 0;
    for (model::LayerWeights& layer : out.weights.layers) {
      LayerBytes& bytes = out.layers.emplace_back();
      visit_byte_maps(layer, [&](const std::vector<model::Linear*>& maps) {
        const std::shared_ptr<const ByteMatrix> made = matrix(place++, maps, contents);
        ByteWeight* const whole = maps.size() == 3 || maps[0] == &layer.qkv_proj         ? &bytes.qkv
                                  : (maps.size() == 2 || maps[0] == &layer.gate_up_proj) ? &bytes.gate_up
                                  : maps[0] == &layer.o_proj                             ? &bytes.o
                                  : maps[0] == &layer.down_proj                          ? &bytes.down
                                                                                         : nullptr;
        if (whole != nullptr) *whole = made->whole;
        for (std::size_t i = 0; i < maps.size(); ++i) {
          if (merges(*maps[i])) maps[i]->lora = {};
          maps[i]->quantised = made->parts[i];
          maps[i]->weight = nobody.expand(maps[i]->weight.sizes());
        }
        out.held.push_back(made);
      });
    }
    model::Linear head{head_of(weights), {}};
    out.held.push_back(matrix(place, {&head}, contents));
    out.head = out.held.back()->whole;
    release();
    return out;
  }

  // Gives back the memory of copies that no view has.
  void release() {
    std::erase_if(copies_, [](const Copy& one) { return one.matrix.use_count() == 1; });
  }

 private:
  // A map of the decoder: where its numbers lie, and its adapter's where that is multiplied in.
  using Source = std::array<const void*, 4>;
  struct Copy {
    std::size_t place = 0;  // among the lists of maps
    std::vector<Source> sources;
    std::optional<std::uint64_t> contents;
    std::shared_ptr<const ByteMatrix> matrix;
  };

  [[nodiscard]] bool merges(const model::Linear& map) const { return merges_ && detail::may_merge(map); }

  [[nodiscard]] std::shared_ptr<const ByteMatrix> matrix(std::size_t place, const std::vector<model::Linear*>& maps,
                                                         std::optional<std::uint64_t> contents) {
    std::vector<Source> sources;
    std::vector<std::int64_t> rows;
    bool merged = false;
    for (const model::Linear* const map : maps) {
      const auto at = [&](const tensor::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; };
      const bool with = merges(*map);
      sources.push_back({map->weight.const_data_ptr(), with ? at(map->lora.a) : nullptr,
                         with ? at(map->lora.b) : nullptr, with ? at(map->lora.magnitude) : nullptr});
      rows.push_back(map->weight.size(0));
      merged = merged || with;
    }
    const std::int64_t columns = maps.front()->weight.size(1);
    Copy* free = nullptr;
    for (Copy& one : copies_) {
      if (one.place != place) continue;
      const bool living = one.matrix.use_count() > 1, same = one.sources == sources;
      // Tensors of living views do not change; an adapter that is multiplied in may have.
      if (same && ((contents && one.contents == contents) || (living && !merged))) {
        one.contents = contents;
        return one.matrix;
      }
      if (!living && one.matrix->whole->columns() == columns && fits(*one.matrix, rows) && (free == nullptr || same))
        free = &one;
    }
    if (free == nullptr)
      free = &copies_.emplace_back(Copy{.place = place,
                                        .sources = {},
                                        .contents = {},
                                        .matrix = std::make_shared<const ByteMatrix>(
                                            byte_matrix(how_, rows, columns, maps.front()->weight.options()))});
    free->sources = std::move(sources);
    free->contents = contents;
    for (std::size_t i = 0; i < maps.size(); ++i) {
      const model::QuantisedWeight& to = *free->matrix->parts[i];
      quantise_rows(how_, merges(*maps[i]) ? model::merged(maps[i]->weight, maps[i]->lora) : maps[i]->weight.detach(),
                    to.codes(), to.scales());
    }
    return free->matrix;
  }

  [[nodiscard]] static bool fits(const ByteMatrix& matrix, const std::vector<std::int64_t>& rows) {
    return std::equal(rows.begin(), rows.end(), matrix.parts.begin(), matrix.parts.end(),
                      [](std::int64_t count, const ByteWeight& part) { return part->rows() == count; });
  }

  Quantization how_;
  bool merges_;
  std::vector<Copy> copies_;
};

}  // namespace rlalgo::inference
