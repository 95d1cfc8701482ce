// Rounding to bfloat16, of every kind of number, and runs of sixteen bytes.
#include <array>

#include <support/catch.hpp>
#include <support/kernels.hpp>

#include <rlalgo/cuda/elements.cuh>

namespace {

using namespace rlalgo::support;
namespace cuda = rlalgo::cuda;

template <int N>
__global__ void round_kernel(const float* x, cuda::Bfloat16* narrow, float* wide_again, int count) {
  const int i = static_cast<int>(blockIdx.x * 32 + threadIdx.x) * N;
  if (i >= count) return;
  cuda::Neighbours<cuda::Bfloat16, N> run;
  for (int k = 0; k < N; ++k) run.at[k] = cuda::rounded<cuda::Bfloat16>(cuda::widen(x[i + k]));
  *reinterpret_cast<cuda::Neighbours<cuda::Bfloat16, N>*>(narrow + i) = run;
  for (int k = 0; k < N; ++k) wide_again[i + k] = cuda::rounded<float>(cuda::widen(run.at[k]));
}

}  // namespace

TEST_CASE("Numbers are rounded to the nearest bfloat16, to the even one of two") {
  std::vector<float> x = normal<float>(4096, 1);
  const float infinity = std::numeric_limits<float>::infinity(), ulp = 0x1p-7F;
  const std::array special{0.0F,
                           -0.0F,
                           1.0F + ulp / 2,
                           1.0F + 1.5F * ulp,
                           1.0F + 0.51F * ulp,
                           infinity,
                           -infinity,
                           std::numeric_limits<float>::max(),
                           std::numeric_limits<float>::denorm_min(),
                           std::numeric_limits<float>::quiet_NaN(),
                           -std::numeric_limits<float>::quiet_NaN(),
                           1e-40F};
  std::copy(special.begin(), special.end(), x.begin());
  std::vector<cuda::Bfloat16> expected;
  for (const float one : x) expected.push_back(as<cuda::Bfloat16>(one));
  const Memory<float> there(x), again(x.size());
  const Memory<cuda::Bfloat16> narrow(x.size());
  must_work(cuda::launch(round_kernel<8>, dim3(16), dim3(32), nullptr, there.data(), narrow.data(), again.data(),
                         static_cast<int>(x.size())));
  CHECK(same_bits(narrow.values(), expected));
  std::vector<double> widened;
  for (const auto& one : expected) widened.push_back(wide(one));
  CHECK(distance(again.values(), widened, 0.0) == 0.0);
}

TEST_CASE("Sixteen bytes at once are read where rows and addresses allow it") {
  alignas(16) std::array<cuda::Bfloat16, 16> memory = {};
  CHECK(cuda::in_sixteens<cuda::Bfloat16>(64, memory.data(), memory.data() + 8));
  CHECK_FALSE(cuda::in_sixteens<cuda::Bfloat16>(64, memory.data(), memory.data() + 1));
  CHECK_FALSE(cuda::in_sixteens<cuda::Bfloat16>(60, memory.data()));
  CHECK(cuda::in_sixteens<float>(60, memory.data()));
}
