#include <rlalgo/sampler/replay.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/snapshot_table.hpp>
#include <support/table_generator.hpp>

#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/sampler/prefetch.hpp>
#include <rlalgo/sampler/reroll.hpp>
#include <rlalgo/sampler/rollouts.hpp>

using namespace rlalgo;
using rlalgo::support::SnapshotTable;
using Rollouts = sampler::Rollouts<SnapshotTable>;
using Replay = sampler::Replay<Rollouts>;

static_assert(sampler::Sampler<Replay> && sampler::GenerationSource<Replay>);
static_assert(sampler::Sampler<sampler::Prefetch<sampler::Replay<sampler::Reroll<Rollouts>>>>);

namespace {

// Prompt p: 0 for all completions, but of the prompts with signal p·[0, 1, 0, 1].
class Signal : public reward::RewardFunction {
 public:
  explicit Signal(std::set<std::int32_t> with) : with_(std::move(with)) {}
  [[nodiscard]] std::string name() const override { return "signal"; }
  std::vector<double> operator()(const reward::RewardCall& call) override {
    std::vector<double> out;
    for (const auto ids : call.completion_ids) out.push_back(with_.contains(ids[0]) ? ids[0] * (ids[1] % 2) : 0);
    return out;
  }

 private:
  std::set<std::int32_t> with_;
};

struct Bench {
  SnapshotTable table;
  std::shared_ptr<Rollouts> rollouts(std::set<std::int32_t> with) {
    sampler::RolloutsConfig c;
    c.geometry = {.micro_batch_size = 16, .num_generations = 4};  // four prompts a step
    c.shuffle = false;
    return std::make_shared<Rollouts>(
        rlalgo::support::numbered_prompts(24), table,
        std::vector<sampler::WeightedReward>{{std::make_shared<Signal>(std::move(with)), 1.0}}, rlalgo::support::decode,
        c, [this] { return table.version.load(); });
  }
};

std::vector<std::int64_t> groups_of(const sampler::RolloutBatch& batch) {
  std::vector<std::int64_t> out;
  for (std::size_t i = 0; i < batch.parts[0].size(); i += 4) out.push_back(batch.parts[0][i]->dataset_row - 100);
  return out;
}
using Groups = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("groups without signal give way to stored ones, never to those of their own generation, never twice") {
  Bench bench;
  Replay sampler({.capacity = 8}, bench.rollouts({1, 2}));
  const auto first = sampler.next(0);
  CHECK(groups_of(first) == Groups{0, 1, 2, 3});  // 1 and 2 are stored afterwards
  CHECK(first.metrics.value("replay_buffer_replacements") == 0);
  CHECK(first.metrics.value("replay_buffer_size") == 2);
  bench.table.version = 1;
  const auto second = sampler.next(1);  // four groups without signal, two to put in
  const Groups groups = groups_of(second);
  CHECK(std::set<std::int64_t>(groups.begin(), groups.begin() + 2) == std::set<std::int64_t>{1, 2});
  CHECK(groups[2] == 6);
  CHECK(second.metrics.value("replay_buffer_replacements") == 2);
  const data::Episode& replayed = *second.parts[0][1];
  CHECK(replayed.first().weights_version == 0);
  CHECK(replayed.prompt == "prompt " + std::to_string(groups[0]));
  CHECK(replayed.first().completion_ids[2] == 0);  // of generation 0
  CHECK(replayed.first().old_log_probs.empty());   // computed where it is trained on
  CHECK(replayed.rewards == std::vector<double>{static_cast<double>(groups[0])});
  CHECK(second.fresh[0]->rewards(1, 0) == static_cast<double>(groups[0]));
  CHECK(second.fresh[0]->is_replayed(7));
  CHECK_FALSE(second.fresh[0]->is_replayed(8));
  CHECK(second.metrics.value("reward") == 0.0);  // of what was drawn
}

TEST_CASE("a full buffer gives up its lowest priority, and only for a higher one; priority is advantage times spread") {
  Bench bench;
  std::size_t asked = 0;
  Replay sampler({.capacity = 2,
                  .advantages =
                      [&](const core::RewardTable& rewards, const core::Groups&) {
                        ++asked;
                        std::vector<double> out;
                        for (std::size_t i = 0; i < rewards.rows(); ++i) out.push_back(rewards(i, 0));
                        return out;
                      }},
                 bench.rollouts({1, 3, 4, 5, 6, 7}));
  (void)sampler.next(0);  // stores 1 and 3
  (void)sampler.next(1);  // 4 … 7: the two highest stay
  CHECK(asked == 6);
  const sampler::Json state = sampler.state();
  std::set<std::size_t> stored;
  for (const auto& entry : state["replay"]) {
    const auto p = entry["group"]["prompts"][0].get<double>();
    stored.insert(static_cast<std::size_t>(p));
    // rewards p·[0, 1, 0, 1]: Σ|A| = 2p, std₁ = p/√3
    CHECK(entry["priority"].get<double>() == Approx(2 * p * p / std::sqrt(3.0)));
  }
  CHECK(stored == std::set<std::size_t>{6, 7});
}

TEST_CASE("groups age; without recomputation their old log-probs are the generator's") {
  Bench bench;
  Replay sampler({.capacity = 4, .max_age = 2, .recompute_log_probs = false}, bench.rollouts({1, 2}));
  (void)sampler.next(0);
  bench.table.version = 2;
  const auto second = sampler.next(1);
  CHECK(second.parts[0][0]->first().old_log_probs == second.parts[0][0]->first().sampling_log_probs);
  bench.table.version = 3;
  const auto third = sampler.next(2);
  CHECK(third.metrics.value("replay_buffer_size") == 0);
  CHECK(groups_of(third) == Groups{8, 9, 10, 11});
}

TEST_CASE("the rows of an episode stay together in the buffer, and in its checkpoint") {
  for (const bool recompute : {false, true}) {
    Bench bench, other;
    bench.table.further = other.table.further = true;
    const sampler::ReplayConfig c{.capacity = 2, .recompute_log_probs = recompute};
    Replay sampler(c, bench.rollouts({1, 2})), resumed(c, other.rollouts({1, 2}));
    const auto first = sampler.next(0);
    resumed.restore(sampler::Json::parse(sampler.state().dump()));
    for (const auto& second : {sampler.next(1), resumed.next(1)})
      for (std::size_t i = 0; i < 8; ++i) {  // two of four groups are of the first generation
        const data::Episode& is = *second.parts[0][i];
        const std::size_t group = is.dataset_row == 101 ? 4 : 8;
        const data::Episode& was = *first.parts[0][group + i % 4];
        REQUIRE(is.rows.size() == 2);
        CHECK(is.rows[1].prompt_ids == was.rows[1].prompt_ids);
        CHECK(is.rows[1].completion_ids == was.rows[1].completion_ids);
        CHECK(is.rows[1].old_log_probs.size() == (recompute ? 0 : is.rows[1].completion_ids.size()));
        CHECK(is.rows[1].sampling_log_probs == std::vector<float>{-0.75F, -1.5F});
        CHECK(std::isnan(was.rows[1].sampling_log_probs[1]) == recompute);  // of the very weights that were trained
        CHECK(is.rows[1].text == rlalgo::support::decode(is.rows[1].completion_ids));
      }
  }
}

TEST_CASE("a resumed run has the buffer, bit for bit; off it is the sampler within") {
  Bench bench, other, plain;
  const sampler::ReplayConfig c{.capacity = 3};
  Replay whole(c, bench.rollouts({1, 2, 9, 14})), first(c, bench.rollouts({1, 2, 9, 14}));
  for (std::int64_t k = 0; k < 2; ++k) {
    (void)whole.next(k);
    (void)first.next(k);
  }
  const std::string saved = first.state().dump();
  Replay second(c, other.rollouts({1, 2, 9, 14}));
  second.restore(sampler::Json::parse(saved));
  CHECK(second.state().dump() == saved);
  for (std::int64_t k = 2; k < 6; ++k) {
    const auto x = whole.next(k), y = second.next(k);
    CHECK(groups_of(x) == groups_of(y));
    for (std::size_t i = 0; i < 16; ++i) {
      CHECK(x.parts[0][i]->first().completion_ids == y.parts[0][i]->first().completion_ids);
      CHECK(x.parts[0][i]->first().sampling_log_probs == y.parts[0][i]->first().sampling_log_probs);
      CHECK(x.parts[0][i]->first().text == y.parts[0][i]->first().text);
      CHECK(x.parts[0][i]->columns == y.parts[0][i]->columns);
    }
  }
  sampler::Json bad = sampler::Json::parse(saved);
  bad["replay"][0]["group"].erase("prompts");
  CHECK_THROWS_WITH(Replay(c, bench.rollouts({})).restore(bad), Catch::Contains("[rlalgo.sampler.7]"));
  bad["replay"][0]["group"]["rollouts"] = sampler::Json::array();
  CHECK_THROWS_WITH(Replay(c, bench.rollouts({})).restore(bad), Catch::Contains("[rlalgo.sampler.7]"));

  Replay off({}, bench.rollouts({1, 2}));
  const auto expected = plain.rollouts({1, 2});
  bench.table.version = 0;
  for (std::int64_t k = 0; k < 3; ++k) CHECK(off.next(k).metrics.values() == expected->next(k).metrics.values());
  CHECK(off.state().dump() == expected->state().dump());
}

TEST_CASE("under a prefetch replayed rows are not what is stale, and a saved queue keeps them") {
  Bench bench, resumed_bench;
  const auto make = [](Bench& b) {
    return std::make_unique<sampler::Prefetch<Replay>>(
        sampler::PrefetchConfig{.depth = 1, .max_staleness = 1},
        std::make_shared<Replay>(sampler::ReplayConfig{.capacity = 4}, b.rollouts({1, 2})));
  };
  const auto sampler = make(bench);
  for (std::int64_t k = 0; k < 4; ++k) {
    bench.table.version = k;
    const auto batch = sampler->next(k);
    CHECK(batch.metrics.value("async/staleness/max") <= 1);
    if (k > 0) CHECK(batch.metrics.value("replay_buffer_replacements") == 2);
  }
  sampler::Json saved;
  for (int i = 0; i < 400 && !saved.contains("queue"); ++i) {
    saved = sampler->state();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  REQUIRE(saved.contains("queue"));
  const auto resumed = make(resumed_bench);
  resumed_bench.table.version = 4;
  resumed->restore(sampler::Json::parse(saved.dump()));
  const auto batch = resumed->next(4);
  CHECK(batch.fresh[0]->is_replayed(0));
  CHECK(batch.metrics.value("async/dropped") == 0);
}
