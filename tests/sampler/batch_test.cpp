#include <memory>
#include <utility>

#include <support/catch.hpp>

#include <rlalgo/sampler/batch.hpp>

using namespace rlalgo;

TEST_CASE("a batch points into generations that it may share") {
  auto generation = std::make_shared<sampler::Generation>();
  generation->rollouts.resize(4);
  generation->groups = core::Groups::uniform(4, 2);
  sampler::RolloutBatch batch;
  batch.parts = {{&generation->rollouts[0], &generation->rollouts[1]}, {&generation->rollouts[2]}};
  batch.fresh = {generation};
  const sampler::RolloutBatch moved = std::move(batch);
  moved.parts[1][0]->advantage = 3.0;
  CHECK(generation->rollouts[2].advantage == 3.0);
  CHECK(moved.fresh[0]->groups.count() == 2);
  CHECK(moved.generation_seconds == 0.0);
  CHECK(moved.warnings.empty());
}
