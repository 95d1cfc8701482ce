// Parts of matrices in bits against the same arithmetic element by element, to the bit.
#include <support/catch.hpp>
#include <support/kernels.hpp>

#include <rlalgo/cuda/dequantise.cuh>

namespace {

using namespace rlalgo::support;
namespace cuda = rlalgo::cuda;

struct Case {
  std::int64_t height, width, block, row, rows, column, columns;
  bool nested = false;
  int bits = 4;
  std::size_t offset = 0;
  std::int64_t group = 256;
};

// Rounded to float32: no operation with a single rounding for two.
float times(float a, float b) {
  volatile float out = a * b;
  return out;
}
float plus(float a, float b) {
  volatile float out = a + b;
  return out;
}

template <class T>
void check(const Case& c) {
  CAPTURE(c.height, c.width, c.block, c.row, c.rows, c.column, c.columns, c.nested, c.bits, c.offset, sizeof(T));
  const std::int64_t all = c.height * c.width, blocks = (all + c.block - 1) / c.block;
  std::mt19937 random(7);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(c.bits == 4 ? (all + 1) / 2 : all)),
      scale_codes(static_cast<std::size_t>(blocks));
  for (auto& code : codes) code = static_cast<std::uint8_t>(random());
  for (auto& code : scale_codes) code = static_cast<std::uint8_t>(random());
  const auto scales = normal<float>(static_cast<std::size_t>(c.bits == 4 ? blocks : c.height), 1),
             scale_values = normal<float>(256, 2), values = normal<float>(16, 4),
             scale_scales = normal<float>(static_cast<std::size_t>((blocks + c.group - 1) / c.group), 3);
  constexpr float offset = 0.731F;
  std::vector<T> expected;
  for (std::int64_t r = c.row; r < c.row + c.rows; ++r)
    for (std::int64_t j = c.column; j < c.column + c.columns; ++j) {
      const std::int64_t at = r * c.width + j;
      if (c.bits == 8) {
        const auto code = static_cast<float>(static_cast<std::int8_t>(codes[static_cast<std::size_t>(at)]));
        expected.push_back(
            as<T>(times(code, times(scales[static_cast<std::size_t>(r)], static_cast<float>(1.0 / 127.0)))));
        continue;
      }
      const auto block = static_cast<std::size_t>(at / c.block);
      const float scale =
          c.nested
              ? plus(times(scale_values[scale_codes[block]], scale_scales[block / static_cast<std::size_t>(c.group)]),
                     offset)
              : scales[block];
      const unsigned byte = codes[static_cast<std::size_t>(at / 2)];
      expected.push_back(as<T>(times(values[at % 2 == 0 ? byte >> 4U : byte & 0xFU], scale)));
    }
  const Memory<std::uint8_t> codes_there(codes), scale_codes_there(scale_codes);
  const Memory<float> scales_there(scales), values_there(scale_values), outer(scale_scales);
  const Memory<T> out(expected.size(), expected.empty() ? 0 : c.offset);
  cuda::Dequantise a{.codes = codes_there.data(),
                     .scales = scales_there.data(),
                     .bits = c.bits,
                     .width = c.width,
                     .row = c.row,
                     .rows = c.rows,
                     .column = c.column,
                     .columns = c.columns,
                     .block = c.block,
                     .group = c.group,
                     .out = out.data(),
                     .element = element_of<T>};
  std::copy(values.begin(), values.end(), a.values);
  if (c.nested) {
    a.scales = scale_codes_there.data();
    a.scale_values = values_there.data();
    a.scale_scales = outer.data();
    a.scale_offset = offset;
  }
  must_work(cuda::dequantise(a, nullptr));
  CHECK(same_bits(out.values(), expected));
}

}  // namespace

TEST_CASE("Parts of matrices in 4 and 8 bits have the bits of their arithmetic") {
  for (const bool nested : {false, true})
    for (const Case& c : {Case{5, 128, 64, 0, 5, 0, 128},
                          {5, 128, 64, 1, 3, 64, 64},
                          {6, 96, 64, 2, 3, 0, 96},
                          {6, 96, 64, 2, 3, 8, 24},
                          {3, 7, 2, 0, 3, 0, 7},
                          {3, 7, 64, 1, 2, 3, 4},
                          {40, 512, 16, 3, 30, 16, 480},
                          {2, 64, 4, 0, 2, 0, 64},
                          {4, 64, 64, 0, 0, 0, 64},
                          {4, 64, 64, 0, 4, 12, 0},
                          {6, 96, 64, 2, 3, 8, 20},
                          {6, 96, 64, 1, 4, 4, 32},
                          {5, 100, 64, 1, 3, 8, 40}}) {
      Case of = c;
      of.nested = nested;
      of.group = 4;
      check<float>(of);
      check<Bfloat16>(of);
      of.offset = 1;
      check<Bfloat16>(of);
    }
  for (const Case& c : {Case{60, 64, 1, 0, 60, 0, 64}, {5, 64, 1, 1, 3, 16, 40}, {3, 7, 1, 1, 2, 2, 5}}) {
    Case of = c;
    of.bits = 8;
    in_orders([&] { check<float>(of); }, 1);
    check<Bfloat16>(of);
  }
}

TEST_CASE("What the kernel of matrices in bits cannot do is an error of its launcher") {
  CHECK(cuda::dequantise({.width = 64, .rows = 1, .columns = 64, .block = 48, .group = 256}, nullptr) ==
        cudaErrorInvalidValue);
  const float some[256] = {};
  CHECK(cuda::dequantise({.scale_values = some, .width = 64, .rows = 1, .columns = 64, .block = 64, .group = 3},
                         nullptr) == cudaErrorInvalidValue);
  CHECK(cuda::dequantise({.bits = 2, .width = 64, .rows = 1, .columns = 64, .block = 64}, nullptr) ==
        cudaErrorInvalidValue);
  CHECK(cuda::dequantise({.width = 1 << 16, .rows = 1 << 15, .columns = 1 << 16, .block = 64}, nullptr) ==
        cudaErrorInvalidValue);
  CHECK(cuda::dequantise({}, nullptr) == cudaSuccess);
}
