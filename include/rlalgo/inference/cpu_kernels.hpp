// Which inner loops generation runs on this CPU: "amx_bf16" (bfloat16 weights times x rounded to bfloat16, with AMX), "avx512_bf16"
// (the same with AVX-512), "avx512", "avx2" or "portable", the first of them that the CPU can run. The environment variable RLALGO_CPU chooses
// another. Within one of them a completion depends on neither batch nor threads; between them log-probs differ by rounding.
//
// Errors: [rlalgo.cpu.1] where RLALGO_CPU names none of them.
#pragma once

#include <string_view>

#include <rlalgo/cpu/best_kernels.hpp>

namespace rlalgo::inference {

[[nodiscard]] inline std::string_view cpu_kernels() { return cpu::best_kernels().name; }

// Whether there are kernels for packed copies of weights in bfloat16 (EngineConfig::pack_weights).
[[nodiscard]] inline bool packs_bfloat16() { return cpu::best_kernels().blocks_bf16 != nullptr; }

}  // namespace rlalgo::inference
