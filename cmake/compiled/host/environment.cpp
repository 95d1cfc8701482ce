// The definitions of environment/, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/environment/detail/calculator_impl.hpp>
#include <rlalgo/environment/detail/several_impl.hpp>
#include <rlalgo/environment/detail/tool_calls_impl.hpp>
#include <rlalgo/environment/detail/tools_impl.hpp>
