// The definitions of remote/ and sync/, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/remote/detail/gym_agents_impl.hpp>
#include <rlalgo/remote/detail/gym_impl.hpp>
#include <rlalgo/remote/detail/gym_process_impl.hpp>
#include <rlalgo/remote/detail/gym_rewards_impl.hpp>
#include <rlalgo/remote/detail/open_env_impl.hpp>
#include <rlalgo/remote/detail/python_environment_impl.hpp>
#include <rlalgo/remote/detail/python_transform_impl.hpp>
#include <rlalgo/remote/detail/python_worker_impl.hpp>
#include <rlalgo/remote/detail/reward_functions_impl.hpp>
#include <rlalgo/remote/detail/reward_pool_impl.hpp>
#include <rlalgo/remote/detail/rollout_function_impl.hpp>
#include <rlalgo/remote/detail/vllm_client_impl.hpp>
#include <rlalgo/sync/detail/broadcast_sync_impl.hpp>
#include <rlalgo/sync/detail/http_weight_sync_impl.hpp>
#include <rlalgo/sync/detail/lora_file_sync_impl.hpp>
#include <rlalgo/sync/detail/server_weight_sync_impl.hpp>
