// The operations of a decoder that are more than a matrix product, forward and backward, behind one interface.
//
// A decoder reaches them through this class alone, and touches no tensor's memory itself: what a device or a kernel
// needs is another class. aten_operations.hpp runs anywhere ATen does, cpu_operations.hpp has the kernels of the CPU;
// operations_for.hpp chooses by device. Derive from one of the two to replace single operations.
//
//   rows            y_i = t_{index_i}
//   rms_norm        y_i = w_i · x_i · r,   r = (mean_j x_j² + ε)^(−½);   1 + w_i in the place of w_i with a unit offset,
//                   x − mean x in the place of x in a centred one (and ∂x − mean ∂x in that of ∂x)
//                   ∂x_i = r·w_i·∂y_i − x_i · r³/H · Σ_j w_j·∂y_j·x_j,   ∂w_i = Σ_rows ∂y_i·x_i·r
//   rotate          (x_i, x_{i+R/2}) ← (x_i cos θ_i − x_{i+R/2} sin θ_i,  x_{i+R/2} cos θ_i + x_i sin θ_i),   i < R/2, of the first R
//                   elements of a head; interleaved (x_{2i}, x_{2i+1}) in the place of (x_i, x_{i+R/2}); backward by −θ
//   gated           y = act(g)·u;   ∂u = ∂y·act(g),   ∂g = ∂y·u·act′(g);   layer_spec.hpp has the activations
//                   act(x) = x·s with s = σ(2h(x)):   act′(x) = s(1 + x(1 − s)·2h′(x));   silu has h = x/2
//   attention       o_t = Σ_{j visible to t} softmax_j(c·q_t·k_j) v_j,   ℓ_t = log Σ_j exp(c·q_t·k_j),   c of the layout, or 1/√D
//                   with a cap C of the layout a score s becomes C·tanh(s/C) before the softmax (Gemma 2, arXiv 2408.00118)
//                   head h of n reads key and value head h / (n/kv)
//   attend_further  the same over more keys: o ← e^{ℓ − ℓ'} o + e^{ℓ_more − ℓ'} o_more,   ℓ' = log(e^ℓ + e^{ℓ_more})
//   dropout         x_i · 0 with probability p, else x_i / (1 − p)
//
// Sources: Zhang & Sennrich, arXiv 1910.07467, eq. 4; Su et al., arXiv 2104.09864, eq. 34 in the pairing of
// transformers' rotate_half; Shazeer, arXiv 2002.05202, eq. 6; Vaswani et al., arXiv 1706.03762, eq. 1; Ainslie et al., arXiv 2305.13245.
// Called without gradient mode. All tensors of a call lie on one device; x, q, k, v are contiguous. Sums and
// transcendental functions run in float32 (float64 for float64); as transformers does, x·r of the norm is rounded to
// the dtype of x before the product with w (unless the norm is rounded once), and so are act(g) and ∂y·u.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <rlalgo/model/attention_plan.hpp>
#include <rlalgo/model/layer_spec.hpp>
#include <rlalgo/model/rope.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

using tensor::Tensor;

struct RmsNormOutput {
  Tensor value;  // as x
  Tensor scale;  // [R] r of each row
};

enum class Rotation { forward, backward };

struct RawHeads;  // raw_heads.hpp
class RawHeadsAttention;

// An attention plan, and what an implementation keeps on its device for it. Made once per pass, used by every layer.
struct AttentionLayout {
  AttentionPlan plan;
  std::vector<Tensor> tensors = {};  // their meaning is the implementation's own
  double scale = 0.0;                // c, what q·k is multiplied by; 0 = 1/√D
  double cap = 0.0;                  // C: a score s becomes C·tanh(s/C); 0 = it stays
};

struct AttentionOutput {
  Tensor value;    // [T, n, D]
  Tensor log_sum;  // [T, n] ℓ, float32 (float64 for float64)
};

struct AttentionGradient {
  Tensor q, k, v;
};

// Names the random numbers of one mask: element i of the flattened input is zero where word i mod 4 of the Philox block
// (seed; draw, module·2⁴⁰ + i/4) is below p·2³². The same on every device, in forward, recomputation and backward.
struct DropoutMask {
  double probability = 0.0;
  std::uint64_t seed = 0;
  std::uint64_t draw = 0;    // names the forward pass within the run
  std::uint64_t module = 0;  // names the adapter within the model
  // Of x [R, in], which is a part of the input: number of each of its rows there. Null: x is all of it.
  const std::vector<std::int64_t>* rows = nullptr;
  const Tensor* rows_there =
      nullptr;  // the same [R] int64 on the device of x, where somebody has them; not read on the CPU
};

class Operations {
 public:
  Operations() = default;
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;
  virtual ~Operations() = default;

  // Rows `index` [S] of x [V, H], copied: [S, H].
  [[nodiscard]] virtual Tensor rows(const Tensor& x, const Tensor& index) const = 0;
  // Adds row i of `grad` [S, H] to row index_i of `gradient` [V, H], in order.
  virtual void add_rows(Tensor& gradient, const Tensor& index, const Tensor& grad) const = 0;

  // x [..., H] taken as R rows, weight [H].
  [[nodiscard]] virtual RmsNormOutput rms_norm(const Tensor& x, const Tensor& weight, const NormSpec& norm) const = 0;
  // Returns ∂x, added in place to `grad_x` when that is defined (the residual branch); adds ∂w to `grad_weight` [H]
  // when defined.
  [[nodiscard]] virtual Tensor rms_norm_backward(const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                                                 const NormSpec& norm, const Tensor& scale, Tensor grad_x,
                                                 Tensor grad_weight) const = 0;

  // Rotates x [T, heads, D] in place; the table has R/2 columns.
  virtual void rotate(Tensor& x, const RopeTable& table, Rotation rotation) const = 0;

  // out [...] as gate and up, all contiguous, or gate and up the halves of one [S, 2I]; out may be gate.
  virtual void gated(Activation act, const Tensor& gate, const Tensor& up, const Tensor& out) const = 0;
  // Puts ∂g in the place of gate and ∂u in that of up.
  virtual void gated_backward(Activation act, const Tensor& grad, const Tensor& gate, const Tensor& up) const = 0;

  [[nodiscard]] virtual AttentionLayout lay_out(AttentionPlan plan, at::Device device) const = 0;
  // q [T, n, D], k and v [T, kv, D].
  [[nodiscard]] virtual AttentionOutput attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                                  const AttentionLayout& layout) const = 0;
  [[nodiscard]] virtual AttentionGradient attention_backward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                                             const Tensor& v, const AttentionOutput& out,
                                                             const AttentionLayout& layout) const = 0;
  // Attention that takes such heads with such a layout as their maps give them; null: norms and rotations are operations of their own.
  [[nodiscard]] virtual const RawHeadsAttention* of_raw_heads(const RawHeads& /*heads*/,
                                                              const AttentionLayout& /*layout*/) const {
    return nullptr;
  }
  // Further keys, [T', kv, D], that the queries see: merged into `out`. The layout has cross pieces only.
  virtual void attend_further(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionLayout& layout,
                              AttentionOutput& out) const = 0;
  // Their share of the gradient, added to `sum`; `out` is what all keys gave.
  virtual void attend_further_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                       const AttentionOutput& out, const AttentionLayout& layout,
                                       AttentionGradient& sum) const = 0;

  [[nodiscard]] virtual Tensor dropout(const Tensor& x, const DropoutMask& mask) const = 0;
};

}  // namespace rlalgo::model
