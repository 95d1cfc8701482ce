#include <support/catch.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/online.hpp>
#include <rlalgo/run/checkpoint.hpp>

using namespace rlalgo;
namespace fs = std::filesystem;

namespace {
const fs::path quickstart = fs::path(rlalgo::support::test_dir).parent_path() / "examples" / "quickstart" / "model";

config::RunConfig example() {
  config::RunConfig run;
  run.base_model = quickstart.string();
  run.rl = "grpo";
  run.micro_batch_size = 4;
  run.gradient_accumulation_steps = 3;
  run.trl.num_generations = 6;
  run.trl.num_iterations = 2;
  run.trl.temperature = 0.7;
  run.trl.max_completion_length = 33;
  run.learning_rate = 1e-3;
  run.lr_scheduler = "linear";
  run.max_steps = 40;
  run.save_steps = 10;
  return run;
}
}  // namespace

TEST_CASE("every setting of a run arrives where it is used") {
  const config::RunConfig run = example();
  const assembly::LanguageModel model = assembly::LanguageModel::load(config::language_model_of(run));
  const auto out = config::online_config(run, model, 50, false);
  CHECK(out.rollouts.geometry.completions() == 12);
  CHECK(out.rollouts.geometry.prompts() == 2);
  CHECK(out.rollouts.geometry.num_iterations == 2);
  CHECK(out.rollouts.sampling.temperature == 0.7);
  CHECK(out.rollouts.sampling.max_new_tokens == 33);
  CHECK(out.rollouts.sampling.stop_ids == model.stop_ids);
  CHECK(out.trainer.schedule.learning_rate == 1e-3);
  CHECK(out.trainer.schedule.total_steps == 40);
  CHECK(out.trainer.schedule.warmup_steps == 2);  // ⌈0.03 · 40⌉
  CHECK(out.trainer.loop.max_steps == 40);
  CHECK(out.trainer.loop.save.every == 10);
  CHECK_FALSE(out.trainer.loop.resume_from_checkpoint);
}

TEST_CASE("a sync interval that a run of epochs never reaches is said when its steps are known") {
  config::RunConfig run = example();
  run.max_steps.reset();
  run.num_epochs = 1.0;
  run.trl.async_prefetch = true;
  const assembly::LanguageModel model = assembly::LanguageModel::load(config::language_model_of(run));
  const std::int64_t steps = config::online_config(run, model, 50, false).trainer.loop.max_steps;
  REQUIRE(steps > 2);
  run.trl.vllm_sync_interval = steps;
  CHECK_THAT(config::detail::never_handed_over(run, steps), Catch::Contains("never reached"));
  run.trl.vllm_sync_interval = steps - 1;
  CHECK(config::detail::never_handed_over(run, steps).empty());
  run.trl.vllm_sync_interval = steps;
  run.trl.prefetch_depth = 0;  // generation and training take turns: each has the weights in force
  CHECK(config::detail::never_handed_over(run, steps).empty());
}

TEST_CASE(
    "old log-probs of replayed rows are computed anew where a correction stands for the difference, or as asked for") {
  config::RunConfig run = example();
  run.trl.use_data_producer = true;
  run.trl.replay_buffer_size = 4;
  const auto recomputes = [](const config::RunConfig& c) {
    return config::asynchronous_config(c, {}, 10).replay.recompute_log_probs;
  };
  CHECK_FALSE(recomputes(run));  // generation and training take turns: nothing corrects
  run.trl.replay_recompute_logps = true;
  CHECK(recomputes(run));
  CHECK(config::corrects_sampling(run));
  run.trl.vllm_importance_sampling_correction = false;
  CHECK(recomputes(run));
  CHECK_FALSE(config::corrects_sampling(run));
  run.trl.replay_recompute_logps.reset();
  run.trl.async_prefetch = true;
  CHECK_FALSE(recomputes(run));
  run.trl.vllm_importance_sampling_correction = true;
  CHECK(recomputes(run));
  run.rl = "rloo";  // corrects nothing
  CHECK_FALSE(recomputes(run));
  run.trl.replay_recompute_logps = false;
  run.rl = "grpo";
  CHECK_FALSE(recomputes(run));
}

TEST_CASE("automatic resume takes the newest checkpoint there is") {
  std::string name = (fs::temp_directory_path() / "rlalgo_online_XXXXXX").string();
  const fs::path folder = ::mkdtemp(name.data());
  config::RunConfig run = example();
  run.output_dir = folder.string();
  run.auto_resume_from_checkpoints = true;
  const assembly::LanguageModel model = assembly::LanguageModel::load(config::language_model_of(run));
  CHECK_FALSE(config::online_config(run, model, 50, false).trainer.loop.resume_from_checkpoint);
  for (const std::int64_t step : {9, 10}) {
    run::CheckpointParts parts;
    parts.save_state = [](const fs::path&) { return data::Json::object(); };
    parts.state = {{"epoch", 1.0},
                   {"identity", data::Json::object()},
                   {"settings", data::Json::object()},
                   {"totals", data::Json::object()},
                   {"window", data::Json::object()}};
    parts.trainer_state = R"({"log_history": []})";
    run::write_checkpoint(folder, step, parts);
  }
  CHECK(config::online_config(run, model, 50, false).trainer.loop.resume_from_checkpoint == folder / "checkpoint-10");
  fs::remove_all(folder);
}

TEST_CASE("what a file says of its rewards arrives there: weights, Python beside the file, what a failure means") {
  std::string name = (fs::temp_directory_path() / "rlalgo_online_XXXXXX").string();
  const fs::path folder = ::mkdtemp(name.data());
  std::ofstream(folder / "my_rewards.py") << "def one(completions, **kwargs):\n    return [1.0] * len(completions)\n";
  config::RunConfig run = example();
  run.file = (folder / "config.yaml").string();
  run.trl.reward_funcs = {"builtin.gsm8k_accuracy", "my_rewards.one"};
  run.trl.reward_weights = {2.0, 0.5};
  const auto rewards = config::weighted_rewards(run);
  REQUIRE(rewards.size() == 2);
  CHECK(rewards[0].function->name() == "gsm8k_accuracy");
  CHECK(rewards[0].weight == 2.0);
  CHECK(rewards[1].function->name() == "one");
  CHECK(rewards[1].weight == 0.5);
  run.trl.reward_funcs = {"no/such-model"};
  run.trl.reward_weights = {};
  CHECK_THROWS_WITH(config::weighted_rewards(run), Catch::Contains("[rlalgo.config.20]"));
  fs::remove_all(folder);
}
