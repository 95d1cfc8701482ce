#include <support/catch.hpp>

#include <string>

#include <ATen/ATen.h>

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
  CHECK(adamw_of(c).beta2 == 0.95);
  CHECK(adamw_of(c).weight_decay == 0.1);
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

TEST_CASE("a name of an optimizer says which one a trainer has") {
  using rlalgo::model::Parameter;
  RunConfig c;
  const Plan plan = make_plan(c, 20, false);
  const auto moments = [&](const std::string& name) {
    c.optimizer = name;
    const auto t = trainer_settings(c, plan, 7, "dpo");
    const bool eight = t.loop.settings.contains("moments of the optimizer");
    const rlalgo::optim::AnyOptimizer made({Parameter{"w", at::zeros({4096}).requires_grad_(), true}}, t.optimizer);
    CHECK((made.state()[0].second.scalar_type() == at::kByte) == eight);
    return eight;
  };
  for (const char* name : {"adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit"}) CHECK(moments(name));
  for (const char* name : {"adamw_torch_fused", "adamw_torch", "adamw_torch_8bit", "ao_adamw_8bit", "paged_adamw"})
    CHECK_FALSE(moments(name));
}
