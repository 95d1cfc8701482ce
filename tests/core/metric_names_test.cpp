#include <support/catch.hpp>

#include <rlalgo/core/metric_names.hpp>

using rlalgo::core::is_run_metric;
using rlalgo::core::logged_name;

TEST_CASE("a run's own metrics are known by name and by family") {
  for (const char* own : {"step", "epoch", "loss", "reward", "reward_std", "kl", "grad_norm", "learning_rate",
                          "entropy", "num_tokens", "time/step", "rewards/f/mean", "eval_loss",
                          "completions/mean_length", "clip_ratio/high_max", "sampling/anything", ""})
    CHECK(is_run_metric(own));
  for (const char* other : {"losses", "my/loss", "steps", "accuracy", "reward_model", "format", "logged/loss"})
    CHECK_FALSE(is_run_metric(other));
}

TEST_CASE("the name that a function's metric gets instead is none of the run's") {
  CHECK(logged_name("loss") == "logged/loss");
  CHECK_FALSE(is_run_metric(logged_name("step")));
}
