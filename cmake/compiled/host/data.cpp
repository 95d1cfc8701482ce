// The definitions of data/, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/data/detail/answer_set_impl.hpp>
#include <rlalgo/data/detail/chat_template_format_impl.hpp>
#include <rlalgo/data/detail/dataset_files_impl.hpp>
#include <rlalgo/data/detail/delimited_rows_impl.hpp>
#include <rlalgo/data/detail/dialogue_format_impl.hpp>
#include <rlalgo/data/detail/format_string_impl.hpp>
#include <rlalgo/data/detail/hub_cache_impl.hpp>
#include <rlalgo/data/detail/id_arena_impl.hpp>
#include <rlalgo/data/detail/json_rows_impl.hpp>
#include <rlalgo/data/detail/numpy_permutation_impl.hpp>
#include <rlalgo/data/detail/preference_tokens_impl.hpp>
#include <rlalgo/data/detail/preference_transform_impl.hpp>
#include <rlalgo/data/detail/row_stream_impl.hpp>
#include <rlalgo/data/detail/split_expression_impl.hpp>
#include <rlalgo/data/detail/split_impl.hpp>
#include <rlalgo/data/detail/transform_impl.hpp>
#include <rlalgo/data/detail/user_format_impl.hpp>
