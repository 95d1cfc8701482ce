// The version of the library; equal to project(VERSION) in CMakeLists.txt, which a test compares.
//
//   #if RLALGO_VERSION >= 200      from 0.2.0 on: major · 10000 + minor · 100 + patch
//
// While the major version is 0, a new minor version may change interfaces (CHANGELOG.md says which) and a new patch
// version does not.
#pragma once

#include <string_view>

#define RLALGO_VERSION_MAJOR 0
#define RLALGO_VERSION_MINOR 1
#define RLALGO_VERSION_PATCH 0
#define RLALGO_VERSION (RLALGO_VERSION_MAJOR * 10000 + RLALGO_VERSION_MINOR * 100 + RLALGO_VERSION_PATCH)

namespace rlalgo {

inline constexpr std::string_view version = "0.1.0";

}  // namespace rlalgo
