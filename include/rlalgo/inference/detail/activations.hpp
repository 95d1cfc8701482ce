// The rows that the products of a pass on the CPU read and write.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rlalgo::inference::detail {

// Rows of activations, each from a cache line on (rounded to bfloat16, too): sixteen lanes would lie across two else, and a
// product of float32 loses a quarter of its rate. The stride is not a multiple of 1 KiB: the rows of a tile would share few sets of the L1 cache.
class Activations {
 public:
  Activations(std::int64_t rows, std::int64_t columns)
      : stride_((columns + 31) / 32 * 32 + (columns > 240 && (columns + 31) / 32 % 8 == 0 ? 32 : 0)),
        values_(static_cast<std::size_t>(rows * stride_ / 16)) {}
  // With room for the same rows rounded to bfloat16.
  Activations(std::int64_t rows, std::int64_t columns, bool rounded) : Activations(rows, columns) {
    if (rounded) rounded_.resize(static_cast<std::size_t>(rows * stride_ / 32));
  }
  [[nodiscard]] std::int64_t stride() const noexcept { return stride_; }
  [[nodiscard]] float* row(std::int64_t i) noexcept { return values_.data()->elements.data() + i * stride_; }
  [[nodiscard]] const float* row(std::int64_t i) const noexcept {
    return values_.data()->elements.data() + i * stride_;
  }
  [[nodiscard]] std::uint16_t* rounded(std::int64_t i) noexcept {
    return rounded_.data()->elements.data() + i * stride_;
  }

  template <class T>
  struct alignas(64) Line {
    std::array<T, 64 / sizeof(T)> elements;
  };

 private:
  std::int64_t stride_;
  std::vector<Line<float>> values_;           // [rows, stride]
  std::vector<Line<std::uint16_t>> rounded_;  // the same, or nothing
};

}  // namespace rlalgo::inference::detail
