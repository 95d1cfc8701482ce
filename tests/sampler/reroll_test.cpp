#include <rlalgo/sampler/reroll.hpp>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/snapshot_table.hpp>
#include <support/table_generator.hpp>

#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/sampler/prefetch.hpp>
#include <rlalgo/sampler/rollouts.hpp>

using namespace rlalgo;
using rlalgo::support::SnapshotTable;
using Rollouts = sampler::Rollouts<SnapshotTable>;
using Reroll = sampler::Reroll<Rollouts>;

static_assert(sampler::Sampler<Reroll> && sampler::GenerationSource<Reroll>);
static_assert(sampler::Sampler<sampler::Prefetch<Reroll>>);

namespace {

// All completions of the hard prompts get `nothing` until step `solved`; others 0 and 1 in turn.
class Hard : public reward::RewardFunction {
 public:
  Hard(std::set<std::int32_t> hard, std::int64_t solved, double nothing)
      : hard_(std::move(hard)), solved_(solved), nothing_(nothing) {}
  [[nodiscard]] std::string name() const override { return "hard"; }
  std::vector<double> operator()(const reward::RewardCall& call) override {
    std::vector<double> out;
    for (const auto ids : call.completion_ids)
      out.push_back(hard_.contains(ids[0]) && call.step < solved_ ? nothing_ : ids[1] % 2);
    return out;
  }

 private:
  std::set<std::int32_t> hard_;
  std::int64_t solved_;
  double nothing_;
};

struct Bench {
  SnapshotTable table;
  std::shared_ptr<Rollouts> rollouts(std::set<std::int32_t> hard, std::int64_t solved, double nothing = 0.0) {
    sampler::RolloutsConfig c;
    c.geometry = {.micro_batch_size = 8, .num_generations = 2};  // four prompts a step
    c.shuffle = false;
    return std::make_shared<Rollouts>(
        rlalgo::support::numbered_prompts(24), table,
        std::vector<sampler::WeightedReward>{{std::make_shared<Hard>(std::move(hard), solved, nothing), 1.0}},
        rlalgo::support::decode, c, [] { return std::int64_t{0}; });
  }
};

std::vector<std::int64_t> groups_of(const sampler::RolloutBatch& batch) {
  std::vector<std::int64_t> out;
  for (const auto& part : batch.parts)
    for (std::size_t i = 0; i < part.size(); i += 2) out.push_back(part[i]->dataset_row - 100);
  return out;
}

using Groups = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("failed prompts take the last places of later generations, first come first served") {
  Bench bench;
  Reroll sampler({.on = true, .first_step = 2, .max_groups = 1}, bench.rollouts({1, 2, 5}, 3));
  CHECK(groups_of(sampler.next(0)) == Groups{0, 1, 2, 3});
  const auto second = sampler.next(1);  // not yet
  CHECK(groups_of(second) == Groups{4, 5, 6, 7});
  CHECK(second.metrics.value("reroll_buffered") == 1);
  CHECK(second.metrics.value("reroll_buffer_size") == 3);
  const auto third = sampler.next(2);
  CHECK(groups_of(third) == Groups{8, 9, 10, 1});
  CHECK(third.metrics.value("reroll_injected") == 1);
  CHECK(third.metrics.value("reroll_buffer_size") == 3);  // 1 has failed again, and is the last now
  CHECK(third.parts[0][6]->prompt == "prompt 1");
  CHECK(third.parts[0][6]->first().completion_ids[0] == 1);
  CHECK(groups_of(sampler.next(3)) == Groups{12, 13, 14, 2});
  CHECK(groups_of(sampler.next(4)) == Groups{16, 17, 18, 5});
  CHECK(groups_of(sampler.next(5)) == Groups{20, 21, 22, 1});
  CHECK(sampler.next(6).metrics.value("reroll_buffer_size") == 0);
}

TEST_CASE("no doubles in the list or in a generation; a bound; groups that all got something have not failed") {
  Bench bench;
  Reroll all({.on = true, .first_step = 1, .max_groups = 3, .capacity = 3}, bench.rollouts({0, 1, 2, 3, 4}, 100));
  CHECK(all.next(0).metrics.value("reroll_buffer_size") == 3);
  const auto next = all.next(1);
  CHECK(groups_of(next) == Groups{4, 2, 1, 0});
  CHECK(next.metrics.value("reroll_buffer_size") == 3);
  for (std::int64_t k = 2; k < 6; ++k) {
    const Groups groups = groups_of(all.next(k));
    CHECK(std::set<std::int64_t>(groups.begin(), groups.end()).size() == 4);
  }
  const Groups second_pass = groups_of(all.next(6));  // brings 0, 1, 2, 3 by itself
  CHECK(std::set<std::int64_t>(second_pass.begin(), second_pass.end()).size() == 4);

  Reroll same({.on = true}, bench.rollouts({0, 1}, 100, 1.0));
  CHECK(same.next(0).metrics.value("reroll_buffer_size") == 0);
  Reroll tiny({.on = true}, bench.rollouts({0, 1}, 100, 1e-7));
  CHECK(tiny.next(0).metrics.value("reroll_buffer_size") == 2);
}

TEST_CASE("off it is the sampler within; settings that cannot work are refused") {
  Bench bench, plain;
  Reroll off({.on = false}, bench.rollouts({0, 1}, 100));
  const auto expected = plain.rollouts({0, 1}, 100);
  for (std::int64_t k = 0; k < 3; ++k) CHECK(off.next(k).metrics.values() == expected->next(k).metrics.values());
  CHECK(off.state().dump() == expected->state().dump());
  CHECK_THROWS_WITH(Reroll({.on = true, .max_groups = 0}, bench.rollouts({}, 0)),
                    Catch::Contains("[rlalgo.sampler.8]"));
}

TEST_CASE("a resumed run has the list; under a prefetch, too, and a generation that is made anew keeps its prompts") {
  Bench bench, other_bench;
  const sampler::RerollConfig c{.on = true, .first_step = 1, .max_groups = 2};
  Reroll whole(c, bench.rollouts({0, 3, 5, 9}, 4)), first(c, bench.rollouts({0, 3, 5, 9}, 4));
  for (std::int64_t k = 0; k < 3; ++k) {
    (void)whole.next(k);
    (void)first.next(k);
  }
  Reroll second(c, other_bench.rollouts({0, 3, 5, 9}, 4));
  const std::string saved = first.state().dump();
  second.restore(sampler::Json::parse(saved));
  CHECK(second.state().dump() == saved);
  for (std::int64_t k = 3; k < 6; ++k) CHECK(groups_of(second.next(k)) == groups_of(whole.next(k)));

  Reroll again(c, bench.rollouts({0, 3, 5, 9}, 100));
  (void)again.produce({.number = 0, .step = 0});
  const sampler::Made once = again.produce({.number = 1, .step = 1}), twice = again.produce({.number = 1, .step = 1});
  REQUIRE(once.generation->prompts == std::vector<std::size_t>{4, 5, 3, 0});
  CHECK(twice.generation->prompts == once.generation->prompts);

  Bench beside_bench;
  sampler::Prefetch<Reroll> beside({.depth = 1}, std::make_shared<Reroll>(c, beside_bench.rollouts({0, 3, 5, 9}, 4)));
  Reroll expected(c, bench.rollouts({0, 3, 5, 9}, 4));
  for (std::int64_t k = 0; k < 6; ++k) CHECK(groups_of(beside.next(k)) == groups_of(expected.next(k)));

  sampler::Json bad = sampler::Json::parse(saved);
  bad["reroll"]["failed"] = {99};
  CHECK_THROWS_WITH(Reroll(c, bench.rollouts({}, 0)).restore(bad), Catch::Contains("[rlalgo.sampler.7]"));
}
