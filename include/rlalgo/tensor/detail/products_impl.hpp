// Definitions of products.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/cpu/features.hpp>
#include <rlalgo/cpu/products.hpp>
#include <rlalgo/tensor/on_threads.hpp>
#include <rlalgo/tensor/products.hpp>

namespace rlalgo::tensor {

namespace detail {

struct KernelsOfTypes {
  ProductKernels float32 = ProductKernels::libtorch, bfloat16 = ProductKernels::libtorch;
};

inline KernelsOfTypes product_kernels_here() {
  KernelsOfTypes found;
#if defined(__x86_64__)
  const std::string_view name = cpu::forced_kernels();
  if (name == "portable") return found;
  if (!__builtin_cpu_is("intel")) {
    if (__builtin_cpu_supports("avx512f") && name != "avx2")
      found.float32 = ProductKernels::avx512;
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      found.float32 = ProductKernels::avx2;
  }
  const bool multiplies =
      cpu::multiplies_bfloat16() && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (multiplies)
    found.bfloat16 = name != "avx512_bf16" && cpu::has_amx() ? ProductKernels::amx : ProductKernels::avx512_bf16;
#endif
  return found;
}

}  // namespace detail

RLALGO_INLINE ProductKernels product_kernels(at::ScalarType type) {
  static const auto here = detail::product_kernels_here();
  return type == at::kFloat ? here.float32 : type == at::kBFloat16 ? here.bfloat16 : ProductKernels::libtorch;
}

RLALGO_INLINE std::string_view name_of(ProductKernels kernels) {
  switch (kernels) {
    case ProductKernels::avx2:
      return "avx2";
    case ProductKernels::avx512:
      return "avx512";
    case ProductKernels::avx512_bf16:
      return "avx512_bf16";
    case ProductKernels::amx:
      return "amx_bf16";
    case ProductKernels::libtorch:
      break;
  }
  return "LibTorch's";
}

#if defined(__x86_64__)

namespace detail {

// Whether it is a matrix in the processor's memory that lies in rows or in columns.
inline bool lies_in_order(const Tensor& x) {
  return x.dim() == 2 && x.device().is_cpu() && x.layout() == at::kStrided && !x.is_conj() && !x.is_neg() &&
         ((x.stride(1) == 1 && x.stride(0) >= x.size(1)) || (x.stride(0) == 1 && x.stride(1) >= x.size(0)));
}

// Fewer rows, columns or terms are LibTorch's; 0 where all are.
inline std::int64_t fewest_of_product(at::ScalarType type) {
  if (product_kernels(type) == ProductKernels::libtorch) return 0;
  return type == at::kFloat ? 16 : 2;
}

template <class T>
cpu::tiles::Strided<T> strided(const Tensor& x) {
  return {static_cast<const T*>(x.const_data_ptr()), x.stride(0), x.stride(1)};
}

template <class Kernel, class T = typename Kernel::Element>
void multiply_strided(const cpu::tiles::Strided<T>& a, const cpu::tiles::Strided<T>& b, std::int64_t m, std::int64_t n,
                      std::int64_t k, cpu::tiles::Destination<T> to) {
  constexpr std::int64_t tile_rows = Kernel::tile_rows, tile_columns = Kernel::tile_columns;
  constexpr std::int64_t most_columns = 64 * tile_columns;  // of packed B: 6 MB with 32 columns a tile
  thread_local cpu::tiles::Room packed;
  thread_local std::vector<float> waiting;
  static_assert(Kernel::block <= block_of_products && Kernel::block % Kernel::whole_steps == 0);
  const std::int64_t all = cpu::tiles::steps_of<Kernel>(k), blocks = (all + Kernel::block - 1) / Kernel::block;
  const std::int64_t longest = cpu::tiles::steps_of<Kernel>((all + blocks - 1) / blocks * Kernel::per_step),
                     block = longest * Kernel::per_step;
  const std::int64_t row_tiles = (m + tile_rows - 1) / tile_rows;
  for (std::int64_t column = 0; column < n; column += most_columns) {
    const std::int64_t columns = std::min(most_columns, n - column);
    const std::int64_t panels = (columns + tile_columns - 1) / tile_columns;
    float* const panel = packed.of(panels * tile_columns * longest);
    if (sizeof(T) < sizeof(float) && blocks > 1) {
      waiting.resize(std::max(waiting.size(), static_cast<std::size_t>(m * columns)));
      to.waiting = waiting.data();
      to.ldw = columns;
    }
    // Rows are divided first: then nobody packs a row of A twice. More parts than threads even out what disturbs one.
    const std::int64_t threads = threads_here();
    const std::int64_t parts = threads > 1 ? 4 * threads : 1, row_parts = std::min(row_tiles, parts);
    const std::int64_t column_parts = std::min(panels, std::max<std::int64_t>(1, threads / row_parts));
    for (std::int64_t begin = 0; begin < k; begin += block) {
      const std::int64_t depth = std::min(block, k - begin), steps = cpu::tiles::steps_of<Kernel>(depth);
      to.first = begin == 0;
      to.last = begin + depth == k;
      on_threads(panels, [&](std::int64_t p) {
        const std::int64_t at = column + p * tile_columns;
        Kernel::template pack<tile_columns>({b.at(begin, at), b.columns, b.rows}, std::min(tile_columns, n - at), depth,
                                            panel + p * tile_columns * steps);
      });
      on_threads(row_parts * column_parts, [&](std::int64_t i) {
        thread_local cpu::tiles::Room room;
        const std::int64_t r = i / column_parts, c_part = i % column_parts;
        const cpu::tiles::Part part{
            .row = row_tiles * r / row_parts * tile_rows,
            .row_end = std::min(m, row_tiles * (r + 1) / row_parts * tile_rows),
            .column = panels * c_part / column_parts * tile_columns,
            .column_end = std::min(columns, panels * (c_part + 1) / column_parts * tile_columns)};
        cpu::tiles::Destination<T> here = to;
        here.c += column;
        cpu::tiles::multiply_part<Kernel>(part, {a.at(0, begin), a.rows, a.columns}, panel, depth, here,
                                          room.of(cpu::tiles::chunk_rows * longest));
      });
    }
  }
}

template <class Kernel>
void multiply_matrices(const Tensor& out, const Tensor& a, const Tensor& b, bool adds, double alpha) {
  using T = typename Kernel::Element;
  const std::int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  const cpu::tiles::Destination<T> to{.c = static_cast<T*>(out.mutable_data_ptr()),
                                      .ldc = out.stride(1) == 1 ? out.stride(0) : out.stride(1),
                                      .adds = adds,
                                      .alpha = static_cast<float>(alpha)};
  if (out.stride(1) == 1)
    multiply_strided<Kernel>(strided<T>(a), strided<T>(b), m, n, k, to);
  else  // outᵀ = bᵀ aᵀ
    multiply_strided<Kernel>(strided<T>(b.t()), strided<T>(a.t()), n, m, k, to);
}

}  // namespace detail

RLALGO_INLINE bool takes_product(const Tensor& a, const Tensor& b) {
  const std::int64_t fewest = detail::fewest_of_product(a.scalar_type());
  return fewest > 0 && a.scalar_type() == b.scalar_type() && detail::lies_in_order(a) && detail::lies_in_order(b) &&
         a.size(1) == b.size(0) && std::min({a.size(0), a.size(1), b.size(1)}) >= fewest && !detail::is_recorded(a) &&
         !detail::is_recorded(b);
}

RLALGO_INLINE bool multiply_into(const Tensor& out, const Tensor& a, const Tensor& b, bool adds, double alpha) {
  if (!takes_product(a, b) || out.scalar_type() != a.scalar_type() || !detail::lies_in_order(out) ||
      detail::is_recorded(out) || out.size(0) != a.size(0) || out.size(1) != b.size(1))
    return false;
  switch (product_kernels(a.scalar_type())) {
    case ProductKernels::libtorch:
      return false;
    case ProductKernels::avx2:
      detail::multiply_matrices<cpu::avx2::Float32>(out, a, b, adds, alpha);
      break;
    case ProductKernels::avx512:
      detail::multiply_matrices<cpu::avx512::Float32>(out, a, b, adds, alpha);
      break;
    case ProductKernels::avx512_bf16:
      detail::multiply_matrices<cpu::avx512::Bfloat16>(out, a, b, adds, alpha);
      break;
    case ProductKernels::amx:
      detail::multiply_matrices<cpu::amx::Bfloat16>(out, a, b, adds, alpha);
      break;
  }
  return true;
}

#else

RLALGO_INLINE bool takes_product(const Tensor&, const Tensor&) { return false; }
RLALGO_INLINE bool multiply_into(const Tensor&, const Tensor&, const Tensor&, bool, double) { return false; }

#endif

}  // namespace rlalgo::tensor
