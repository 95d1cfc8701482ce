// The `nemo_gym_…` keys: rewards, and episodes, of a NeMo Gym that runs or is started.
//
//   nemo_gym_enabled      the others are read only then       nemo_gym_datasets     [{path, server_name, max_samples}, …]
//   nemo_gym_dir          where the Gym is; paths are below it  nemo_gym_auto_start   start it unless it runs
//   nemo_gym_config_paths what it is started with             nemo_gym_head_port    its head server, also of a started one
//   nemo_gym_server_timeout   seconds until it is up          nemo_gym_verify_timeout   seconds for a completion's judgement
//   nemo_gym_model_name   what responses call the model         nemo_gym_multi_turn   agents play episodes
//   nemo_gym_run_timeout  seconds for one of them              nemo_gym_max_turns    messages of the model in one of them
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <rlalgo/config/node.hpp>

namespace rlalgo::config {

struct NemoGymDataset {
  std::string path;
  std::optional<std::string> server_name;
  std::optional<std::int64_t> max_samples;
  Place place = {};
};

struct NemoGymConfig {
  bool enabled = false;
  std::string dir = "~/Gym";
  std::vector<std::string> config_paths;
  std::int64_t head_port = 11000;
  double server_timeout = 600.0;
  double verify_timeout = 30.0;
  std::vector<NemoGymDataset> datasets;
  bool auto_start = true;
  std::optional<std::string> model_name;  // base_model unless set
  bool multi_turn = false;                // agents play episodes, which ask the generation server
  double run_timeout = 300.0;             // seconds for one of them
  std::optional<std::int64_t> max_turns;  // calls of the model in one of them, of a Gym that is started
};

}  // namespace rlalgo::config
