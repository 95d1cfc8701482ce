// Definitions of cuda_library.hpp.
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/tensor/cuda_library.hpp>

namespace rlalgo::tensor {

namespace detail {

// What is asked of the driver: a few functions of its C interface, whose codes are 0 for success.
struct CudaDriverFunctions {
  int (*get_version)(int*) = nullptr;
  int (*init)(unsigned) = nullptr;
  int (*count)(int*) = nullptr;
  int (*device)(int*, int) = nullptr;
  int (*name)(char*, int, int) = nullptr;
  int (*attribute)(int*, int, int) = nullptr;
  int (*memory)(std::size_t*, int) = nullptr;

  template <class F>
  static bool find(void* library, const char* symbol, F& function) {
    function = reinterpret_cast<F>(::dlsym(library, symbol));
    return function != nullptr;
  }
  bool find_all(void* library) {
    return find(library, "cuDriverGetVersion", get_version) && find(library, "cuInit", init) &&
           find(library, "cuDeviceGetCount", count) && find(library, "cuDeviceGet", device) &&
           find(library, "cuDeviceGetName", name) && find(library, "cuDeviceGetAttribute", attribute) &&
           find(library, "cuDeviceTotalMem_v2", memory);
  }
};

// The text between quotes after `name` and an equals sign; empty where there is none.
inline std::string quoted_value(const std::string& text, const std::string& name) {
  for (std::size_t line = 0; line < text.size();) {
    const std::size_t end = std::min(text.find('\n', line), text.size());
    const std::string one = text.substr(line, end - line);
    line = end + 1;
    if (!one.starts_with(name)) continue;
    const std::size_t equals = one.find('='), open = one.find('\'', equals == std::string::npos ? 0 : equals);
    if (equals == std::string::npos || open == std::string::npos) return {};
    return one.substr(open + 1, one.find('\'', open + 1) - open - 1);
  }
  return {};
}

inline constexpr const char* no_cuda_remedy = "or set device: cpu";

}  // namespace detail

RLALGO_INLINE std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

RLALGO_INLINE std::optional<CudaDriver> find_cuda_driver(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays: CUDA's own threads need it
  if (handle == nullptr) return std::nullopt;
  CudaDriver out;
  detail::CudaDriverFunctions driver;
  if (!driver.find_all(handle)) {
    out.problem = library + " lacks functions that every CUDA driver has";
    return out;
  }
  constexpr int capability_major = 75, capability_minor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…
  int count = 0;
  if (driver.get_version(&out.version) != 0) out.version = 0;
  if (const int code = driver.init(0); code != 0) {
    out.problem = "the driver's cuInit gives error " + std::to_string(code) + (code == 100 ? " (no GPU)" : "");
    return out;
  }
  if (const int code = driver.count(&count); code != 0) {
    out.problem = "the driver's cuDeviceGetCount gives error " + std::to_string(code);
    return out;
  }
  for (int i = 0; i < count; ++i) {
    CudaDriver::Gpu gpu;
    char name[256] = {};
    int device = 0;
    if (driver.device(&device, i) != 0) continue;
    if (driver.name(name, sizeof name - 1, device) == 0) gpu.name = name;
    driver.attribute(&gpu.major, capability_major, device);
    driver.attribute(&gpu.minor, capability_minor, device);
    driver.memory(&gpu.bytes, device);
    out.gpus.push_back(std::move(gpu));
  }
  return out;
}

RLALGO_INLINE TorchBuild torch_build_of(const std::string& folder, const std::string& version_file) {
  return {.folder = folder,
          .version = detail::quoted_value(version_file, "__version__"),
          .cuda = detail::quoted_value(version_file, "cuda:")};
}

RLALGO_INLINE TorchBuild torch_build() {
  void* const library = ::dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  const link_map* place = nullptr;
  if (library == nullptr || ::dlinfo(library, RTLD_DI_LINKMAP, &place) != 0 || place == nullptr) return {};
  std::error_code ignored;  // a path that cannot be resolved is taken as it is
  const std::filesystem::path file = std::filesystem::weakly_canonical(place->l_name, ignored);
  std::ifstream in(file.parent_path().parent_path() / "version.py");
  return torch_build_of(file.parent_path().string(), {std::istreambuf_iterator<char>(in), {}});
}

RLALGO_INLINE void check_cuda_driver(const std::optional<CudaDriver>& driver, const TorchBuild& build) {
  if (!driver)
    core::raise("tensor", 8,
                {.what = "there is no NVIDIA driver on this machine",
                 .found = "no libcuda.so.1",
                 .remedy = std::string("install the driver, or give a container its GPUs (--gpus all), ") +
                           detail::no_cuda_remedy});
  if (driver->gpus.empty())
    core::raise("tensor", 8,
                {.what = "there is no GPU that this process may use",
                 .found = driver->problem.empty()
                              ? "a driver for CUDA " + cuda_version_text(driver->version) + " that shows no GPU"
                              : driver->problem,
                 .remedy = std::string("look at nvidia-smi and CUDA_VISIBLE_DEVICES, ") + detail::no_cuda_remedy});
  // Versions of one major number serve each other.
  const int needed = build.cuda.empty() ? 0 : std::atoi(build.cuda.c_str());
  if (driver->version / 1000 < needed)
    core::raise("tensor", 9,
                {.what = "the NVIDIA driver is too old for this LibTorch",
                 .found = "a driver for CUDA " + cuda_version_text(driver->version),
                 .expected = "one for CUDA " + std::to_string(needed) + ".0 or newer, which LibTorch " + build.version +
                             " is built with",
                 .remedy = std::string("install a newer driver, or name a LibTorch for your driver's CUDA in "
                                       "RLALGO_TORCH_ROOT and build again, ") +
                           detail::no_cuda_remedy});
  for (std::size_t i = 0; i < driver->gpus.size(); ++i) {
    const CudaDriver::Gpu& gpu = driver->gpus[i];
    if (gpu.major * 10 + gpu.minor < 75)
      core::raise(
          "tensor", 11,
          {.what = "a GPU is older than the kernels of LibTorch",
           .found = gpu.name + ", compute capability " + std::to_string(gpu.major) + "." + std::to_string(gpu.minor),
           .expected = "7.5 or newer",
           .where = "cuda:" + std::to_string(i),
           .remedy = std::string("hide it (CUDA_VISIBLE_DEVICES), ") + detail::no_cuda_remedy});
  }
}

RLALGO_INLINE void check_cuda_is_seen(const TorchBuild& build) {
  if (!at::detail::getCUDAHooks().hasCUDART())
    core::raise("tensor", 10,
                {.what = "LibTorch's CUDA half was loaded too late",
                 .found = "a backward pass or a seed of LibTorch's before it: LibTorch looks for that half once, and "
                          "then does without",
                 .where = build.folder,
                 .remedy = std::string("call tensor::choose_device() or tensor::load_cuda() before them, ") +
                           detail::no_cuda_remedy});
}

RLALGO_INLINE bool cuda_is_loaded() { return c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA); }

RLALGO_INLINE int load_cuda() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto count = [] { return static_cast<int>(c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).deviceCount()); };
  static bool prepared = false;
  if (prepared) return count();
  const TorchBuild build = torch_build();
  check_cuda_driver(find_cuda_driver(), build);
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // read when cuBLAS begins
  if (!cuda_is_loaded()) {
    const char* const named = std::getenv("RLALGO_TORCH_CUDA");
    const std::string file = named != nullptr && *named != '\0' ? named : build.folder + "/libtorch_cuda.so";
    // RTLD_GLOBAL: the libraries that it brings find its symbols. They are resolved when they are used (RTLD_LAZY): parts
    // that are never called may lack theirs.
    if (::dlopen(file.c_str(), RTLD_LAZY | RTLD_GLOBAL) == nullptr) {
      const char* const said = ::dlerror();
      core::raise("tensor", 10,
                  {.what = "LibTorch's CUDA half cannot be loaded",
                   .found = said != nullptr ? said : "no reason given",
                   .expected = "libtorch_cuda.so of LibTorch " + (build.version.empty() ? "2.11" : build.version) +
                               " and the CUDA libraries that it names",
                   .where = file,
                   .remedy = std::string("run `scripts/setup.sh --cuda`, or put the torch/lib folder of a PyTorch with "
                                         "CUDA of the same version first in LD_LIBRARY_PATH, ") +
                             detail::no_cuda_remedy});
    }
  }
  check_cuda_is_seen(build);
  if (!cuda_is_loaded() || count() < 1)
    core::raise("tensor", 10,
                {.what = "LibTorch's CUDA half finds no GPU",
                 .found = "LibTorch " + build.version,
                 .where = build.folder,
                 .remedy = std::string("compare `nvidia-smi` with `rlalgo version`, ") + detail::no_cuda_remedy});
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/true);  // what has no such algorithm says so
  context.setDeterministicFillUninitializedMemory(false);        // every tensor here is written before it is read
  context.setAllowBF16ReductionCuBLAS(/*allow_reduced_precision=*/false);
  context.setAllowTF32CuBLAS(false);  // which images set in the environment
  prepared = true;
  return count();
}

}  // namespace rlalgo::tensor
