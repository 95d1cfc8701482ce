#include <rlalgo/config/gym_turn_limits.hpp>

#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

TEST_CASE("agents of the configurations get the limit, wherever these lie") {
  const support::ScratchDirectory folder;
  folder.write("policy.yaml", "policy_model:\n  responses_api_models:\n    vllm_model: {entrypoint: app.py}\n");
  folder.write("own.yaml",
               "config_paths: [more.yaml]\nmy_agent:\n  responses_api_agents:\n    simple_agent: {max_steps: 9}\n"
               "mine:\n  resources_servers:\n    mine: {entrypoint: app.py}\n");
  folder.write(".venv/lib/python3.13/site-packages/resources_servers/a/configs/a.yaml",
               "a_agent:\n  responses_api_agents:\n    gymnasium_agent:\n      entrypoint: app.py\n");
  const std::vector<std::string> paths = {"policy.yaml", "own.yaml", "resources_servers/a/configs/a.yaml",
                                          "nowhere.yaml"};
  CHECK(config::gym_turn_limits(folder.path(), paths, 3) ==
        std::vector<std::string>{"+my_agent.responses_api_agents.simple_agent.max_steps=3",
                                 "+a_agent.responses_api_agents.gymnasium_agent.max_steps=3"});
  CHECK(config::gym_turn_limits(folder.path() / "nowhere", {(folder.path() / "own.yaml").string()}, 2) ==
        std::vector<std::string>{"+my_agent.responses_api_agents.simple_agent.max_steps=2"});
  CHECK(config::gym_turn_limits(folder.path(), {"policy.yaml"}, 3).empty());
}
