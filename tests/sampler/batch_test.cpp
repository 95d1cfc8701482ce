#include <memory>
#include <utility>
#include <vector>

#include <support/catch.hpp>

#include <rlalgo/sampler/batch.hpp>

using namespace rlalgo;

TEST_CASE("a batch owns its rows") {
  sampler::Batch<int> batch;
  std::weak_ptr<std::vector<int>> rows;
  {
    const auto made = std::make_shared<std::vector<int>>(std::vector<int>{1, 2});
    rows = made;
    batch.parts = {{&(*made)[0]}, {&(*made)[1]}};
    batch.owners = {made};
  }
  CHECK(*batch.parts[1][0] == 2);
  batch = {};
  CHECK(rows.expired());
}

TEST_CASE("a batch points into generations that it may share") {
  auto generation = std::make_shared<sampler::Generation>();
  generation->episodes.resize(4);
  generation->groups = core::Groups::uniform(4, 2);
  sampler::RolloutBatch batch;
  batch.parts = {{&generation->episodes[0], &generation->episodes[1]}, {&generation->episodes[2]}};
  batch.fresh = {generation};
  batch.owners = {generation};
  const sampler::RolloutBatch moved = std::move(batch);
  moved.parts[1][0]->advantage = 3.0;
  CHECK(generation->episodes[2].advantage == 3.0);
  CHECK(moved.fresh[0]->groups.count() == 2);
  CHECK(moved.seconds.empty());
  CHECK(moved.warnings.empty());
}
