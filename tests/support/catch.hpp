// Catch2 under one name: version 2 (Debian) or 3 (Conan).
#pragma once

// ATen defines glog's CHECK when glog is absent; it goes first so that Catch2's meaning stays, whatever is included
// later.
#if __has_include(<c10/util/Logging.h>)
#include <c10/util/Logging.h>
#undef CHECK
#endif

// Assertions without an exception handler of their own at each place (Catch2 2): a tenth less to compile. An exception that
// leaves one ends the test all the same, with the line of the last assertion.
#define CATCH_CONFIG_FAST_COMPILE
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

namespace rlalgo::support {
extern const char* const test_dir;  // the folder tests/ of the sources; usable in initializers of globals
}
