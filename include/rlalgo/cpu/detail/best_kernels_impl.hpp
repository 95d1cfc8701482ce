// Definitions of best_kernels.hpp: which tables there are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/cpu/best_kernels.hpp>
#include <rlalgo/cpu/detail/amx_bf16_kernels.hpp>
#include <rlalgo/cpu/detail/avx2_kernels.hpp>
#include <rlalgo/cpu/detail/avx512_bf16_kernels.hpp>
#include <rlalgo/cpu/detail/avx512_kernels.hpp>
#include <rlalgo/cpu/detail/portable_kernels.hpp>
#include <rlalgo/cpu/features.hpp>
#include <rlalgo/cpu/kernels.hpp>

namespace rlalgo::cpu {

RLALGO_INLINE std::vector<const Kernels*> usable_kernels() {
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

RLALGO_INLINE const Kernels& kernels_named(std::string_view name) {
  std::string names;
  for (const Kernels* kernels : usable_kernels()) {
    if (name.empty() || kernels->name == name) return *kernels;
    names += (names.empty() ? "" : ", ") + std::string(kernels->name);
  }
  core::raise("cpu", 1,
              {.what = "this CPU has no such kernels",
               .found = std::string("'").append(name).append("'"),
               .expected = "one of " + names,
               .where = "the environment variable RLALGO_CPU",
               .remedy = "unset it, and the fastest are taken"});
}

RLALGO_INLINE const Kernels& best_kernels() {
  static const Kernels& chosen = kernels_named(forced_kernels());
  return chosen;
}

}  // namespace rlalgo::cpu
