// The file of fake_cuda_driver.cpp.
#pragma once

namespace rlalgo::support {

extern const char* const fake_cuda_driver;

}  // namespace rlalgo::support
