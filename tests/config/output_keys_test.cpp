#include <support/catch.hpp>

#include <rlalgo/config/output_keys.hpp>

using namespace rlalgo::config;

TEST_CASE("defaults of what is written are axolotl's, but for TensorBoard") {
  const OutputConfig o;
  CHECK(o.output_dir == "./model-out");
  CHECK(o.save_total_limit == 4);
  CHECK(o.loss_watchdog_patience == 3);
  CHECK(o.use_tensorboard);
  CHECK_FALSE(o.save_strategy.has_value());
}

TEST_CASE("patience is of a threshold") {
  OutputConfig o;
  for (const Key& row : output_keys(o)) {
    if (row.name != "loss_watchdog_patience") continue;
    CHECK_FALSE(row.idle_because().empty());
    o.loss_watchdog_threshold = 3.0;
    CHECK(row.idle_because().empty());
  }
}

TEST_CASE("intervals of evaluation are compared where the rate follows evaluations, those of saving never") {
  OutputConfig o;
  for (const Key& row : output_keys(o)) {
    INFO(row.name);
    if (row.name.starts_with("eval")) CHECK(row.resume.evaluates);
    if (row.name.starts_with("save")) CHECK((!row.resume.why.empty() && !row.resume.evaluates));
  }
}
