// Of the kernels in host_kernels.cpp.
#pragma once

#include <cstdint>

namespace rlalgo::support {

// Launches so far, of all of them; one thread at a time.
[[nodiscard]] std::int64_t host_launches();

}  // namespace rlalgo::support
