// The table of cuda/kernels.hpp with kernels that run on the host: a test program with this object has cuda::compiled().
#include "on_host.hpp"

#include "../../cmake/compiled/cuda/kernels.cu"
