// The definitions of distributed/, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/distributed/detail/process_group_impl.hpp>
#include <rlalgo/distributed/detail/process_world_impl.hpp>
#include <rlalgo/distributed/detail/world_impl.hpp>
