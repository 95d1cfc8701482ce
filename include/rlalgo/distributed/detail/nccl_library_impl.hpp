// Definitions of nccl_library.hpp.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/nccl_library.hpp>
#include <rlalgo/distributed/process_group.hpp>

namespace rlalgo::distributed {

namespace detail {

// The first of them that can be loaded, for as long as the program runs: NCCL's threads outlive the group that loaded it.
inline void* loaded_library(const std::string& path, std::initializer_list<const char*> usual, const char* variable) {
  std::vector<std::string> names(usual.begin(), usual.end());
  if (!path.empty()) names = {path};
  std::string why;
  for (const std::string& name : names) {
    if (void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
    const char* const said = ::dlerror();
    if (why.empty()) why = said != nullptr ? said : "no reason given";
  }
  core::raise("distributed", 15,
              {.what = "a library that NCCL needs cannot be loaded",
               .found = why,
               .where = names.front(),
               .remedy = std::string("install it (PyPI: nvidia-nccl-cu13, nvidia-cuda-runtime) and name its file in ") +
                         variable});
}

template <class Table>
void find_functions(Table& table, void* library, const char* name) {
  abi::each_function(table, [&](auto& function, const char* symbol) {
    void* const found = ::dlsym(library, symbol);
    if (found == nullptr)
      core::raise("distributed", 15,
                  {.what = "a library that NCCL needs lacks a function",
                   .found = std::string(symbol) + " is not in it",
                   .where = name});
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  });
}

inline std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace detail

RLALGO_INLINE NcclPaths nccl_paths_of_environment() {
  const auto value = [](std::initializer_list<const char*> names) -> std::string {
    for (const char* name : names)
      if (const char* const set = std::getenv(name); set != nullptr && *set != '\0') return set;
    return {};
  };
  return {.nccl = value({"RLALGO_NCCL_LIBRARY", "VLLM_NCCL_SO_PATH"}), .cudart = value({"RLALGO_CUDART_LIBRARY"})};
}

RLALGO_INLINE std::shared_ptr<const NcclLibrary> NcclLibrary::load(const NcclPaths& paths) {
  const std::shared_ptr<NcclLibrary> out(new NcclLibrary);
  void* const cudart =
      detail::loaded_library(paths.cudart, {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"},
                             "RLALGO_CUDART_LIBRARY");
  detail::find_functions(out->cuda_, cudart, "libcudart");
  if (const int error = out->cuda_.device_count(&out->devices_); error != abi::success || out->devices_ < 1)
    core::raise("distributed", 17,
                {.what = "NCCL has no GPU to work with",
                 .found = error != abi::success ? out->cuda_.error_text(error) : "none visible",
                 .expected = "an NVIDIA GPU and its driver",
                 .remedy = "see nvidia-smi and CUDA_VISIBLE_DEVICES"});
  void* const nccl = detail::loaded_library(paths.nccl, {"libnccl.so.2", "libnccl.so"}, "RLALGO_NCCL_LIBRARY");
  if (auto* const version = reinterpret_cast<int (*)(int*)>(::dlsym(nccl, "ncclGetVersion")); version != nullptr)
    (void)version(&out->version_);
  if (out->version_ < abi::first_version)
    core::raise("distributed", 16,
                {.what = "NCCL is too old",
                 .found = detail::version_text(out->version_),
                 .expected = detail::version_text(abi::first_version) + " or later",
                 .remedy = "name a newer one in RLALGO_NCCL_LIBRARY"});
  detail::find_functions(out->nccl_, nccl, "libnccl");
  return out;
}

RLALGO_INLINE std::string NcclLibrary::uuid(int device) const {
  std::vector<unsigned char> properties(abi::most_property_bytes);
  if (cuda_.device_properties(properties.data(), device) != abi::success) return {};
  std::string out;
  for (std::size_t i = 0; i < abi::uuid_bytes; ++i) {
    const unsigned char byte = properties[abi::uuid_offset + i];
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    out += "0123456789abcdef"[byte >> 4U];
    out += "0123456789abcdef"[byte & 15U];
  }
  return out;
}

RLALGO_INLINE std::string nccl_trouble() {
  if (!gloo_built())
    return "this program was compiled without libgloo-dev, and so without the store that ranks meet at";
  try {
    (void)NcclLibrary::load();
    return {};
  } catch (const core::Error& error) {
    return error.what();
  }
}

}  // namespace rlalgo::distributed
