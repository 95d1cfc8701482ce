#include <torch/headeronly/version.h>
#include <iostream>
#include <nlohmann/json.hpp>
#include <rlalgo/core/version.hpp>
#include <rlalgo/inference/cpu_kernels.hpp>
#include <rlalgo/tensor/products.hpp>

#include "verbs.hpp"

namespace rlalgo::cli {

Run version(CLI::App&) {
  return [] {
    std::cout << "rlalgo " << rlalgo::version << "\n"
              << "  LibTorch " << TORCH_VERSION << "\n"
              << "  nlohmann/json " << NLOHMANN_JSON_VERSION_MAJOR << "." << NLOHMANN_JSON_VERSION_MINOR << "."
              << NLOHMANN_JSON_VERSION_PATCH << "\n"
              << "  compiler " << __VERSION__ << "\n"
              << "  kernels of generation " << inference::cpu_kernels() << "\n"
              << "  products of training in float32 " << (tensor::has_float32_products() ? "avx512" : "LibTorch's")
              << ", in bfloat16 " << (tensor::has_bfloat16_products() ? "avx512_bf16" : "LibTorch's") << "\n";
    return 0;
  };
}

}  // namespace rlalgo::cli
