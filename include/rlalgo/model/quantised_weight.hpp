// A frozen matrix of weights in 4 or 8 bits, with the numbers of bitsandbytes.
//
//   4 bits   w_i = c[q_i]·a_b,  b = ⌊i/B⌋        i counts the elements of the flattened matrix; a_b = max |w| of a block,
//                                                q_i is the code c nearest to w_i·(1/a_b), between two the smaller number
//   nested   a_b = d[p_b]·s_g + o,  g = ⌊b/256⌋  o = mean a, s_g = max |a − o| of 256 blocks, d the dynamic code of 8 bits
//                                                (tensor/blockwise_8bit.hpp)
//   8 bits   w_rj = q_rj·(S_r/127)               S_r = max_j |w_rj|, q = round(127·w/S_r), w rounded to float16 before
//
// Source: NF4 and double quantisation: Dettmers, Pagnoni, Holtzman & Zettlemoyer, arXiv 2305.14314, section 3; rows of 8 bits:
// Dettmers, Lewis, Belkada & Zettlemoyer, arXiv 2208.07339, section 2. Codes, scales and what they stand for are those of
// bitsandbytes 0.50 on a CPU, to the bit, whatever device the weights go to afterwards: its steps of nested codes are 65,536 even
// ones, an element of a last, shorter block is divided by its scale, and that scale is 1e-38 or more. Not followed: its kernel
// for AVX-512 takes scales of the wrong blocks where a row is no multiple of B; a row of 8 bits meets its input as it is
// (bitsandbytes' training on a CPU), not rounded to 8 bits with outliers apart (its CUDA kernels): the exact product.
//
// Shapes: W [rows, columns]; codes of 4 bits [⌈rows·columns/2⌉] bytes, the first of a pair in the upper half. Sizes: a weight of 4 bits
// takes 0.5 + 4/B bytes (0.5625 for B = 64), nested 0.5 + 1/B + 4/(256·B) (0.5159); one of 8 bits 1 + 4/columns.
//
// Errors: [rlalgo.model.48] a weight that is to be quantised is not finite (or, in 8 bits, beyond float16).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <c10/util/BFloat16.h>

#include <rlalgo/model/quantisation.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

using tensor::Tensor;

// The numbers that 4-bit codes stand for.
[[nodiscard]] std::span<const float, 16> values_of(WeightCode code);

class QuantisedWeight {
 public:
  // Tensors on one device; `nested` has no tensors where scales are float32.
  struct Nested {
    Tensor scales;  // [⌈blocks/group⌉] float32
    Tensor values;  // [256] float32, what codes of scales stand for
    double offset = 0.0;
    std::int64_t group = 256;
  };

  // Of `shape` [rows, columns], as files have it. `scales`: [blocks] float32, or uint8 where nested; [rows] of 8 bits. Or [rows, b]: w = q·s in b blocks of a row of bytes (int8, e4m3), the last filled up.
  QuantisedWeight(WeightCode code, std::int64_t rows, std::int64_t columns, std::int64_t block, Tensor codes,
                  Tensor scales, Nested nested, at::ScalarType compute);

  [[nodiscard]] WeightCode code() const { return code_; }
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t columns() const { return columns_; }
  [[nodiscard]] std::int64_t block() const { return block_; }
  [[nodiscard]] const Tensor& codes() const { return codes_; }
  [[nodiscard]] const Tensor& scales() const { return scales_; }
  [[nodiscard]] const Nested& nested() const { return nested_; }
  // What products are computed in.
  [[nodiscard]] at::ScalarType compute() const { return compute_; }
  [[nodiscard]] std::size_t bytes() const;

  // Elements [row, row + rows) × [column, column + columns) as a new tensor: float32, rounded to `type`.
  [[nodiscard]] Tensor part(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
                            at::ScalarType type) const;
  [[nodiscard]] Tensor dense(at::ScalarType type) const { return part(0, rows_, 0, columns_, type); }

  // The same by ATen's operators alone: on a device that has no kernel for it (cuda/dequantise.cuh).
  [[nodiscard]] Tensor part_by_operators(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
                                         at::ScalarType type) const;

  // Elements that a product makes whole at a time: more where a kernel makes them.
  [[nodiscard]] std::int64_t tile() const;

  // Rows [row, row + rows) into memory, by the calling thread; of weights in the host's memory.
  void write_rows(std::int64_t row, std::int64_t rows, float* out) const { write(row, rows, 0, columns_, out); }
  void write_rows(std::int64_t row, std::int64_t rows, c10::BFloat16* out) const { write(row, rows, 0, columns_, out); }

  [[nodiscard]] QuantisedWeight to(at::Device device) const;

 private:
  template <class T>
  void write(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns, T* out) const;
  // [256, 2] float32: the two numbers that a byte of codes stands for.
  [[nodiscard]] Tensor pairs() const;
  // Scales of blocks [first, first + count), [count] float32.
  [[nodiscard]] Tensor scales_by_operators(std::int64_t first, std::int64_t count) const;
  // Elements [first, first + count) of the flattened matrix, float32.
  [[nodiscard]] Tensor flat_by_operators(std::int64_t first, std::int64_t count) const;

  WeightCode code_;
  std::int64_t rows_, columns_, block_;
  Tensor codes_, scales_;
  Nested nested_;
  at::ScalarType compute_;
  Tensor pairs_ = {};  // where they lie on a device
};

// `weight` [out, in] on the CPU, float32, float16 or bfloat16 (a wider one is rounded to float32); `name` stands in errors.
[[nodiscard]] QuantisedWeight quantise(const Tensor& weight, const Quantisation& how, const std::string& name);

// A tensor with the shape, dtype and device of a weight, and no memory: every element is one NaN. It stands in Linear::weight where
// the numbers are quantised; code that reads it by mistake is noticed.
[[nodiscard]] Tensor stand_in(at::IntArrayRef shape, const at::TensorOptions& options);
[[nodiscard]] inline bool is_stand_in(const Tensor& weight) {
  return weight.defined() && weight.dim() == 2 && weight.stride(0) == 0 && weight.stride(1) == 0 && weight.numel() > 0;
}

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/quantised_weight_impl.hpp>
#endif
