#include <support/catch.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/distributed/world.hpp>

#include <support/thread_world.hpp>

TEST_CASE("a world of one rank leaves sums as they are") {
  rlalgo::distributed::World world;
  CHECK(world.rank() == 0);
  CHECK(world.size() == 1);
  std::array<double, 2> values = {1.5, -2.0};
  world.sum(values);
  CHECK(values == std::array<double, 2>{1.5, -2.0});
}

TEST_CASE("a world of one rank gathers from itself") {
  rlalgo::distributed::World world;
  CHECK(world.gather("all", "mine") == std::vector<std::string>{"mine"});
  CHECK(world.broadcast("one", "mine") == "mine");
  world.barrier("nobody");
}

TEST_CASE("shares are neighbours, cover everything and differ by one at most") {
  struct Of : rlalgo::distributed::World {
    explicit Of(int ranks) : ranks_(ranks) {}
    [[nodiscard]] int size() const override { return ranks_; }
    int ranks_;
  };
  for (const int ranks : {1, 2, 3, 7})
    for (std::size_t count = 0; count < 23; ++count) {
      const Of world(ranks);
      std::size_t end = 0;
      for (int r = 0; r < ranks; ++r) {
        const auto share = world.share(count, r);
        CHECK(share.begin == end);
        end = share.end;
        const auto least = count / static_cast<std::size_t>(ranks);
        CHECK((share.size() == least || share.size() == least + 1));
      }
      CHECK(end == count);
    }
}

TEST_CASE("rows are shared by context groups, and the first rank of a group speaks for it") {
  rlalgo::support::on_ranks(6, [](const std::shared_ptr<rlalgo::distributed::World>& world) {
    world->set_context_size(2);
    RANK_CHECK(world->groups() == 3 && world->group() == world->rank() / 2);
    RANK_CHECK(world->leads_group() == (world->rank() % 2 == 0));
    const rlalgo::distributed::Share rows = world->share_of_rows(7), all = world->share(7);
    const std::size_t begins[] = {0, 2, 4, 7};
    RANK_CHECK(rows.begin == begins[world->group()] && rows.end == begins[world->group() + 1]);
    RANK_CHECK(all.begin == 7U * static_cast<std::size_t>(world->rank()) / 6);
    rlalgo::core::Metrics own;
    own.mean("group", world->leads_group() ? world->group() : 100.0, 1.0);
    RANK_CHECK(world->merged(own).value("group") == 1.0);
  });
}
