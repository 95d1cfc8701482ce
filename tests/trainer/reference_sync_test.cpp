#include <ATen/ops/tensor.h>
#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/trainer/reference_sync.hpp>

using rlalgo::trainer::ReferenceSync;

TEST_CASE("the reference moves towards the policy every few steps: 1.0, 1.6, 1.84") {
  const at::Tensor policy = at::tensor({2.0}), reference = at::tensor({1.0});
  rlalgo::core::Metrics metrics;
  ReferenceSync sync({.every = 2, .mixup = 0.6}, {{"w", policy}}, {{"w", reference}});
  sync.after_step(1, metrics);
  CHECK(reference.item<double>() == Approx(1.0));
  sync.after_step(2, metrics);
  CHECK(reference.item<double>() == Approx(1.6));
  sync.after_step(4, metrics);
  CHECK(reference.item<double>() == Approx(1.84));
  CHECK(policy.item<double>() == Approx(2.0));
}

TEST_CASE("it is part of a checkpoint") {
  const rlalgo::support::ScratchDirectory scratch;
  const at::Tensor reference = at::tensor({1.5f}), fresh = at::tensor({0.f});
  ReferenceSync({}, {{"w", reference}}, {{"w", reference}}).save(scratch.path());
  ReferenceSync({}, {{"w", fresh}}, {{"w", fresh}}).restore(scratch.path());
  CHECK(fresh.item<float>() == 1.5f);
  ReferenceSync other({}, {{"v", fresh}}, {{"v", fresh}});
  CHECK_THROWS_WITH(other.restore(scratch.path()), Catch::StartsWith("[rlalgo.trainer.24]"));
}
