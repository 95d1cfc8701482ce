// The definitions of distributed/, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/distributed/detail/expert_group_impl.hpp>
#include <rlalgo/distributed/detail/flat_unit_impl.hpp>
#include <rlalgo/distributed/detail/gradient_sums_impl.hpp>
#include <rlalgo/distributed/detail/nccl_group_impl.hpp>
#include <rlalgo/distributed/detail/nccl_library_impl.hpp>
#include <rlalgo/distributed/detail/pass_rounds_impl.hpp>
#include <rlalgo/distributed/detail/pickle_impl.hpp>
#include <rlalgo/distributed/detail/process_group_impl.hpp>
#include <rlalgo/distributed/detail/process_world_impl.hpp>
#include <rlalgo/distributed/detail/rank_cards_impl.hpp>
#include <rlalgo/distributed/detail/sharded_weights_impl.hpp>
#include <rlalgo/distributed/detail/stateless_group_impl.hpp>
#include <rlalgo/distributed/detail/team_impl.hpp>
#include <rlalgo/distributed/detail/world_impl.hpp>
