// The definitions of cpu/, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/cpu/detail/best_kernels_impl.hpp>
#include <rlalgo/cpu/detail/features_impl.hpp>
