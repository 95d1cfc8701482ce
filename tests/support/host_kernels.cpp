// The table of cuda/kernels.hpp with kernels that run on the host: a test program with this object has cuda::compiled().
#include "host_kernels.hpp"

#include "on_host.hpp"

#include "../../cmake/compiled/cuda/kernels.cu"

std::int64_t rlalgo::support::host_launches() { return on_host::launches; }
