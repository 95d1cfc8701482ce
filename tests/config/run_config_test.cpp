#include <support/catch.hpp>

#include <rlalgo/config/run_config.hpp>

using namespace rlalgo::config;

TEST_CASE("defaults are axolotl's, and TRL's in the trl section") {
  const RunConfig config;
  CHECK(config.micro_batch_size == 1);
  CHECK(config.num_epochs == 1.0);
  CHECK(config.optimizer == "adamw_torch_fused");
  CHECK(config.lr_scheduler == "cosine");
  CHECK(config.weight_decay == 0.0);
  CHECK(config.adam_beta1 == 0.9);
  CHECK(config.adam_beta2 == 0.999);
  CHECK(config.adam_epsilon == 1e-8);
  CHECK(config.max_grad_norm == 1.0);
  CHECK(config.save_total_limit == 4);
  CHECK(config.output_dir == "./model-out");
  CHECK(config.seed == 42);
  CHECK(config.shuffle_merged_datasets);
  CHECK(config.beta == 0.0);
  CHECK(config.trl.num_generations == 8);
  CHECK(config.trl.loss_type == "dapo");
  CHECK(config.trl.epsilon == 0.2);
  CHECK_FALSE(config.trl.epsilon_high.has_value());
  CHECK(config.trl.max_completion_length == 512);
  CHECK(config.trl.temperature == 1.0);
  CHECK(config.trl.scale_rewards == "group");
  CHECK(config.trl.reward_timeout == 60.0);
}

TEST_CASE("given keys know their place, others say that they have their default") {
  RunConfig config;
  config.given["trl.beta"] = {.file = "c.yaml", .line = 3, .column = 1};
  CHECK(config.was_set("trl.beta"));
  CHECK(config.place("trl.beta") == "c.yaml:3");
  CHECK_FALSE(config.was_set("seed"));
  CHECK(config.place("seed") == "seed (default)");
}
