// The definitions of serve/, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/serve/detail/broadcasts_impl.hpp>
#include <rlalgo/serve/detail/engine_failures.hpp>
#include <rlalgo/serve/detail/engine_impl.hpp>
#include <rlalgo/serve/detail/fields_impl.hpp>
#include <rlalgo/serve/detail/metrics_text_impl.hpp>
#include <rlalgo/serve/detail/pattern_impl.hpp>
#include <rlalgo/serve/detail/pattern_reader_impl.hpp>
#include <rlalgo/serve/detail/prompts_impl.hpp>
#include <rlalgo/serve/detail/sampling_fields_impl.hpp>
#include <rlalgo/serve/detail/scalar_patterns_impl.hpp>
#include <rlalgo/serve/detail/schema_pattern_impl.hpp>
#include <rlalgo/serve/detail/schema_reader_impl.hpp>
#include <rlalgo/serve/detail/server_impl.hpp>
#include <rlalgo/serve/detail/weight_store_impl.hpp>
#include <rlalgo/serve/detail/wire_tensor_impl.hpp>
