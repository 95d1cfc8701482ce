#include <string>
#include <vector>

#include <support/scratch.hpp>

#include <rlalgo/config/gym_keys.hpp>
#include <rlalgo/config/parse.hpp>

using namespace rlalgo::config;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

const std::string minimal =
    "base_model: ./m\n"
    "learning_rate: 1e-6\n"
    "micro_batch_size: 8\n"
    "nemo_gym_enabled: true\n"
    "nemo_gym_auto_start: false\n"
    "nemo_gym_datasets: [{path: rows.jsonl}]\n"
    "rl: grpo\n";

RunConfig parse(const std::string& yaml) { return parse_run_config(parse_document(yaml, "c.yaml")); }
std::string error_of(const std::string& yaml) {
  return raised_by([&] { (void)parse(yaml); });
}
std::string without(const std::string& line) {
  std::string out = minimal;
  const std::size_t at = out.find(line);
  return out.erase(at, out.find('\n', at) - at + 1);
}

}  // namespace

TEST_CASE("a Gym needs neither datasets nor reward functions; its reward is added") {
  const RunConfig config = parse(minimal);
  CHECK(config.warnings.empty());
  CHECK(config.nemo_gym.enabled);
  CHECK(config.nemo_gym.head_port == 11000);
  CHECK(config.nemo_gym.verify_timeout == 30);
  REQUIRE(config.nemo_gym.datasets.size() == 1);
  CHECK_FALSE(config.nemo_gym.datasets[0].server_name);
  CHECK(config.trl.reward_funcs == std::vector<std::string>{"nemo_gym"});
  const RunConfig more =
      parse(minimal + "nemo_gym_model_name: m\nnemo_gym_head_port: 12\n" +
            "trl: {reward_funcs: [mine.f, axolotl.integrations.nemo_gym.rewards.reward_nemo_gym_verify, "
            "nemo_gym], reward_weights: [1, 2, 3]}\n");
  CHECK(more.trl.reward_funcs == std::vector<std::string>{"mine.f", "nemo_gym"});
  CHECK(more.trl.reward_weights == std::vector<double>{1, 2});
  CHECK(more.nemo_gym.model_name == "m");
  const RunConfig own = parse(minimal + "trl: {reward_funcs: [mine.f], reward_weights: [0.5]}\n");
  CHECK(own.trl.reward_funcs == std::vector<std::string>{"mine.f", "nemo_gym"});
  CHECK(own.trl.reward_weights == std::vector<double>{0.5, 1});
  const RunConfig parts = parse(minimal + "trl: {reward_funcs: [nemo_gym.correct, nemo_gym.brief]}\n");
  CHECK(parts.trl.reward_funcs == std::vector<std::string>{"nemo_gym.correct", "nemo_gym.brief"});
  CHECK(names_gym_reward("nemo_gym.correct"));
  CHECK_FALSE(names_gym_reward("nemo_gymnasium.f"));
}

TEST_CASE("keys of a Gym that is off have no effect, and those that mean nothing here are named") {
  const RunConfig off = parse(
      "base_model: ./m\nlearning_rate: 1e-6\nmicro_batch_size: 8\nrl: grpo\ndatasets: [{path: r}]\n"
      "nemo_gym_head_port: 12\ntrl: {reward_funcs: [mine.f]}\n");
  REQUIRE(off.warnings.size() == 1);
  CHECK(lacks(off.warnings[0], {"nemo_gym_head_port", "nemo_gym_enabled is not true"}) == "");
  const RunConfig named = parse(
      minimal + "nemo_gym_auto_clone: true\nnemo_gym_max_turns: 3\nnemo_gym_run_timeout: 9\ndatasets: [{path: r}]\n");
  REQUIRE(named.warnings.size() == 4);
  CHECK(lacks(named.warnings[0], {"nemo_gym_auto_clone", "nothing is downloaded"}) == "");
  CHECK(lacks(named.warnings[3], {"datasets", "nemo_gym_datasets"}) == "");
}

TEST_CASE("what a Gym cannot do without, or with, is an error with its place") {
  CHECK(lacks(error_of(without("nemo_gym_datasets")), {"config.7: ", "nemo_gym_datasets", "c.yaml:4"}) == "");
  CHECK(lacks(error_of(without("nemo_gym_auto_start")), {"config.7: ", "nemo_gym_config_paths"}) == "");
  CHECK(lacks(error_of(minimal + "nemo_gym_head_port: 70000\n"), {"config.6: ", "1 to 65535"}) == "");
  CHECK(lacks(error_of(minimal + "nemo_gym_verify_timeout: 0\n"), {"config.6: ", "nemo_gym_verify_timeout"}) == "");
  CHECK(lacks(error_of(minimal + "nemo_gym_multi_turn: true\ntrl: {rollout_func: a.b}\n"),
              {"config.8: ", "nemo_gym_multi_turn", "trl.rollout_func"}) == "");
  CHECK(parse(minimal + "nemo_gym_multi_turn: true\nnemo_gym_run_timeout: 9\ntrl: {use_vllm: true}\n")
            .nemo_gym.run_timeout == 9);
  CHECK(parse(minimal + "nemo_gym_multi_turn: true\nnemo_gym_max_turns: 3\n").nemo_gym.max_turns == 3);
  CHECK(lacks(error_of(minimal + "nemo_gym_multi_turn: true\nnemo_gym_max_turns: 0\n"),
              {"config.6: ", "nemo_gym_max_turns", "1 or more"}) == "");
  CHECK(lacks(error_of(minimal + "trl: {tools: [calculator]}\n"), {"config.8: ", "trl.tools"}) == "");
  CHECK(lacks(error_of(without("nemo_gym_datasets") + "nemo_gym_datasets: [{server_name: x}]\n"),
              {"config.7: ", "nemo_gym_datasets[0] names no file"}) == "");
  CHECK(lacks(error_of(without("nemo_gym_datasets") + "nemo_gym_datasets: [{path: x, max_samples: 0}]\n"),
              {"config.6: ", "max_samples"}) == "");
  CHECK(lacks(error_of(without("nemo_gym_datasets") + "nemo_gym_datasets: rows.jsonl\n"),
              {"nemo_gym_datasets", "a list"}) == "");
  CHECK(lacks(error_of(without("rl") + "rl: dpo\ndatasets: [{path: r}]\n"),
              {"config.8: ", "nemo_gym_enabled", "dpo"}) == "");
}

TEST_CASE("agents ask this process, unless a server is named") {
  const std::string agents = minimal + "nemo_gym_multi_turn: yes\n";
  const RunConfig here = parse(agents);
  CHECK(here.warnings.empty());
  CHECK(here.trl.serves());
  CHECK_FALSE(here.trl.generates_elsewhere());
  CHECK(here.trl.vllm_server_host == "127.0.0.1");
  CHECK(here.trl.vllm_server_port == 0);
  CHECK(here.trl.may_correct());
  CHECK(here.trl.vllm_importance_sampling_mode ==
        parse(agents + "trl: {use_vllm: true}\n").trl.vllm_importance_sampling_mode);
  const RunConfig there = parse(
      agents + "trl: {use_vllm: true, vllm_mode: colocate, vllm_server_port: 8123, vllm_server_host: 127.0.0.2}\n");
  CHECK(there.warnings.empty());
  CHECK(there.trl.serves());
  CHECK(there.trl.vllm_server_port == 8123);
  CHECK(there.trl.vllm_server_host == "127.0.0.2");
  CHECK_FALSE(parse(agents + "trl: {use_vllm: true}\n").trl.serves());
  CHECK_FALSE(parse(minimal).trl.serves());
  CHECK(lacks(error_of(agents + "trl: {vllm_server_port: 70000}\n"), {"config.6: ", "vllm_server_port", "free"}) == "");
  const RunConfig idle = parse(agents + "trl: {vllm_server_timeout: 5}\n");
  REQUIRE(idle.warnings.size() == 1);
  CHECK(lacks(idle.warnings[0], {"vllm_server_timeout", "agents ask this process"}) == "");
}
