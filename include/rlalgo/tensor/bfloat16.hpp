// What the processor has for products of bfloat16.
#pragma once

namespace rlalgo::tensor {

// Whether bfloat16 is faster than float32 here: the CPU multiplies bfloat16, and RLALGO_CPU, where it is set, names a set of
// kernels that does (`avx512_bf16`, `amx_bf16`).
[[nodiscard]] bool multiplies_bfloat16();

// Whether the CPU has AMX for bfloat16 (CPUID leaf 7, EDX bits 22 and 24), which multiplies it several times as fast, and Linux lets
// this process use it, which the first call asks for.
[[nodiscard]] bool has_amx();

}  // namespace rlalgo::tensor

#ifndef RLALGO_COMPILED
#include <rlalgo/tensor/detail/bfloat16_impl.hpp>
#endif
