// What the processor has for kernels, and which of it RLALGO_CPU lets them use. The variable names a set of kernels (kernels.hpp).
#pragma once

#include <string_view>

namespace rlalgo::cpu {

// What RLALGO_CPU names; empty where it is not set.
[[nodiscard]] std::string_view forced_kernels();

// Whether there are sixteen lanes (lanes.hpp): AVX-512 with avx512bw and avx512vl, and RLALGO_CPU, where it is set, names a set with them.
[[nodiscard]] bool has_lanes();

// Whether bfloat16 is faster than float32 here: the CPU multiplies bfloat16, and RLALGO_CPU, where it is set, names a set of
// kernels that does (`avx512_bf16`, `amx_bf16`).
[[nodiscard]] bool multiplies_bfloat16();

// Whether the CPU has AMX for bfloat16 (CPUID leaf 7, EDX bits 22 and 24), which multiplies it several times as fast, and Linux lets
// this process use it, which the first call asks for.
[[nodiscard]] bool has_amx();

}  // namespace rlalgo::cpu

#ifndef RLALGO_COMPILED
#include <rlalgo/cpu/detail/features_impl.hpp>
#endif
