// The definitions of reward/, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/reward/detail/function_impl.hpp>
#include <rlalgo/reward/detail/gsm8k_impl.hpp>
#include <rlalgo/reward/detail/registry_impl.hpp>
