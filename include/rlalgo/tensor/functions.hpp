// ATen's free functions that have no method form: the ones the rooms call, cheap to compile.
//
// Each is one call of the dispatcher's operator of the same name and the same result. ATen's own headers of factory
// functions (<ATen/ops/empty.h>, <ATen/ops/mm.h>, …) include ATen/Context.h, which costs every file that sees them
// 3.5 s; the operator headers (<ATen/ops/…_ops.h>) included here cost nothing beside ATen/core/Tensor.h. What takes lists of
// tensors (<ATen/core/List.h>, IListRef.h) costs 1.8 s and stays in detail/functions_impl.hpp.
//
// Shapes are [rows, …] as in ATen; options carry dtype and device. Errors are ATen's (c10::Error).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/arange_ops.h>
#include <ATen/ops/empty_like_ops.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/linalg_qr_ops.h>
#include <ATen/ops/linalg_svd_ops.h>
#include <ATen/ops/linalg_vector_norm_ops.h>
#include <ATen/ops/log_sigmoid_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/ones_like_ops.h>
#include <ATen/ops/ones_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/silu_backward_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/stack_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/where_ops.h>
#include <ATen/ops/zeros_like_ops.h>
#include <ATen/ops/zeros_ops.h>
#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>

#include <rlalgo/tensor/products.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::tensor {

// ---- new tensors ----------------------------------------------------------------------------------------------------

inline Tensor empty(at::IntArrayRef shape, const at::TensorOptions& options) {
  return at::_ops::empty_memory_format::call(
      c10::fromIntArrayRefSlow(shape), at::optTypeMetaToScalarType(options.dtype_opt()), options.layout_opt(),
      options.device_opt(), options.pinned_memory_opt(), options.memory_format_opt());
}

inline Tensor zeros(at::IntArrayRef shape, const at::TensorOptions& options) {
  return at::_ops::zeros::call(c10::fromIntArrayRefSlow(shape), at::optTypeMetaToScalarType(options.dtype_opt()),
                               options.layout_opt(), options.device_opt(), options.pinned_memory_opt());
}

inline Tensor ones(at::IntArrayRef shape, const at::TensorOptions& options) {
  return at::_ops::ones::call(c10::fromIntArrayRefSlow(shape), at::optTypeMetaToScalarType(options.dtype_opt()),
                              options.layout_opt(), options.device_opt(), options.pinned_memory_opt());
}

// begin, begin + step, … below end.
inline Tensor arange(const at::Scalar& begin, const at::Scalar& end, const at::Scalar& step,
                     const at::TensorOptions& options) {
  return at::_ops::arange_start_step::call(begin, end, step, at::optTypeMetaToScalarType(options.dtype_opt()),
                                           options.layout_opt(), options.device_opt(), options.pinned_memory_opt());
}

inline Tensor empty_like(const Tensor& x) { return at::_ops::empty_like::call(x, {}, {}, {}, {}, {}); }
inline Tensor zeros_like(const Tensor& x) { return at::_ops::zeros_like::call(x, {}, {}, {}, {}, {}); }
inline Tensor ones_like(const Tensor& x) { return at::_ops::ones_like::call(x, {}, {}, {}, {}, {}); }

// A copy of host values, [N], converted to the options' dtype and device.
template <class T>
Tensor from_values(std::span<const T> values, const at::TensorOptions& options) {
  Tensor out =
      empty({static_cast<std::int64_t>(values.size())}, at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value));
  if (!values.empty()) std::memcpy(out.mutable_data_ptr(), values.data(), values.size_bytes());
  return out.to(options.requires_grad(false));
}

template <class T>
Tensor from_values(const std::vector<T>& values, const at::TensorOptions& options) {
  return from_values(std::span<const T>(values), options);
}

// Tensors side by side along a dimension that they have.
[[nodiscard]] Tensor concatenate(const std::vector<Tensor>& tensors, std::int64_t dim);

// Tensors of one shape side by side along a new first dimension.
inline Tensor stack(const std::vector<Tensor>& tensors) { return at::_ops::stack::call(tensors, 0); }

// x[first_i, second_i] ← values_i, in place: x [A, B, …], indices [N] of which no two pairs are equal, values [N, …].
void put(Tensor x, const Tensor& first, const Tensor& second, const Tensor& values);

// ---- products -------------------------------------------------------------------------------------------------------

// By kernels of our own where these are faster (products.hpp).

// a·b: [N, K]·[K, M] → [N, M].
inline Tensor mm(const Tensor& a, const Tensor& b) {
  if (!takes_product(a, b)) return at::_ops::mm::call(a, b);
  Tensor out = empty({a.size(0), b.size(1)}, a.options());
  multiply_into(out, a, b, false);
  return out;
}

// x ← beta·x + alpha·(a·b), in place.
inline const Tensor& addmm_(const Tensor& x, const Tensor& a, const Tensor& b, double beta = 1.0, double alpha = 1.0) {
  if ((beta == 0.0 || beta == 1.0) && multiply_into(x, a, b, beta == 1.0, alpha)) return x;
  return x.addmm_(a, b, beta, alpha);
}

// beta·x + alpha·(a·b).
inline Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, double beta = 1.0, double alpha = 1.0) {
  if (beta != 1.0 || x.scalar_type() != a.scalar_type() || detail::is_recorded(x) || !takes_product(a, b))
    return at::_ops::addmm::call(x, a, b, beta, alpha);
  Tensor out = empty({a.size(0), b.size(1)}, a.options());
  out.copy_(x);
  multiply_into(out, a, b, true, alpha);
  return out;
}

// ---- element by element ---------------------------------------------------------------------------------------------

// Into `out`, which may be x.
inline void silu_into(const Tensor& x, Tensor out) { at::_ops::silu_out::call(x, out); }
inline void silu_backward_into(const Tensor& grad, const Tensor& x, Tensor out) {
  at::_ops::silu_backward_grad_input::call(grad, x, out);
}
// gelu by tanh, into `out`, which may be x.
inline void gelu_tanh_into(const Tensor& x, Tensor out) { at::_ops::gelu_out::call(x, "tanh", out); }
inline void gelu_tanh_backward_into(const Tensor& grad, const Tensor& x, Tensor out) {
  at::_ops::gelu_backward_grad_input::call(grad, x, "tanh", out);
}
inline Tensor log_sigmoid(const Tensor& x) { return at::_ops::log_sigmoid::call(x); }

// base^exponents.
inline Tensor power(const at::Scalar& base, const Tensor& exponents) {
  return at::_ops::pow_Scalar::call(base, exponents);
}

// a where condition holds, else b.
inline Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return at::_ops::where_self::call(condition, a, b);
}

// out = a − b, written in place.
inline Tensor& subtract_into(Tensor& out, const Tensor& a, const Tensor& b) {
  return at::_ops::sub_out::call(a, b, 1, out);
}

// ---- linear algebra -------------------------------------------------------------------------------------------------

// √Σx² over one dimension.
inline Tensor euclidean_norm(const Tensor& x, std::int64_t dim) {
  return at::_ops::linalg_vector_norm::call(x, 2, at::IntArrayRef(dim), false, {});
}

// √Σx² over all elements, computed in `type`: [].
inline Tensor euclidean_norm(const Tensor& x, at::ScalarType type) {
  return at::_ops::linalg_vector_norm::call(x, 2, std::nullopt, false, type);
}

// x = U·diag(S)·Vᵀ with min(rows, columns) singular values.
inline std::tuple<Tensor, Tensor, Tensor> reduced_svd(const Tensor& x) {
  return at::_ops::linalg_svd::call(x, /*full_matrices=*/false, {});
}

// Q of x = Q·R, [rows, min(rows, columns)].
inline Tensor orthonormal_basis(const Tensor& x) { return std::get<0>(at::_ops::linalg_qr::call(x, "reduced")); }

}  // namespace rlalgo::tensor

#ifndef RLALGO_COMPILED
#include <rlalgo/tensor/detail/functions_impl.hpp>
#endif
