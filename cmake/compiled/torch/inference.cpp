// The definitions of inference/, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/inference/detail/block_engine_impl.hpp>
#include <rlalgo/inference/detail/decoder_engine_impl.hpp>
#include <rlalgo/inference/detail/engine_device_for_impl.hpp>
#include <rlalgo/inference/detail/kv_cache_impl.hpp>
#include <rlalgo/inference/detail/page_memory_impl.hpp>
#include <rlalgo/inference/detail/prefix_cache_impl.hpp>
#include <rlalgo/inference/detail/sampling_impl.hpp>
#include <rlalgo/inference/detail/scheduler_impl.hpp>
#include <rlalgo/inference/detail/scheduler_passes.hpp>
#include <rlalgo/inference/detail/stop_strings_impl.hpp>
#include <rlalgo/inference/detail/text_streams_impl.hpp>
#include <rlalgo/inference/detail/weight_snapshots_impl.hpp>
