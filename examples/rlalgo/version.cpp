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
              << "  products of training in float32 " << tensor::name_of(tensor::product_kernels(at::kFloat))
              << ", in bfloat16 " << tensor::name_of(tensor::product_kernels(at::kBFloat16)) << "\n";
    return 0;
  };
}

}  // namespace rlalgo::cli
