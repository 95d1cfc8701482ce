// Rows of a block of attention scores with sixteen lanes (lanes.hpp): the running softmax of a query and its gradient, which lie between two
// products of tensor/attention.hpp. detail/attention_rows_body.hpp has the functions, in lanes::rows.
#pragma once

#include <rlalgo/cpu/lanes.hpp>

#if defined(__x86_64__)

#define RLALGO_CPU_SET lanes
RLALGO_CPU_BEGIN("avx2,fma,avx512f,avx512bw,avx512vl")
#include <rlalgo/cpu/detail/attention_rows_body.hpp>
RLALGO_CPU_END
#undef RLALGO_CPU_SET

#endif
