// The definitions of tensor/'s devices, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/tensor/detail/cuda_kernels_impl.hpp>
#include <rlalgo/tensor/detail/cuda_library_impl.hpp>
#include <rlalgo/tensor/detail/device_impl.hpp>
#include <rlalgo/tensor/detail/memory_peaks_impl.hpp>
