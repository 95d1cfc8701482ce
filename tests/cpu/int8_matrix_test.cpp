#include <rlalgo/cpu/int8_matrix.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <support/catch.hpp>

using namespace rlalgo::cpu;

namespace {

// Element [row, column] of a packed matrix.
double unpacked(const std::vector<std::byte>& packed, std::int64_t columns, std::int64_t row, std::int64_t column) {
  const Int8Layout layout(columns);
  const std::int64_t r = row % rows_of_a_block, j = column % Int8Layout::group;
  const std::byte* const at = packed.data() + row / rows_of_a_block * layout.block_bytes() +
                              column / Int8Layout::group * Int8Layout::group_bytes;
  float scale = 0.0f;
  std::memcpy(&scale, at + Int8Layout::scales_at + 4 * r, sizeof scale);
  return static_cast<double>(scale) * (std::to_integer<int>(at[(j / 4 * rows_of_a_block + r) * 4 + j % 4]) - 128);
}

}  // namespace

TEST_CASE("a matrix in 8 bits holds each number to half a step of its group, and zeros where there is no matrix") {
  for (const std::int64_t rows : {1, 15, 16, 17, 40})
    for (const std::int64_t columns : {1, 31, 32, 33, 70}) {
      std::vector<float> w;
      for (std::int64_t i = 0; i < rows * columns; ++i)
        w.push_back(static_cast<float>(std::sin(static_cast<double>(i) * 1.7) * (1.0 + static_cast<double>(i % 9))));
      const std::int64_t blocks = blocks_of(rows),
                         whole = (columns + Int8Layout::group - 1) / Int8Layout::group * Int8Layout::group;
      std::vector<std::byte> packed(static_cast<std::size_t>(blocks * Int8Layout(columns).block_bytes()),
                                    std::byte{0xEE});
      pack_int8(w.data(), rows, columns, 0, blocks / 2, packed.data());
      pack_int8(w.data(), rows, columns, blocks / 2, blocks, packed.data());
      for (std::int64_t row = 0; row < blocks * rows_of_a_block; ++row)
        for (std::int64_t column = 0; column < whole; ++column) {
          CAPTURE(rows, columns, row, column);
          double expected = 0, most = 0;
          if (row < rows && column < columns) {
            const std::int64_t first = column / Int8Layout::group * Int8Layout::group;
            for (std::int64_t j = first; j < std::min(columns, first + Int8Layout::group); ++j)
              most = std::max(most, std::abs(static_cast<double>(w[static_cast<std::size_t>(row * columns + j)])));
            expected = w[static_cast<std::size_t>(row * columns + column)];
          }
          REQUIRE(std::abs(unpacked(packed, columns, row, column) - expected) <= most / 127 * 0.5001);
        }
    }
}

TEST_CASE("a group in 8 bits has no scale where its numbers are too small or not finite") {
  CHECK(scale_of_group(127.0f) == 1.0f);
  CHECK(scale_of_group(1e-31f) == 0.0f);
  CHECK(std::isnan(scale_of_group(std::numeric_limits<float>::infinity())));
  std::vector<float> x(static_cast<std::size_t>(Int8Layout::group), 1e-38f);
  std::vector<std::int32_t> values(x.size(), 7);
  CHECK(quantize_group(x.data(), values.data()) == 0.0f);
  CHECK(std::count(values.begin(), values.end(), 0) == Int8Layout::group);
  x[5] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(quantize_group(x.data(), values.data())));
  x.assign(x.size(), 1.0f);
  x[3] = -0.5f;
  CHECK(quantize_group(x.data(), values.data()) == 1.0f / 127.0f);
  CHECK(values[0] == 127);
  CHECK(values[3] == -64);
}
