#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <fstream>
#include <memory>

#include <rlalgo/trainer/entropy_control.hpp>

namespace {
using rlalgo::core::Metrics;
using rlalgo::loss::EntropyCoefficient;
using rlalgo::trainer::EntropyControl;

std::shared_ptr<EntropyCoefficient> adaptive() {
  return std::make_shared<EntropyCoefficient>(0.1, EntropyCoefficient::Adaptive{.step = 0.02, .target = 0.5});
}

void after(EntropyControl& control, double entropy, double expected) {
  Metrics metrics;
  metrics.mean("entropy_bonus/entropy", entropy * 7, 7);
  control.after_step(1, metrics);
  CHECK(metrics.value("entropy_coef") == Approx(expected));
}
}  // namespace

TEST_CASE("the coefficient follows the entropy of the step and is logged after its update") {
  EntropyControl control(adaptive());
  after(control, 0.3, 0.12);
  after(control, 0.7, 0.10);
  EntropyControl fixed(std::make_shared<EntropyCoefficient>(0.3));
  after(fixed, 0.7, 0.3);
}

TEST_CASE("the controller goes on from a checkpoint where it was") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto first = adaptive(), second = adaptive();
  EntropyControl control(first), resumed(second);
  control.save(scratch.path());  // before any step: no entropy seen yet
  resumed.restore(scratch.path());
  CHECK(second->applied() == 0.0);
  after(control, 0.3, 0.12);
  control.save(scratch.path());
  resumed.restore(scratch.path());
  CHECK(second->value() == first->value());
  CHECK(second->applied() == first->applied());
  CHECK(second->last_entropy() == 0.3);
}

TEST_CASE("a checkpoint without the controller's state is refused, a fixed coefficient needs none") {
  const rlalgo::support::ScratchDirectory scratch;
  EntropyControl control(adaptive());
  CHECK_THROWS_WITH(control.restore(scratch.path()), Catch::StartsWith("[rlalgo.trainer.30]"));
  std::ofstream(scratch.path() / "entropy_ctrl_state.json") << R"({"entropy_coef": "much"})";
  CHECK_THROWS_WITH(control.restore(scratch.path()), Catch::StartsWith("[rlalgo.trainer.30]"));
  EntropyControl(std::make_shared<EntropyCoefficient>(0.3)).restore(scratch.path());
}
