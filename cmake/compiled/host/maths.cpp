// The definitions of maths/, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/maths/detail/answer_impl.hpp>
