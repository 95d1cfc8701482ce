// Sums of a warp and of a block, and the elements that each lane has of a product of matrices.
#include <support/catch.hpp>
#include <support/kernels.hpp>

#include <rlalgo/cuda/warp.cuh>

namespace {

using namespace rlalgo::support;
namespace cuda = rlalgo::cuda;

template <int Warps>
__global__ void sum(const float* x, float* out) {
  RLALGO_CUDA_SHARED(cuda::WarpSums<Warps>, sums);
  out[threadIdx.x] = cuda::block_sum<Warps>(x[threadIdx.x], sums);
}

template <int Warps>
void check_sum() {
  const auto x = normal<float>(32 * Warps, 1);
  double expected = 0.0;
  for (const float one : x) expected += one;
  const Memory<float> there(x), out(x.size());
  std::vector<float> before;
  in_orders(
      [&] {
        must_work(cuda::launch(sum<Warps>, dim3(1), dim3(32 * Warps), nullptr, there.data(), out.data()));
        const auto found = out.values();
        CHECK(distance(found, std::vector<double>(x.size(), expected), 1.0) < 1e-5);
        CHECK(same_bits(found, std::vector<float>(x.size(), found[0])));
        if (!before.empty()) CHECK(same_bits(found, before));
        before = found;
      },
      5);
}

__global__ void largest(const float* x, float* out) { out[threadIdx.x] = cuda::warp_max(x[threadIdx.x]); }

// c += a·b of one warp: a [16, 16], b [8, 16] by columns.
template <int Lanes>
__global__ void product(const std::uint16_t* a, const std::uint16_t* b, float* c) {
  const unsigned lane = threadIdx.x % Lanes, g = lane / 4, t = lane % 4;
  const auto pair = [](const std::uint16_t* p) { return p[0] | static_cast<std::uint32_t>(p[1]) << 16U; };
  const std::uint32_t left[4] = {pair(a + g * 16 + 2 * t), pair(a + (g + 8) * 16 + 2 * t), pair(a + g * 16 + 2 * t + 8),
                                 pair(a + (g + 8) * 16 + 2 * t + 8)};
  float sum[4];
  for (unsigned i = 0; i < 4; ++i) sum[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  cuda::product_16x8x16(sum, left, pair(b + g * 16 + 2 * t), pair(b + g * 16 + 2 * t + 8));
  for (unsigned i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sum[i];
}

}  // namespace

TEST_CASE("The sum of a block is the same in each thread, and in each order") {
  check_sum<1>();
  check_sum<3>();
  check_sum<8>();
}

TEST_CASE("The largest of a warp is the same in each lane, wherever it is") {
  for (std::size_t place = 0; place < 32; ++place) {
    std::vector<float> x(32, -3.0F);
    x[place] = -2.0F;
    const Memory<float> there(x), out(x.size());
    must_work(cuda::launch(largest, dim3(1), dim3(32), nullptr, there.data(), out.data()));
    CHECK(same_bits(out.values(), std::vector<float>(32, -2.0F)));
  }
}

TEST_CASE("A product of a warp has its elements where mma.m16n8k16 has them") {
  std::vector<std::uint16_t> a(16 * 16), b(8 * 16);
  const auto number = [](std::size_t i) { return static_cast<float>(static_cast<int>(i * 7 % 23) - 11); };
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = as<Bfloat16>(number(i)).bits;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = as<Bfloat16>(number(i + 5)).bits;
  const Memory<std::uint16_t> left(a), right(b);
  const Memory<float> c(std::vector<float>(16 * 8, 3.0F));
  must_work(cuda::launch(product<32>, dim3(1), dim3(32), nullptr, left.data(), right.data(), c.data()));
  const auto found = c.values();
  for (std::size_t m = 0; m < 16; ++m)
    for (std::size_t n = 0; n < 8; ++n) {
      float expected = 3.0F;  // small integers: exact in any order
      for (std::size_t k = 0; k < 16; ++k) expected += number(m * 16 + k) * number(n * 16 + k + 5);
      CHECK(found[m * 8 + n] == expected);
    }
}
