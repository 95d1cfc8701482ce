#include <rlalgo/distributed/context_group.hpp>

#include <functional>
#include <memory>
#include <vector>

#include <ATen/ATen.h>

#include <support/catch.hpp>
#include <support/thread_world.hpp>

using namespace rlalgo;

TEST_CASE("tensors go around the ring of a rank's own group") {
  support::on_ranks(6, [](const std::shared_ptr<distributed::World>& world) {
    world->set_context_size(3);
    distributed::ContextGroup ring(world);
    RANK_CHECK(ring.size() == 3 && ring.rank() == world->rank() % 3);
    at::Tensor here = at::full({2, 2}, world->rank(), at::kDouble);
    for (int passes = 1; passes < 3; ++passes) {
      const at::Tensor next = at::empty({2, 2}, at::kDouble);
      const std::function<void()> arrive = ring.pass(here, next);
      arrive();
      here = next;
      RANK_CHECK(here.min().item<double>() == world->group() * 3 + ring.origin(passes));
      RANK_CHECK(at::equal(here, at::full_like(here, here[0][0].item<double>())));
    }
  });
}
