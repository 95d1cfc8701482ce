#include <rlalgo/tensor/peak.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("the peak of a GPU is that of its data sheet, and of others there is none") {
  CHECK(tensor::peak_flops("NVIDIA H100 80GB HBM3, 79.2 GiB") == 989e12);
  CHECK(tensor::peak_flops("NVIDIA H100 PCIe, 79.2 GiB") == 756e12);
  CHECK(tensor::peak_flops("NVIDIA H200, 139.8 GiB") == 989e12);
  CHECK(tensor::peak_flops("NVIDIA H20, 95.6 GiB") == 148e12);
  CHECK(tensor::peak_flops("NVIDIA A100-SXM4-80GB") == 312e12);
  CHECK(tensor::peak_flops("NVIDIA A10G") == 70e12);
  CHECK(tensor::peak_flops("NVIDIA A10") == 125e12);
  CHECK(tensor::peak_flops("NVIDIA L40S") == 362e12);
  CHECK(tensor::peak_flops("NVIDIA GeForce RTX 4090") == 165.2e12);
  CHECK(tensor::peak_flops("Tesla T4, 14.6 GiB") == 0.0);
  CHECK(tensor::peak_flops("cpu") == 0.0);
}
