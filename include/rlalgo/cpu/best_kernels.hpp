// The kernel table for this CPU, chosen at the first use: the fastest that it can run, or the one that RLALGO_CPU names.
//
// Errors: [rlalgo.cpu.1] where RLALGO_CPU names none of them.
#pragma once

#include <string_view>
#include <vector>

#include <rlalgo/cpu/kernels.hpp>

namespace rlalgo::cpu {

// What this CPU can run, the fastest first.
[[nodiscard]] std::vector<const Kernels*> usable_kernels();

// The usable table of this name; the fastest for an empty one.
[[nodiscard]] const Kernels& kernels_named(std::string_view name);

// The table that RLALGO_CPU names, else the fastest; chosen at the first use.
[[nodiscard]] const Kernels& best_kernels();

}  // namespace rlalgo::cpu

#ifndef RLALGO_COMPILED
#include <rlalgo/cpu/detail/best_kernels_impl.hpp>
#endif
