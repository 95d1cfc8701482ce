#include <support/catch.hpp>

#include <rlalgo/config/offline.hpp>

using namespace rlalgo::config;

TEST_CASE("batch, order and length of a preference run") {
  RunConfig c;
  c.rl = "dpo";
  c.beta = 0.1;
  c.learning_rate = 1e-4;
  c.micro_batch_size = 2;
  c.gradient_accumulation_steps = 3;
  c.eval_batch_size = 5;
  c.num_epochs = 2;
  const auto settings = offline_config(c, 13, true);
  CHECK(settings.sampling.micro_batch_size == 2);
  CHECK(settings.sampling.gradient_accumulation_steps == 3);
  CHECK(settings.sampling.shuffle);
  CHECK(settings.evaluation_batch_size == 5);
  CHECK(settings.trainer.loop.max_steps == 5);  // ⌈26/6⌉
  CHECK(settings.trainer.loop.eval.unit == rlalgo::run::Cadence::Unit::epochs);
  c.rl = "kto";
  CHECK_FALSE(offline_config(c, 13, false).sampling.shuffle);
  c.preference.loss_type = "apo_zero_unpaired";
  CHECK_FALSE(offline_config(c, 13, false).sampling.shuffle);
}
