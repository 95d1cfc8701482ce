#include <support/catch.hpp>

#include <rlalgo/config/nemo_gym.hpp>
#include <rlalgo/config/parse.hpp>

using namespace rlalgo;

TEST_CASE("what a file says of its Gym arrives there") {
  const config::RunConfig run = config::parse_run_config(config::parse_document(
      "base_model: ./m\nrl: grpo\nlearning_rate: 1e-6\nval_set_size: 0.25\nnemo_gym_enabled: true\nnemo_gym_dir: "
      "/gyms/one\n"
      "nemo_gym_config_paths: [a.yaml]\nnemo_gym_head_port: 1234\nnemo_gym_datasets: [{path: rows.jsonl, max_samples: "
      "3}]\n"
      "output_dir: out\ntrl: {num_generations: 2, reward_funcs: [nemo_gym]}\nmicro_batch_size: 2\n",
      "c.yaml"));
  const assembly::GymConfig gym = config::gym_of(run);
  CHECK(gym.directory == "/gyms/one");
  CHECK(gym.held_out == 0.25);
  CHECK(gym.head_port == 1234);
  CHECK(gym.config_paths == std::vector<std::string>{"a.yaml"});
  REQUIRE(gym.datasets.size() == 1);
  CHECK(gym.datasets[0].max_samples == 3);
  CHECK(gym.datasets[0].where == "c.yaml:9");
  CHECK_FALSE(gym.agents);
  CHECK(gym.model == "./m");
  CHECK(gym.log_directory == "out");
  CHECK(gym.read_yaml("a: [1, b]").at("a").size() == 2);
}
