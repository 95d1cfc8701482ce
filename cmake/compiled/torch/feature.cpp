// The definitions of feature/, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/feature/detail/block_matching_impl.hpp>
#include <rlalgo/feature/detail/text_matching_impl.hpp>
#include <rlalgo/feature/detail/whitening_impl.hpp>
