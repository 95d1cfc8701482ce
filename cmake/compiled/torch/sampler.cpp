// The definitions of sampler/, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/sampler/detail/generation_state_impl.hpp>
#include <rlalgo/sampler/detail/generation_wire_impl.hpp>
#include <rlalgo/sampler/detail/growing_generation_impl.hpp>
#include <rlalgo/sampler/detail/pair_extremes_impl.hpp>
#include <rlalgo/sampler/detail/rollout_rows_impl.hpp>
#include <rlalgo/sampler/detail/score_generation_impl.hpp>
#include <rlalgo/sampler/detail/strided_blocks_impl.hpp>
#include <rlalgo/sampler/detail/strided_rows_impl.hpp>
