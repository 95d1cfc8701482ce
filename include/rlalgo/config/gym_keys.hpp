// The `nemo_gym_…` keys: rewards, and episodes, of a NeMo Gym that runs or is started.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <rlalgo/config/key.hpp>
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

// clang-format off
[[nodiscard]] inline Keys gym_keys(NemoGymConfig& g) {
  const Gate on = where([&g] { return g.enabled; }, "nemo_gym_enabled is not true");
  const Gate played = where([&g] { return g.enabled && g.multi_turn; }, "nemo_gym_multi_turn is not true");
  return {
    key("nemo_gym_enabled", g.enabled, "the keys below are read only when it is true; `datasets` and `trl.reward_funcs` may then be "
        "missing"),
    key("nemo_gym_dir", g.dir, "where the Gym is; relative dataset paths are below it").when(on).free(resume::place),
    key("nemo_gym_config_paths", g.config_paths, "what the Gym is started with").when(on).a_path(),
    key("nemo_gym_head_port", g.head_port, "of the head server at 127.0.0.1, also of one that is started").within(port).when(on)
        .free(resume::place),
    key("nemo_gym_server_timeout", g.server_timeout, "until the Gym and the servers that the rows need answer").within(seconds).when(on)
        .free(resume::wait),
    key("nemo_gym_verify_timeout", g.verify_timeout, "for the calls of one completion").within(seconds).when(on).free(resume::wait),
    key("nemo_gym_auto_start", g.auto_start, "starts `.venv/bin/ng_run` with these configurations unless a Gym answers; stops only what "
        "it started").when(on).free(resume::place),
    key("nemo_gym_model_name", g.model_name, "the model's name in responses").shows("`base_model`").when(on),
    key("nemo_gym_multi_turn", g.multi_turn, "agents play episodes that ask this process (at `trl.vllm_server_host`, "
        "`trl.vllm_server_port`), or the server of `trl.use_vllm`").when(on),
    key("nemo_gym_auto_clone", "").without_effect("nothing is downloaded; install the Gym into .venv of nemo_gym_dir"),
    key("nemo_gym_run_timeout", g.run_timeout, "for one episode").within(seconds).when(played).free(resume::wait),
    key("nemo_gym_max_turns", g.max_turns, "the agents' `max_steps`, messages of the model in an episode, of a Gym that is started")
        .within(count(1)).when(played),
  };
}
// clang-format on

}  // namespace rlalgo::config
