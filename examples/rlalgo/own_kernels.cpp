#include "own_kernels.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/core/version.hpp>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/os/file_digest.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/cuda_library.hpp>

#include "log.hpp"

namespace rlalgo::cli {

namespace {

constexpr const char* variable = "RLALGO_CUDA_KERNELS";

// Of a program without nvcc LibTorch's attention alone.
std::vector<std::string> names_there() {
  std::vector<std::string> out;
  for (const std::string_view name : cuda::kernel_names)
    if (cuda::compiled() != nullptr || name == "flash_attention") out.emplace_back(name);
  return out;
}

// Empty: this user has no place for it.
std::filesystem::path record() {
  const auto value = [](const char* name) {
    const char* const text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  const std::string cache = value("XDG_CACHE_HOME");
  if (cache.empty() && value("HOME").empty()) return {};
  return (cache.empty() ? std::filesystem::path(value("HOME")) / ".cache" : std::filesystem::path(cache)) /
         "rlalgo/kernels.json";
}

// What a verdict holds for.
std::string pair_of(at::Device device) {
  const auto driver = tensor::find_cuda_driver();
  const auto index = static_cast<std::size_t>(std::max<int>(0, device.index()));
  std::string out = device.str();
  if (driver && index < driver->gpus.size()) {
    const tensor::CudaDriver::Gpu& gpu = driver->gpus[index];
    out = gpu.name + ", " + std::to_string(gpu.major) + "." + std::to_string(gpu.minor) + ", driver for CUDA " +
          tensor::cuda_version_text(driver->version);
  }
  return out + ", LibTorch " + tensor::torch_build().version + ", rlalgo " + std::string(rlalgo::version) + " " +
         os::file_digest("/proc/self/exe");
}

// Of the process that is started, and of this one again afterwards.
class WithVariable {
 public:
  explicit WithVariable(const char* value) {
    if (const char* const before = std::getenv(variable)) before_ = before;
    ::setenv(variable, value, 1);
  }
  WithVariable(const WithVariable&) = delete;
  WithVariable& operator=(const WithVariable&) = delete;
  ~WithVariable() {
    if (before_)
      ::setenv(variable, before_->c_str(), 1);
    else
      ::unsetenv(variable);
  }

 private:
  std::optional<std::string> before_;
};

}  // namespace

remote::TriedKernels try_kernels_on(at::Device device,
                                    const std::function<void(std::string_view, bool, std::string_view)>& said) {
  const std::vector<std::string> command = {std::filesystem::read_symlink("/proc/self/exe").string(), "kernels",
                                            "--device", device.str(), "--answer"};
  const WithVariable all("all");
  const remote::TriedKernels tried = remote::try_kernels(command, names_there(), {}, said);
  if (const auto file = record(); !file.empty()) try {
      remote::remember_kernels(file, pair_of(device), tried);
    } catch (const core::Error& error) {
      warning("what was found of the kernels is not kept, and they are tried again at the next start: " +
              std::string(error.what()));
    }
  return tried;
}

void use_tried_kernels(at::Device device, bool speaks) {
  if (!device.is_cuda() || std::getenv(variable) != nullptr) return;
  const auto say = [&](void (*how)(const std::string&), const std::string& text) {
    if (speaks) how(text);
  };
  std::optional<remote::TriedKernels> tried = remote::recall_kernels(record(), pair_of(device));
  if (!tried) {
    say(note, "trying the program's own kernels beside LibTorch's operators on " + device.str() +
                  ", once for this card, driver and program (" + variable + "=none leaves them out)");
    tried = try_kernels_on(device, [&](std::string_view name, bool agrees, std::string_view found) {
      if (!agrees) say(warning, std::string(name) + " is not used: " + std::string(found));
    });
  }
  std::string list;
  for (const std::string& name : tried->used) list += (list.empty() ? "" : ",") + name;
  ::setenv(variable, list.empty() ? "none" : list.c_str(), 1);
  say(note, list.empty()
                ? std::string("LibTorch's operators compute, and no kernel of the program's own (`rlalgo kernels`)")
                : std::to_string(tried->used.size()) + " of " + std::to_string(names_there().size()) +
                      " kernels of the program's own are used: they agree with LibTorch's operators on this "
                      "card (`rlalgo kernels`)");
}

}  // namespace rlalgo::cli
