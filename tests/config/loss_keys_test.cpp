#include <support/catch.hpp>

#include <rlalgo/config/loss_keys.hpp>

using namespace rlalgo::config;

TEST_CASE("defaults of losses are TRL's") {
  const LossConfig l;
  CHECK(l.loss_type == "dapo");
  CHECK(l.epsilon == 0.2);
  CHECK_FALSE(l.epsilon_high.has_value());
  CHECK_FALSE(l.delta.has_value());
  CHECK(l.importance_sampling_level == "token");
  CHECK(l.top_entropy_quantile == 1.0);
  CHECK(l.sapo_temperature_pos == 1.0);
  CHECK(l.sapo_temperature_neg == 1.05);
  CHECK(l.vespo_k_pos == 2.0);
  CHECK(l.vespo_lambda_pos == 3.0);
  CHECK(l.vespo_k_neg == 3.0);
  CHECK(l.vespo_lambda_neg == 2.0);
  CHECK(l.entropy_coef_max == 1.0);
  CHECK(l.entropy_coef_delta == 0.005);
  CHECK(l.entropy_target == 0.2);
  CHECK_FALSE(l.pays_entropy());
}

TEST_CASE("exponents of vespo stay where the weight is a float32") {
  LossConfig l;
  for (const Key& row : loss_keys(l)) {
    if (!row.name.starts_with("trl.vespo_")) continue;
    INFO(row.name);
    CHECK(row.losses == "vespo");
    CHECK(row.range.holds(80));
    CHECK_FALSE(row.range.holds(81));
    CHECK_FALSE(row.range.holds(-0.1));
  }
}
