// Numbers in e4m3: every code, and rounding of every kind of number against a search over all of them.
#include <support/catch.hpp>
#include <support/kernels.hpp>

#include <rlalgo/cuda/float8.cuh>

#include <support/float8.hpp>

namespace {

using namespace rlalgo::support;
namespace cuda = rlalgo::cuda;

__global__ void both_ways(const float* x, cuda::Float8* narrow, const cuda::Float8* codes, float* wide, int count) {
  const int i = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  if (i >= count) return;
  narrow[i] = cuda::rounded<cuda::Float8>(x[i]);
  wide[i] = cuda::widen(codes[i]);
}

}  // namespace

TEST_CASE("Codes of e4m3 stand for their numbers, and numbers are rounded to the nearest of them") {
  std::vector<float> x = normal<float>(2048, 1, 20.0);
  const std::vector<float> small = normal<float>(1024, 2, 0.01);
  std::copy(small.begin(), small.end(), x.begin());
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> special{0.0F,    -0.0F,  infinity, -infinity, nan,   -nan,   448.0F,
                             447.99F, 464.0F, 470.0F,   463.9F,    1e30F, -1e30F, 1e-40F};
  for (unsigned code = 0; code < 126; ++code) {  // each, halfway to the next, and a little to either side of that
    const auto number = [](unsigned of) { return wide(Float8{static_cast<std::uint8_t>(of)}); };
    const double low = number(code), half = (low + number(code + 1)) / 2;
    for (const double one : {low, half, half * (1 + 1e-6), half * (1 - 1e-6)}) {
      special.push_back(static_cast<float>(one));
      special.push_back(static_cast<float>(-one));
    }
  }
  std::copy(special.begin(), special.end(), x.begin());
  std::vector<cuda::Float8> codes(x.size()), expected;
  std::vector<double> numbers;
  for (std::size_t i = 0; i < x.size(); ++i) {
    codes[i] = {static_cast<std::uint8_t>(i % 256)};
    numbers.push_back(wide(codes[i]));
    expected.push_back(as<Float8>(x[i]));
  }
  const Memory<float> there(x), wide_there(x.size());
  const Memory<cuda::Float8> narrow(x.size()), codes_there(codes);
  must_work(cuda::launch(both_ways, dim3(static_cast<unsigned>((x.size() + 31) / 32)), dim3(32), nullptr, there.data(),
                         narrow.data(), codes_there.data(), wide_there.data(), static_cast<int>(x.size())));
  CHECK(same_bits(narrow.values(), expected));
  CHECK(distance(wide_there.values(), numbers, 0.0) == 0.0);
}
