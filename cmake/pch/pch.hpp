// The precompiled header of tests, CLI, lessons and benchmarks. Catch comes after ATen: both define CHECK.
// torch/types.h would cost every file 1 s more: GCC instantiates a precompiled header's pending templates in each of its
// users.
#pragma once
#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#if __has_include(<support/catch.hpp>)
#include <support/catch.hpp>
#endif
