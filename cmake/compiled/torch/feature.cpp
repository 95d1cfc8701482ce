// The definitions of feature/, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/feature/detail/whitening_impl.hpp>
