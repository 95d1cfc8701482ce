// Definitions of features.hpp.
#pragma once

#include <cstdlib>
#include <string_view>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/cpu/features.hpp>

namespace rlalgo::cpu {

RLALGO_INLINE std::string_view forced_kernels() {
  const char* const set = std::getenv("RLALGO_CPU");
  return set == nullptr ? "" : set;
}

RLALGO_INLINE bool has_lanes() {
#if defined(__x86_64__)
  static const bool found = [] {
    const std::string_view name = forced_kernels();
    return name != "portable" && name != "avx2" && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
  }();
  return found;
#else
  return false;
#endif
}

RLALGO_INLINE bool multiplies_bfloat16() {
#if defined(__x86_64__)
  static const bool yes = [] {
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bf16")) return false;
    const std::string_view name = forced_kernels();
    return name.empty() || name == "avx512_bf16" || name == "amx_bf16";
  }();
  return yes;
#else
  return false;
#endif
}

RLALGO_INLINE bool has_amx() {
#if defined(__x86_64__) && defined(__linux__)
  static const bool yes = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned amx = 1U << 22U | 1U << 24U;
    constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & amx) == amx &&
           ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  }();
  return yes;
#else
  return false;
#endif
}

}  // namespace rlalgo::cpu
