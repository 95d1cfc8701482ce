#include <support/scratch.hpp>

#include <fstream>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include <rlalgo/config/parse.hpp>
#include <rlalgo/config/plan.hpp>
#include <rlalgo/config/supported.hpp>
#include <rlalgo/config/validate.hpp>

using namespace rlalgo::config;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;
using Unit = Interval::Unit;

namespace {
RunConfig base() {
  RunConfig config;
  config.micro_batch_size = 8;  // one prompt of eight completions per step: rows = steps of an epoch
  return config;
}
Plan plan_of(const RunConfig& config, std::int64_t rows = 1000, bool evaluates = false) {
  return make_plan(config, geometry_of(config), rows, evaluates);
}
}  // namespace

TEST_CASE("the number of steps") {
  RunConfig config = base();
  CHECK(plan_of(config, 100).total_steps == 100);
  config.num_epochs = 2.5;
  CHECK(plan_of(config, 101).total_steps == 253);  // ⌈252.5⌉
  config.max_steps = 7;
  CHECK(plan_of(config, 100).total_steps == 7);
  config.max_steps.reset();
  config.num_epochs = 1;
  config.micro_batch_size = 4;
  config.gradient_accumulation_steps = 4;  // 16 completions of 2 prompts per step
  CHECK(plan_of(config, 101).total_steps == 50);
  config.trl.num_iterations = 2;
  CHECK(plan_of(config, 101).total_steps == 100);
}

TEST_CASE("the plan of a preference run is axolotl's") {
  RunConfig config = base();
  const auto plan = [&](std::int64_t rows) { return make_plan(config, rows, false); };
  config.num_epochs = 2;
  CHECK(plan(19).total_steps == 5);    // ⌈38/8⌉, not 2·⌈19/8⌉
  CHECK(plan(19).warmup_steps == 0);   // ⌊0.15⌋
  CHECK(plan(160).warmup_steps == 2);  // ⌊1.2⌋ = 1 becomes 2
  CHECK(plan(400).warmup_steps == 3);  // ⌊3⌋
  CHECK(plan(40000).warmup_steps == 100);
  CHECK(plan(8000).logging_steps == 10);
  config.warmup_ratio = 0.1;
  CHECK(plan(79).warmup_steps == 2);  // ⌊2⌋ of 20
  CHECK(plan(76).warmup_steps == 2);  // ⌊1.9⌋ = 1 becomes 2
  CHECK(plan(40000).warmup_steps == 1000);
  config.max_steps = 7;  // the warm-up stays that of the epochs
  CHECK(plan(400).total_steps == 7);
  CHECK(plan(400).warmup_steps == 10);
  config.warmup_ratio.reset();
  config.warmup_steps = 1;
  CHECK(plan(400).warmup_steps == 2);
}

TEST_CASE("warm-up of rollouts: given, a ratio, or three percent") {
  RunConfig config = base();
  CHECK(plan_of(config, 1000).warmup_steps == 30);
  CHECK(plan_of(config, 101).warmup_steps == 4);  // ⌈3.03⌉
  CHECK(plan_of(config, 20).warmup_steps == 1);   // ⌈0.6⌉
  config.max_steps = 70;
  CHECK(plan_of(config, 20).warmup_steps == 3);  // of the steps that are made
  config.max_steps.reset();
  config.warmup_steps = 0;
  CHECK(plan_of(config).warmup_steps == 0);
  config.warmup_steps = 1;
  CHECK(plan_of(config).warmup_steps == 2);
  config.warmup_steps.reset();
  config.warmup_ratio = 0.1;
  CHECK(plan_of(config, 1005).warmup_steps == 101);
  config.warmup_ratio = 0.0;
  CHECK(plan_of(config).warmup_steps == 0);
}

TEST_CASE("logging: given, or half a percent between 1 and 10") {
  RunConfig config = base();
  CHECK(plan_of(config, 100).logging_steps == 1);
  CHECK(plan_of(config, 1000).logging_steps == 5);
  CHECK(plan_of(config, 9999).logging_steps == 10);
  config.logging_steps = 25;
  CHECK(plan_of(config).logging_steps == 25);
}

TEST_CASE("saving: every epoch unless told otherwise") {
  RunConfig config = base();
  CHECK(plan_of(config).save == Interval{Unit::epochs, 0});
  config.save_steps = 20;
  CHECK(plan_of(config).save == Interval{Unit::steps, 20});
  config.save_steps = 0.1;
  CHECK(plan_of(config, 1001).save == Interval{Unit::steps, 101});  // ⌈100.1⌉
  config.save_steps.reset();
  config.save_strategy = "steps";
  CHECK(plan_of(config).save == Interval{Unit::steps, 500});
  config.save_strategy = "no";
  CHECK(plan_of(config).save == Interval{});
  config.save_strategy.reset();
  config.saves_per_epoch = 4;
  config.num_epochs = 2;
  CHECK(plan_of(config).save == Interval{Unit::steps, 250});  // 1/8 of 2000
  config.saves_per_epoch = 1;
  config.num_epochs = 1;
  CHECK(plan_of(config).save == Interval{Unit::epochs, 0});
}

TEST_CASE("evaluation: only with data; before the first step only when a key asks for it") {
  RunConfig config = base();
  CHECK(plan_of(config).eval == Interval{});
  CHECK(plan_of(config, 1000, true).eval == Interval{Unit::epochs, 0});
  CHECK_FALSE(plan_of(config, 1000, true).eval_first);
  config.eval_steps = 50;
  CHECK(plan_of(config).eval == Interval{});
  CHECK(plan_of(config, 1000, true).eval == Interval{Unit::steps, 50});
  CHECK(plan_of(config, 1000, true).eval_first);
  config.eval_steps.reset();
  config.eval_strategy = "steps";
  CHECK(plan_of(config, 1000, true).eval == Interval{Unit::steps, 5});  // as often as logging
  config.eval_strategy = "no";
  CHECK(plan_of(config, 1000, true).eval == Interval{});
  CHECK_FALSE(plan_of(config, 1000, true).eval_first);
  config.eval_strategy.reset();
  config.evals_per_epoch = 2;
  CHECK(plan_of(config, 1000, true).eval == Interval{Unit::steps, 500});
  CHECK(plan_of(config, 1000, true).eval_first);
}

TEST_CASE("fewer rows than one generation needs") {
  RunConfig config = base();
  config.gradient_accumulation_steps = 4;
  CHECK(lacks(raised_by([&] { (void)plan_of(config, 3); }),
              {"config.11: ", "3 rows", "at least 4 (32 completions / 8 per prompt)"}) == "");
  CHECK(plan_of(config, 4).total_steps == 1);
}

TEST_CASE("the schedule takes the cosine keys only where they act") {
  RunConfig config = base();
  config.learning_rate = 0.5;
  config.cosine_constant_lr_ratio = 0.8;
  const Plan plan = plan_of(config, 1000);
  CHECK(schedule_of(config, plan).name == "cosine");
  CHECK(schedule_of(config, plan).learning_rate == 0.5);
  CHECK(schedule_of(config, plan).warmup_steps == 30);
  CHECK(schedule_of(config, plan).total_steps == 1000);
  CHECK(schedule_of(config, plan).constant_ratio == 0.0);  // without cosine_min_lr_ratio it does nothing
  config.cosine_min_lr_ratio = 0.1;
  CHECK(schedule_of(config, plan).min_ratio == 0.1);
  CHECK(schedule_of(config, plan).constant_ratio == 0.8);
  config.lr_quadratic_warmup = true;
  CHECK(schedule_of(config, plan).quadratic_warmup);
  CHECK(schedule_of(config, plan).min_ratio == 0.0);
  config.lr_scheduler = "linear";
  CHECK_FALSE(schedule_of(config, plan).quadratic_warmup);
  CHECK(schedule_of(config, plan).min_ratio == 0.0);
  config.lr_scheduler = "cosine_with_min_lr";
  CHECK(schedule_of(config, plan).min_ratio == 0.1);
  CHECK(schedule_of(config, plan).constant_ratio == 0.0);
}

// tests/golden/optim/schedules.json: what transformers, torch and axolotl give (scripts/fixtures/optim_schedules.py).
TEST_CASE("the file format's schedules give the rates and momenta of transformers, torch and axolotl") {
  std::ifstream stream(std::string(rlalgo::support::test_dir) + "/golden/optim/schedules.json");
  const nlohmann::json cases = nlohmann::json::parse(stream);
  std::set<std::string> names;
  for (const nlohmann::json& golden : cases) {
    nlohmann::json keys = {{"base_model", "m"},
                           {"rl", "dpo"},
                           {"datasets", {{{"path", "d.jsonl"}}}},
                           {"test_datasets", {{{"path", "e.jsonl"}}}},
                           {"micro_batch_size", 1},
                           {"max_steps", golden["total_steps"]}};
    for (const char* key : {"learning_rate", "warmup_steps", "lr_scheduler", "lr_scheduler_kwargs",
                            "cosine_min_lr_ratio", "cosine_constant_lr_ratio", "lr_quadratic_warmup"})
      if (golden.contains(key)) keys[key] = golden[key];
    const auto text = keys.dump();
    INFO(text);
    const RunConfig config = parse_run_config(parse_document(text, "c.yaml"));
    names.insert(config.lr_scheduler);
    rlalgo::optim::Schedule schedule(schedule_of(config, make_plan(config, 1000, true)));
    const auto& rates = golden["rates"];
    for (std::size_t t = 0; t < rates.size(); ++t) {
      INFO("step " << t);
      const auto step = static_cast<std::int64_t>(t);
      CHECK(schedule(step) == Approx(rates[t].get<double>()).epsilon(1e-12).margin(1e-18));
      CHECK(schedule.momentum(step).has_value() == golden.contains("momenta"));
      if (golden.contains("momenta")) CHECK(*schedule.momentum(step) == Approx(golden["momenta"][t].get<double>()));
      if (golden.contains("metrics")) schedule.observe(golden["metrics"][t].get<double>());
    }
  }
  const auto& all = schedulers().supported;
  CHECK(names == std::set<std::string>(all.begin(), all.end()));
}
