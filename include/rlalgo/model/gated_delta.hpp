// Linear attention by the gated delta rule over a token tree, with the convolution before it and the gated norm behind it.
//
//   x_t = silu(Σ_{j<κ} w_j ⊙ in_proj_qkv(u)_{t−κ+1+j})       each channel by itself; before the first token stands 0
//   q, k = l2(x's part)  (q / √d besides),  v = x's part,    l2(y) = y·(Σ y² + 10⁻⁶)^(−½)
//   β_t = σ(in_proj_b u),   γ_t = −exp(A)·softplus(in_proj_a u + dt_bias),   α_t = exp γ_t
//   S_t = α_t S_{t−1} + β_t k_t (v_t − α_t S_{t−1}ᵀ k_t)ᵀ,   o_t = S_tᵀ q_t
//   y_t = out_proj(norm(o_t) ⊙ silu(in_proj_z u)),           norm(o) = w·o·(mean o² + ε)^(−½) for each head
//
// Source: Yang, Kautz & Hatamizadeh, Gated Delta Networks, arXiv 2412.06464, eq. 10 and section 3.3 (chunks), with the short
// convolution and the gates of Qwen3-Next and Qwen3.5 as transformers computes them.
//
// Chunks of at most 64 tokens. With G_i = Σ_{j≤i} γ_j, D_ij = exp(G_i − G_j) for j ≤ i and T = (I + tril(βKKᵀ ⊙ D, −1))⁻¹:
//   U = T(βV),   W = T(βK ⊙ e^G),   N = U − W S,   O = (Q ⊙ e^G) S + (QKᵀ ⊙ D) N,   S' = e^{G_L} S + (K ⊙ e^{G_L − G})ᵀ N
// U, W and the products of keys are computed for all chunks at once; the states follow, all chunks of equal depth at once. A chunk
// ends where a branch of the tree continues it, so each segment begins with the state and the window of its parent at prefix_length.
// T is made of the inverses of blocks twice as large each time: exact, and stable where powers of the matrix would not be.
//
// Symbols: H hidden, hk key heads of d numbers, hv value heads of e numbers (value head h reads key head h/(hv/hk)), κ kernel,
// C = 2·hk·d + hv·e channels. Shapes: u [T, H], x [T, C], S [hv, d, e], o [T, hv, e]. Memory: linear in tokens; kept from the
// forward pass for the backward one are the products of u alone, and the rest is computed again.
// Dtypes: sums, gates, states in float32 (float64 for float64); as transformers does, products of u, x before and after silu, o and
// norm(o) before its weight are rounded to the dtype of u. Backward: the same operators, differentiated.
// A layer whose maps are grouped (DeltaSpec) has q, k, v, z and b, a of a key head side by side; the columns are sorted first.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <rlalgo/model/layer_spec.hpp>
#include <rlalgo/model/linear.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

inline constexpr std::int64_t longest_delta_chunk = 64;

// Tokens [begin, end) side by side, which continue a token, a state that is given, or nothing.
struct DeltaRun {
  std::int64_t begin = 0, end = 0;
  std::int64_t after = -1;    // the token that it continues, of a run before it
  std::int64_t initial = -1;  // or the number of a given state
};

// In which order chunks are computed, with index tensors on the device of the tokens. Made once per pass.
struct DeltaLayout {
  // Chunks whose lengths are padded to one number, by depth.
  struct Class {
    std::int64_t length = 0, count = 0;
    Tensor tokens;  // [count·length] of the tokens; T: padding
  };
  // Chunks [first, first + count) of a class, all of one depth.
  struct Batch {
    std::size_t of = 0;
    std::int64_t first = 0, count = 0;
    Tensor before{};  // [count] of the depth above, or of the given states; undefined: they begin with nothing
  };
  struct Depth {
    std::vector<Batch> batches;
    bool continues = false;  // somebody reads its states
    Tensor kept;             // of its chunks, those whose state is asked for; undefined: none
  };
  std::int64_t tokens = 0;
  std::vector<Class> classes;
  std::vector<Depth> depths;
  Tensor places;  // [T] of each token among those of all classes
  std::vector<Tensor>
      before;      // [κ − 1] of [T]: the token 1, 2, … before, of inputs, given windows, and the row of zeros
  Tensor asked;    // [A] of what the depths keep, in the order asked for; undefined: nothing is asked
  Tensor windows;  // [A·(κ − 1)] as `before`
};

// visit(tensor) for those that there are.
template <class Visit>
void visit_indices(DeltaLayout& layout, Visit&& visit) {
  const auto one = [&](Tensor& index) {
    if (index.defined()) visit(index);
  };
  for (auto& of : layout.classes) one(of.tokens);
  for (auto& depth : layout.depths) {
    for (auto& batch : depth.batches) one(batch.before);
    one(depth.kept);
  }
  for (Tensor& back : layout.before) one(back);
  for (Tensor* index : {&layout.places, &layout.asked, &layout.windows}) one(*index);
}

// `asked`: tokens behind which window and state are wanted. `initial`: how many states are given.
[[nodiscard]] DeltaLayout lay_out_delta(const std::vector<DeltaRun>& runs, std::int64_t tokens, std::int64_t kernel,
                                        const std::vector<std::int64_t>& asked, std::int64_t initial,
                                        at::Device device);
[[nodiscard]] DeltaLayout lay_out_delta(const TokenTree& tree, std::int64_t kernel, at::Device device);

// What sequences carry on, oldest input first.
struct DeltaState {
  Tensor windows;  // [R, κ − 1, C] float32
  Tensor states;   // [R, hv, d, e] float32
};

// The products of a layer's input, and their gradients.
struct DeltaInputs {
  Tensor qkv, z, b, a;  // [T, C], [T, hv·e], [T, hv] ×2
};

[[nodiscard]] DeltaInputs delta_inputs(const DeltaSpec& spec, const LayerWeights& w, const Tensor& u,
                                       const DropoutDraw& drop);
// Adds the gradients of the maps; `u()` is asked for what they saw, where they want it. ∂u.
template <class Input>
[[nodiscard]] Tensor delta_inputs_backward(const DeltaSpec& spec, const LayerWeights& w, const DeltaInputs& grad,
                                           const Input& u, const DropoutDraw& drop);

// [T, hv·e], what out_proj is given. `given`: where runs begin, or null; `after`: what is asked for, or null.
[[nodiscard]] Tensor delta_forward(const DeltaSpec& spec, double epsilon, const LayerWeights& w,
                                   const DeltaInputs& inputs, const DeltaLayout& layout,
                                   const DeltaState* given = nullptr, DeltaState* after = nullptr);
// Adds the gradients of convolution, gates and norm.
[[nodiscard]] DeltaInputs delta_backward(const DeltaSpec& spec, double epsilon, const LayerWeights& w,
                                         const DeltaInputs& inputs, const DeltaLayout& layout, const Tensor& grad);

namespace detail {

// (I + N)⁻¹ of strictly lower triangular N [B, L, L], L a power of 2.
[[nodiscard]] Tensor unit_lower_inverse(const Tensor& n);

// Columns of a grouped product [T, …] sorted: parts of each key head, w₀ … numbers wide, become [T, heads·w₀], …
[[nodiscard]] std::vector<Tensor> ungroup(const Tensor& y, std::int64_t heads, const std::vector<std::int64_t>& widths);
[[nodiscard]] Tensor group(const std::vector<Tensor>& parts, std::int64_t heads);

}  // namespace detail

template <class Input>
Tensor delta_inputs_backward(const DeltaSpec& spec, const LayerWeights& w, const DeltaInputs& grad, const Input& u,
                             const DropoutDraw& drop) {
  if (spec.grouped) {
    const Tensor input = wants_input(w.in_proj_qkvz) || wants_input(w.in_proj_ba) ? u() : Tensor();
    const std::int64_t keys = spec.keys();
    const auto part = [&](std::int64_t first, std::int64_t count) { return grad.qkv.narrow(1, first, count); };
    const Tensor qkvz =
        detail::group({part(0, keys), part(keys, keys), part(2 * keys, spec.values()), grad.z}, spec.key_heads);
    Tensor out = linear_backward(w.in_proj_qkvz, qkvz, input, {}, drop);
    return linear_backward(w.in_proj_ba, detail::group({grad.b, grad.a}, spec.key_heads), input, std::move(out), drop);
  }
  const Tensor input =
      wants_input(w.in_proj_qkv) || wants_input(w.in_proj_z) || wants_input(w.in_proj_b) || wants_input(w.in_proj_a)
          ? u()
          : Tensor();
  Tensor out = linear_backward(w.in_proj_qkv, grad.qkv, input, {}, drop);
  out = linear_backward(w.in_proj_z, grad.z, input, std::move(out), drop);
  out = linear_backward(w.in_proj_b, grad.b, input, std::move(out), drop);
  return linear_backward(w.in_proj_a, grad.a, input, std::move(out), drop);
}

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/gated_delta_impl.hpp>
#endif
