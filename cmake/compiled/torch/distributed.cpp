// The definitions of distributed/, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/distributed/detail/process_group_impl.hpp>
