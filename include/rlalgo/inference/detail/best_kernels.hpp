// The kernel table for this CPU, chosen at the first use: the fastest that it can run, or the one that RLALGO_CPU names.
//
// Errors: inference.16 where RLALGO_CPU names none of them.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/inference/detail/amx_bf16_kernels.hpp>
#include <rlalgo/inference/detail/avx2_kernels.hpp>
#include <rlalgo/inference/detail/avx512_bf16_kernels.hpp>
#include <rlalgo/inference/detail/avx512_kernels.hpp>
#include <rlalgo/inference/detail/kernels.hpp>
#include <rlalgo/inference/detail/portable_kernels.hpp>

namespace rlalgo::inference::detail {

// What this CPU can run, the fastest first.
[[nodiscard]] inline std::vector<const Kernels*> usable_kernels() {
  std::vector<const Kernels*> all;
#if defined(__x86_64__)
  if (amx_bf16::supported()) all.push_back(&amx_bf16::kernels);
  if (avx512_bf16::supported()) all.push_back(&avx512_bf16::kernels);
  if (avx512::supported()) all.push_back(&avx512::kernels);
  if (avx2::supported()) all.push_back(&avx2::kernels);
#endif
  all.push_back(&portable::kernels);
  return all;
}

// The usable table of this name; the fastest for an empty one.
[[nodiscard]] inline const Kernels& kernels_named(std::string_view name) {
  std::string names;
  for (const Kernels* kernels : usable_kernels()) {
    if (name.empty() || kernels->name == name) return *kernels;
    names += (names.empty() ? "" : ", ") + std::string(kernels->name);
  }
  core::raise("inference", 16,
              {.what = "this CPU has no such kernels",
               .found = std::string("'").append(name).append("'"),
               .expected = "one of " + names,
               .where = "the environment variable RLALGO_CPU",
               .remedy = "unset it, and the fastest are taken"});
}

[[nodiscard]] inline const Kernels& best_kernels() {
  static const Kernels& chosen = [&]() -> const Kernels& {
    const char* const name = std::getenv("RLALGO_CPU");
    return kernels_named(name == nullptr ? "" : name);
  }();
  return chosen;
}

}  // namespace rlalgo::inference::detail
