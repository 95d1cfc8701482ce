#include <support/catch.hpp>

#include <rlalgo/config/trainer_settings.hpp>

using namespace rlalgo::config;

TEST_CASE("what every trainer is told") {
  RunConfig c;
  c.rl = "dpo";
  c.base_model = "models/tiny";
  c.learning_rate = 2e-5;
  c.adam_beta2 = 0.95;
  c.weight_decay = 0.1;
  c.max_grad_norm = 0.5;
  c.save_steps = 4;
  c.use_tensorboard = false;
  c.resume_from_checkpoint = "out/checkpoint-4";
  const Plan plan = make_plan(c, 20, false);
  const auto t = trainer_settings(c, plan, 7, "dpo");
  CHECK(t.optimizer.beta2 == 0.95);
  CHECK(t.optimizer.weight_decay == 0.1);
  CHECK(t.max_grad_norm == 0.5);
  CHECK(t.schedule.learning_rate == 2e-5);
  CHECK(t.loop.title == "dpo on tiny");
  CHECK(t.loop.max_steps == 20);
  CHECK(t.loop.save.every == 4);
  CHECK_FALSE(t.loop.tensorboard);
  CHECK(t.loop.identity["rows"] == 7);
  CHECK(t.loop.resume_from_checkpoint == "out/checkpoint-4");
  CHECK_FALSE(t.loop.resume_verified);
  CHECK(t.loop.resume_rules.free.contains("save_steps"));
  CHECK_FALSE(t.loop.resume_rules.force);
  c.settings = {{"beta", 0.1}};
  c.force_resume = true;
  CHECK(trainer_settings(c, plan, 7, "dpo").loop.settings == c.settings);
  CHECK(trainer_settings(c, plan, 7, "dpo").loop.resume_rules.force);
}
