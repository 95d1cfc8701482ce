// Products with a quantised weight: it is made whole a tile at a time, and no more of it is kept.
//
//   y = x Ŵᵀ + b:    y[:, t] = x Ŵ[t, :]ᵀ      tiles t of rows of Ŵ
//   ∂x = ∂y Ŵ:       ∂x[:, t] = ∂y Ŵ[:, t]     tiles t of columns
//   ‖Ŵ_r + s·(B A)_r‖ of each row r            tiles of rows
//
// Ŵ is what the codes stand for (quantised_weight.hpp). Source: Dettmers et al., arXiv 2305.14314, eq. 5. A tile holds whole sums:
// an output is the sum that one product with all of Ŵ would have, so tiles change no more than the kernel's own blocking does.
// Shapes: x [R, in], W [out, in], y [R, out]. Dtypes: x and ∂y are converted to QuantisedWeight::compute(), and so are Ŵ and b; y and
// ∂x have the dtype of x and ∂y. Memory beside in- and outputs: QuantisedWeight::tile() numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include <rlalgo/model/quantised_weight.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

namespace detail {

// f(begin, count) for stretches of `total` lines with `across` elements each, of at most w.tile(). They begin at multiples of 64,
// which keeps a tile's blocks whole.
template <class F>
void each_tile(const QuantisedWeight& w, std::int64_t total, std::int64_t across, F&& f) {
  constexpr std::int64_t step = 64;
  const std::int64_t lines = std::max(step, w.tile() / std::max<std::int64_t>(1, across) / step * step);
  for (std::int64_t begin = 0; begin < total; begin += lines) f(begin, std::min(lines, total - begin));
}

}  // namespace detail

// x Ŵᵀ + b; `bias` may be undefined.
[[nodiscard]] inline Tensor quantised_product(const Tensor& x, const QuantisedWeight& w, const Tensor& bias = {}) {
  const Tensor input = x.to(w.compute());
  Tensor out = tensor::empty({x.size(0), w.rows()}, input.options());
  detail::each_tile(w, w.rows(), w.columns(), [&](std::int64_t begin, std::int64_t count) {
    const Tensor tile = w.part(begin, count, 0, w.columns(), w.compute());
    tensor::addmm_(out.narrow(1, begin, count), input, tile.t(), 0.0);
  });
  if (bias.defined()) out.add_(bias);
  return out.to(x.scalar_type());
}

// ∂y Ŵ, added to `grad_x` where that is defined.
[[nodiscard]] inline Tensor quantised_input_gradient(Tensor grad_x, const Tensor& grad_y, const QuantisedWeight& w) {
  const Tensor grad = grad_y.to(w.compute());
  const bool adds = grad_x.defined() && grad_x.scalar_type() == w.compute();
  Tensor out = adds ? grad_x : tensor::empty({grad.size(0), w.columns()}, grad.options());
  detail::each_tile(w, w.columns(), w.rows(), [&](std::int64_t begin, std::int64_t count) {
    const Tensor tile = w.part(0, w.rows(), begin, count, w.compute());
    tensor::addmm_(out.narrow(1, begin, count), grad, tile, adds ? 1.0 : 0.0);
  });
  if (adds) return grad_x;
  out = out.to(grad_y.scalar_type());
  return grad_x.defined() ? grad_x.add_(out) : out;
}

// ‖Ŵ_r + s·(B A)_r‖, [out] in the dtype of A [r, in] and B [out, r].
[[nodiscard]] inline Tensor quantised_row_norm(const QuantisedWeight& w, const Tensor& a, const Tensor& b,
                                               double scale) {
  Tensor out = tensor::empty({w.rows()}, a.options().requires_grad(false));
  detail::each_tile(w, w.rows(), w.columns(), [&](std::int64_t begin, std::int64_t count) {
    const Tensor tile = w.part(begin, count, 0, w.columns(), w.compute()).to(a.scalar_type());
    out.narrow(0, begin, count)
        .copy_(tensor::euclidean_norm(tensor::addmm(tile, b.narrow(0, begin, count), a, 1.0, scale), 1));
  });
  return out;
}

}  // namespace rlalgo::model
