// Masked row sums on the GPU against the host, exact: small integers have exact f32 sums in any order.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <rlalgo/cuda/masked_row_sum.cuh>

namespace {

bool good(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return true;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  return false;
}

}  // namespace

int main() {
  int devices = 0;
  if (!good(cudaGetDeviceCount(&devices), "no GPU to run on")) return 0;

  const std::int64_t rows = 5, columns = 1000;
  std::vector<float> value(rows * columns), mask(rows * columns), expected(rows, 0.0F), found(rows, -1.0F);
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    value[i] = static_cast<float>(i % 17 - 8);
    mask[i] = static_cast<float>(i % 3 != 0);
    expected[i / columns] += mask[i] * value[i];
    if (mask[i] == 0.0F) value[i] = NAN;
  }
  float *device_value = nullptr, *device_mask = nullptr, *device_out = nullptr;
  const std::size_t bytes = value.size() * sizeof(float), out_bytes = found.size() * sizeof(float);
  const bool ran =
      good(cudaMalloc(&device_value, bytes), "malloc") && good(cudaMalloc(&device_mask, bytes), "malloc") &&
      good(cudaMalloc(&device_out, out_bytes), "malloc") &&
      good(cudaMemcpy(device_value, value.data(), bytes, cudaMemcpyHostToDevice), "copy in") &&
      good(cudaMemcpy(device_mask, mask.data(), bytes, cudaMemcpyHostToDevice), "copy in") &&
      good(rlalgo::cuda::masked_row_sum(device_value, device_mask, device_out, rows, columns, nullptr), "launch") &&
      good(cudaMemcpy(found.data(), device_out, out_bytes, cudaMemcpyDeviceToHost), "copy out");
  cudaFree(device_value);
  cudaFree(device_mask);
  cudaFree(device_out);
  bool same = ran;
  for (std::int64_t r = 0; r < rows && ran; ++r)
    if (found[r] != expected[r]) {
      std::printf("FAIL row %lld: found %g, expected %g\n", static_cast<long long>(r), found[r], expected[r]);
      same = false;
    }
  if (same) std::printf("ok masked_row_sum\n");
  return same ? 0 : 1;
}
