// A launch, memory that a block shares, and a grid that CUDA refuses.
#include <support/catch.hpp>
#include <support/kernels.hpp>

#include <rlalgo/cuda/language.cuh>

namespace {

using namespace rlalgo::support;
using rlalgo::cuda::launch;

struct Line {
  int of_thread[64];
};

// out[b, i] = x[b, 63 − i].
template <int Threads>
__global__ void reverse(const int* x, int* out) {
  RLALGO_CUDA_SHARED(Line, line);
  line.of_thread[threadIdx.x] = x[blockIdx.x * Threads + threadIdx.x];
  __syncthreads();
  out[blockIdx.x * Threads + threadIdx.x] = line.of_thread[Threads - 1 - threadIdx.x];
}

}  // namespace

TEST_CASE("A block's threads hand each other what they share") {
  std::vector<int> x, expected;
  for (int i = 0; i < 3 * 64; ++i) {
    x.push_back(i);
    expected.push_back(i / 64 * 64 + 63 - i % 64);
  }
  const Memory<int> there(x), out(x.size());
  in_orders([&] {
    must_work(launch(reverse<64>, dim3(3), dim3(64), nullptr, there.data(), out.data()));
    CHECK(out.values() == expected);
  });
}

TEST_CASE("An empty grid and a block that is too large are errors of the launch") {
  const Memory<int> x(64);
  CHECK(launch(reverse<64>, dim3(0), dim3(64), nullptr, x.data(), x.data()) == cudaErrorInvalidConfiguration);
  CHECK(launch(reverse<64>, dim3(1), dim3(2048), nullptr, x.data(), x.data()) != cudaSuccess);
}
