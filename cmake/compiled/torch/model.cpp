// The definitions of model/ but for files, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/model/detail/adapted_maps_impl.hpp>
#include <rlalgo/model/detail/aten_operations_impl.hpp>
#include <rlalgo/model/detail/attention_impl.hpp>
#include <rlalgo/model/detail/attention_plan_impl.hpp>
#include <rlalgo/model/detail/checkpoint_store_impl.hpp>
#include <rlalgo/model/detail/context_sharing_impl.hpp>
#include <rlalgo/model/detail/context_split_impl.hpp>
#include <rlalgo/model/detail/cpu_operations_impl.hpp>
#include <rlalgo/model/detail/cuda_operations_impl.hpp>
#include <rlalgo/model/detail/decoder_impl.hpp>
#include <rlalgo/model/detail/decoder_pass_impl.hpp>
#include <rlalgo/model/detail/gated_delta_impl.hpp>
#include <rlalgo/model/detail/lora_impl.hpp>
#include <rlalgo/model/detail/quantised_weight_impl.hpp>
#include <rlalgo/model/detail/ring_attention_impl.hpp>
#include <rlalgo/model/detail/sequence_classifier_impl.hpp>
#include <rlalgo/model/detail/tree_builder_impl.hpp>
