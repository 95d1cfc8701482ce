// Products of matrices in float32 and in bfloat16 by kernels of our own, where they are ahead of the libraries that LibTorch calls.
//
//   out ← out·[adds] + alpha · a b        a [m, k], b [k, n], out [m, n] of one type; each may be a transposed view
//
// float32: on processors that are not Intel's, MKL has kernels of 8 lanes, which reach 72 to 88 % of what an EPYC multiplies; these
// have the lanes that there are and reach 84 to 93 %. bfloat16: oneDNN compiles a kernel for every shape, and training has a shape for
// every number of tokens; these have none to compile. Sums are float32, and an element of bfloat16 is rounded once.
// An element is one chain of multiply-adds over k (with AMX: of sums of 32 products), cut into even blocks of at most `block_of_products` multiply-adds: its bits depend
// on k alone, neither on the other rows and columns nor on the number of threads.
#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::tensor {

namespace detail {

// Whether autograd records what is computed from x.
[[nodiscard]] inline bool is_recorded(const Tensor& x) { return at::GradMode::is_enabled() && x.requires_grad(); }

}  // namespace detail

inline constexpr std::int64_t block_of_products = 768;

// The kernels with which mm() and addmm() of functions.hpp compute products of a type here; `libtorch`: LibTorch's own.
//   float32   those for the widest lanes of an x86-64 that is not Intel's
//   bfloat16  amx_bf16 where there is AMX, else avx512_bf16 where that instruction is
// RLALGO_CPU names a set to take instead: for float32 avx512_bf16 and amx_bf16 stand for avx512, and `portable` for LibTorch's;
// for bfloat16 every set but avx512_bf16 and amx_bf16 stands for LibTorch's.
enum class ProductKernels { libtorch, avx2, avx512, avx512_bf16, amx };
[[nodiscard]] ProductKernels product_kernels(at::ScalarType type);
[[nodiscard]] std::string_view name_of(ProductKernels kernels);

// Whether a b is one for these kernels: not of other types or devices, strides of neither order, few rows or columns, tensors that
// autograd records, nor where LibTorch's products are as fast.
[[nodiscard]] bool takes_product(const Tensor& a, const Tensor& b);

// Computes and returns true, or returns false and leaves `out` alone. LibTorch's threads share the work.
bool multiply_into(const Tensor& out, const Tensor& a, const Tensor& b, bool adds, double alpha = 1.0);

}  // namespace rlalgo::tensor

#ifndef RLALGO_COMPILED
#include <rlalgo/tensor/detail/products_impl.hpp>
#endif
