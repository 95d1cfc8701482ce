// The definitions of tensor/, optim/ and trainer/, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/optim/detail/adafactor_impl.hpp>
#include <rlalgo/optim/detail/adamw_8bit_impl.hpp>
#include <rlalgo/optim/detail/adamw_impl.hpp>
#include <rlalgo/tensor/detail/blockwise_8bit_impl.hpp>
#include <rlalgo/optim/detail/lion_impl.hpp>
#include <rlalgo/optim/detail/muon_impl.hpp>
#include <rlalgo/optim/detail/schedule_impl.hpp>
#include <rlalgo/tensor/detail/attention_impl.hpp>
#include <rlalgo/tensor/detail/bfloat16_head_impl.hpp>
#include <rlalgo/tensor/detail/log_prob_head_impl.hpp>
#include <rlalgo/tensor/detail/large_pages_impl.hpp>
#include <rlalgo/tensor/detail/on_threads_impl.hpp>
#include <rlalgo/tensor/detail/products_impl.hpp>
#include <rlalgo/tensor/detail/threads_impl.hpp>
#include <rlalgo/trainer/detail/placement_impl.hpp>
#include <rlalgo/trainer/detail/led_run_impl.hpp>
#include <rlalgo/trainer/detail/sharded_placement_impl.hpp>
