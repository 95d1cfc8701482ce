// The definitions of model/'s files, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/model/detail/safetensors_impl.hpp>
#include <rlalgo/model/detail/checkpoint_names_impl.hpp>
#include <rlalgo/model/detail/joined_experts_impl.hpp>
#include <rlalgo/model/detail/checkpoint_files_impl.hpp>
#include <rlalgo/model/detail/hf_config_impl.hpp>
#include <rlalgo/model/detail/adapter_files_impl.hpp>
#include <rlalgo/model/detail/merge_adapter_impl.hpp>
#include <rlalgo/model/detail/load_impl.hpp>
#include <rlalgo/model/detail/quantised_files_impl.hpp>
#include <rlalgo/model/detail/save_impl.hpp>
#include <rlalgo/model/detail/lora_config_impl.hpp>
