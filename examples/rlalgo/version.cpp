#include <torch/headeronly/version.h>
#include <iostream>
#include <nlohmann/json.hpp>
#include <rlalgo/core/version.hpp>
#include <rlalgo/inference/cpu_kernels.hpp>
#include <rlalgo/tensor/products.hpp>
#include <string_view>

#include "verbs.hpp"

namespace rlalgo::cli {

Run version(CLI::App&) {
  return [] {
    // RLALGO_CPU may be refused: nothing is printed before.
    const std::string_view generation = inference::cpu_kernels(),
                           float32 = tensor::name_of(tensor::product_kernels(at::kFloat)),
                           bfloat16 = tensor::name_of(tensor::product_kernels(at::kBFloat16));
    std::cout << "rlalgo " << rlalgo::version << "\n"
              << "  LibTorch " << TORCH_VERSION << "\n"
              << "  nlohmann/json " << NLOHMANN_JSON_VERSION_MAJOR << "." << NLOHMANN_JSON_VERSION_MINOR << "."
              << NLOHMANN_JSON_VERSION_PATCH << "\n"
              << "  compiler " << __VERSION__ << "\n"
              << "  kernels of generation " << generation << "\n"
              << "  products of training in float32 " << float32 << ", in bfloat16 " << bfloat16 << "\n";
    return 0;
  };
}

}  // namespace rlalgo::cli
