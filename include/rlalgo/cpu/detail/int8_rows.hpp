// The rows of x of a product in 8 bits (quantization.hpp), made by each thread once for all products that read the same rows.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <rlalgo/cpu/int8_matrix.hpp>
#include <rlalgo/cpu/kernels.hpp>

namespace rlalgo::cpu {

// Value: std::int8_t, or another type with the same numbers where a kernel wants that.
template <class Value = std::int8_t>
struct Int8Rows {
  const Value* values;  // [m, 32 · groups], zero beyond k
  const float* scales;  // [m, groups]
  const std::int32_t*
      offsets;  // [m, groups]: −128 · the sum of a group, what the 128 that W's bytes are too large by comes to
  std::int64_t groups;

  [[nodiscard]] const Value* row(std::int64_t i) const { return values + i * groups * Int8Layout::group; }
};

// A row of k elements, as whole groups.
template <class Value>
using QuantizeRow = void (*)(const float* x, std::int64_t k, Value* values, float* scales, std::int32_t* offsets);

// What a thread has made of x. It may meet its first or longest rows late, and a warm engine allocates nothing: few rows have room from the start.
template <class Value>
class QuantizedRows {
 public:
  Int8Rows<Value> of(const LinearArgs& a, QuantizeRow<Value> quantize) {
    const std::int64_t groups = Int8Layout(a.k).groups;
    const bool made =
        a.x_version != 0 && a.x_version == version_ && a.x == x_ && a.m == rows_ && a.k == k_ && a.ldx == ldx_;
    if (!made) {
      grow(static_cast<std::size_t>(a.m * groups));
      for (std::int64_t i = 0; i < a.m; ++i)
        quantize(a.x + i * a.ldx, a.k, values() + i * groups * Int8Layout::group, scales() + i * groups,
                 offsets() + i * groups);
      version_ = a.x_version, x_ = a.x, rows_ = a.m, k_ = a.k, ldx_ = a.ldx;
    }
    return {values(), scales(), offsets(), groups};
  }

 private:
  static constexpr std::size_t few = 2048;  // groups

  void grow(std::size_t groups) {
    if (groups <= few || groups <= more_scales_.size()) return;
    const std::size_t room = std::bit_ceil(groups);
    more_values_.resize(room * Int8Layout::group);
    more_scales_.resize(room);
    more_offsets_.resize(room);
  }
  [[nodiscard]] Value* values() { return more_values_.empty() ? few_values_ : more_values_.data(); }
  [[nodiscard]] float* scales() { return more_scales_.empty() ? few_scales_ : more_scales_.data(); }
  [[nodiscard]] std::int32_t* offsets() { return more_offsets_.empty() ? few_offsets_ : more_offsets_.data(); }

  Value few_values_[few * Int8Layout::group] = {};
  float few_scales_[few] = {};
  std::int32_t few_offsets_[few] = {};
  std::vector<Value> more_values_;
  std::vector<float> more_scales_;
  std::vector<std::int32_t> more_offsets_;
  std::uint64_t version_ = 0;
  const float* x_ = nullptr;
  std::int64_t rows_ = 0, k_ = 0, ldx_ = 0;
};

// Of a.x; until the next call on this thread.
template <class Value>
[[nodiscard]] Int8Rows<Value> int8_rows(const LinearArgs& a, QuantizeRow<Value> quantize) {
  thread_local QuantizedRows<Value> rows;
  return rows.of(a, quantize);
}

}  // namespace rlalgo::cpu
