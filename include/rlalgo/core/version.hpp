// The version of the library; equal to project(VERSION) in CMakeLists.txt, which a test compares.
#pragma once

#include <string_view>

namespace rlalgo {

inline constexpr std::string_view version = "0.1.0";

}  // namespace rlalgo
