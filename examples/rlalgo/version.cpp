#include <torch/headeronly/version.h>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/version.hpp>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/data/columnar_rows.hpp>
#include <rlalgo/distributed/nccl_library.hpp>
#include <rlalgo/inference/cpu_kernels.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/cuda_library.hpp>
#include <rlalgo/tensor/products.hpp>
#include <string>
#include <string_view>
#include <system_error>

#include "verbs.hpp"

namespace rlalgo::cli {

namespace {

// The commit that an installed program was built from (cmake/bundle.cmake writes it down); empty in a build tree.
std::string commit() {
  std::error_code none;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", none);
  std::ifstream file(program.parent_path().parent_path() / "share/rlalgo/build.json");
  const nlohmann::json build = nlohmann::json::parse(file, nullptr, false);
  if (!build.is_object() || !build.contains("commit") || !build["commit"].is_string()) return "";
  const bool changed = build.contains("changed_since_commit") && build["changed_since_commit"] == true;
  return build["commit"].get<std::string>() + (changed ? ", changed" : "");
}

// The driver, the GPUs and the libraries for them; nothing is started on a GPU.
void print_devices(std::ostream& out) {
  const tensor::TorchBuild build = tensor::torch_build();
  const auto driver = tensor::find_cuda_driver();
  out << "  LibTorch's folder " << build.folder << (build.version.empty() ? "" : ", " + build.version)
      << (build.cuda.empty() ? "" : ", for CUDA " + build.cuda) << "\n";
  if (!driver) {
    out << "  devices cpu (no NVIDIA driver)\n";
    return;
  }
  out << "  driver for CUDA " << tensor::cuda_version_text(driver->version)
      << (driver->problem.empty() ? "" : ": " + driver->problem) << "\n"
      << "  devices cpu";
  for (std::size_t i = 0; i < driver->gpus.size(); ++i) {
    const tensor::CudaDriver::Gpu& gpu = driver->gpus[i];
    out << ", cuda:" << i << " (" << gpu.name << ", " << gpu.bytes / (std::size_t{1} << 20U) << " MiB, capability "
        << gpu.major << "." << gpu.minor << ")";
  }
  out << "\n";
  try {
    tensor::check_cuda_driver(driver, build);
    (void)tensor::load_cuda();
    out << "  CUDA can be used: yes\n";
  } catch (const core::Error& error) {
    out << "  CUDA cannot be used: " << error.what() << "\n";
  }
  try {
    const int nccl = distributed::NcclLibrary::load()->version();
    out << "  NCCL " << nccl / 10000 << "." << nccl / 100 % 100 << "." << nccl % 100 << "\n";
  } catch (const core::Error& error) {
    out << "  NCCL, which several GPUs need, cannot be used: " << error.what() << "\n";
  }
}

// What Parquet is read by; where there is none, why.
std::string columnar_line() {
  try {
    return data::columnar_library() + " (Parquet and Arrow files)";
  } catch (const core::Error& error) {
    return std::string("no Parquet or Arrow files: ") + error.what();
  }
}

}  // namespace

Run version(CLI::App&) {
  return [] {
    // RLALGO_CPU and RLALGO_CUDA_KERNELS may be refused: nothing is printed before.
    const bool used = tensor::cuda_kernels() != nullptr;
    const std::string_view generation = inference::cpu_kernels(),
                           float32 = tensor::name_of(tensor::product_kernels(at::kFloat)),
                           bfloat16 = tensor::name_of(tensor::product_kernels(at::kBFloat16));
    const std::string built_from = commit();
    std::cout << "rlalgo " << rlalgo::version << "\n"
              << (built_from.empty() ? "" : "  commit " + built_from + "\n") << "  LibTorch " << TORCH_VERSION << "\n"
              << "  nlohmann/json " << NLOHMANN_JSON_VERSION_MAJOR << "." << NLOHMANN_JSON_VERSION_MINOR << "."
              << NLOHMANN_JSON_VERSION_PATCH << "\n"
              << "  " << columnar_line() << "\n"
              << "  compiler " << __VERSION__ << "\n"
              << "  kernels of generation " << generation << "\n"
              << "  products of training in float32 " << float32 << ", in bfloat16 " << bfloat16 << "\n"
              << "  CUDA kernels of our own: "
              << (cuda::compiled() == nullptr ? "none, built without nvcc"
                  : used                      ? "compiled in, used"
                                              : "compiled in, not used (RLALGO_CUDA_KERNELS=all uses them)")
              << "\n";
    print_devices(std::cout);
    return 0;
  };
}

}  // namespace rlalgo::cli
