// Maps that read the same input and have adapters (q, k and v; gate and up; one by itself), multiplied together on a device.
//
//   y_i = x Ŵ_iᵀ + b_i + s_i·u_i B_iᵀ,   [u₁ u₂ …] = x [A₁; A₂; …]ᵀ          one product with the rows of every A
//   v_i = s_i·∂y_i B_i,   ∂x = Σ ∂y_i Ŵ_i + [v₁ v₂ …] [A₁; A₂; …]
//   ∂B_i += s_i·∂y_iᵀ u_i,   [∂A₁; ∂A₂; …] += [v₁ v₂ …]ᵀ x
//
// Source: Hu et al., arXiv 2106.09685, eq. 3. Products with B of neighbours that are alike (width, rank, s) are one product of a batch. With
// dropout every map has a mask of its own (linear.hpp), and the products with D_i(x) and A_i are one by one.
// Dtypes: everything is multiplied in the dtype of x, as PEFT does under autocast, with sums in float32: A and B stay in their own and are
// rounded for a layer at a time; what an adapter adds is not rounded before it is added. Gradients of A and B have the dtype of these, and no
// product is rounded before it is added to them. Sums differ from those of the maps one by one (linear.hpp) in the order of their addends.
// Quantised weights that a kernel makes whole are made so side by side and multiplied as one (quantised_linear.hpp: a tile).
// Shapes: x [S, in], y_i [S, out_i], A_i [r_i, in], B_i [out_i, r_i]. Kept for the backward pass beside x: [u₁ u₂ …] [S, Σ r].
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <rlalgo/model/joined_maps.hpp>
#include <rlalgo/model/linear.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

class AdaptedMaps {
 public:
  // How outputs lie: side by side, [S, Σ out], or each contiguous.
  enum class Outputs { columns, apart };

  AdaptedMaps() = default;  // of none
  // For inputs of a dtype. None where the maps cannot be multiplied so: no adapter, DoRA, weights that are trained, or adapters of another
  // dtype (but float32 where the inputs are bfloat16). The maps outlive it.
  [[nodiscard]] static AdaptedMaps of(const std::vector<const Linear*>& maps, at::ScalarType type);

  [[nodiscard]] explicit operator bool() const { return !parts_.empty(); }

  // y of each map; `residual` [S, out] is added to that of a single one. `ranks` gets [u₁ u₂ …].
  [[nodiscard]] std::vector<Tensor> forward(const Tensor& x, Outputs outputs, const DropoutDraw& draw, Tensor& ranks,
                                            const Tensor& residual = {}) const;

  // Adds the gradients of A, B and biases; returns ∂x. `grads` are ∂y of each map, rows of which may lie apart.
  [[nodiscard]] Tensor backward(const std::vector<Tensor>& grads, const Tensor& x, const Tensor& ranks,
                                const DropoutDraw& draw) const;

 private:
  friend struct AdaptedLayer;

  struct Part {
    const Linear* map = nullptr;
    std::int64_t width = 0;
    std::int64_t first = 0, rank = 0;  // columns of [u₁ u₂ …]; none without an adapter
  };
  // Neighbours whose products with B are one.
  struct Run {
    std::size_t first = 0, count = 0;
    std::int64_t rank = 0, width = 0;
    double scale = 1.0;
    Tensor b;  // [count, width, rank] in the dtype of the inputs
  };

  AdaptedMaps(const std::vector<const Linear*>& maps, at::ScalarType type);
  // A and B as the products take them, copied where they have to be: those of all together.
  static void prepare(const std::vector<AdaptedMaps*>& all, at::ScalarType type);

  [[nodiscard]] bool drops(const DropoutDraw& draw) const;
  // [W₁; W₂; …], where that takes no more memory than a tile; undefined: each is multiplied by itself.
  [[nodiscard]] Tensor whole_base(at::ScalarType type) const;
  [[nodiscard]] Tensor ranks_of(const Tensor& x, const DropoutDraw& draw) const;
  void multiply_base(const std::vector<Tensor>& outs, const Tensor& all, const Tensor& x, const Tensor& residual) const;
  [[nodiscard]] Tensor base_gradient(const std::vector<Tensor>& grads) const;
  [[nodiscard]] Tensor rank_gradient(const std::vector<Tensor>& grads) const;
  void add_b_gradients(const std::vector<Tensor>& grads, const Tensor& ranks) const;
  void add_a_gradients(const Tensor& grad_ranks, const Tensor& x, const DropoutDraw& draw) const;

  std::vector<Part> parts_;
  std::vector<Run> runs_;
  std::int64_t ranks_ = 0;
  Tensor a_;              // [Σ r, in] in the dtype of the inputs
  Tensor weight_, bias_;  // of all, where they lie one behind the other
  bool biases_apart_ = false;
};

// The maps of a layer (layer_spec.hpp).
struct AdaptedLayer {
  AdaptedMaps attention, output, gate_up,
      down;  // of q, k, v, or of all in one; of o; of gate, up, or of both in one; of down

  AdaptedLayer() = default;
  // For inputs like `x`. None of them on the CPU, where linear.hpp multiplies maps one by one, and adapters in their own dtype.
  AdaptedLayer(const LayerWeights& w, const Tensor& x);
};

// What AdaptedLayer keeps of a forward pass.
struct AdapterRanks {
  Tensor attention, output, gate_up, down;
};

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/adapted_maps_impl.hpp>
#endif
