#include "fake_cuda_driver.hpp"

namespace rlalgo::support {

const char* const fake_cuda_driver = RLALGO_FAKE_CUDA_DRIVER;

}  // namespace rlalgo::support
