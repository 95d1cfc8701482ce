// The precompiled header of tests, CLI, lessons and benchmarks. Catch comes after torch: both define CHECK.
#pragma once
#include <torch/types.h>

#include <nlohmann/json.hpp>

#if __has_include(<support/catch.hpp>)
#include <support/catch.hpp>
#endif
