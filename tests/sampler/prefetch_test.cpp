#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <support/catch.hpp>
#include <support/snapshot_table.hpp>
#include <support/table_generator.hpp>
#include <support/thread_world.hpp>

#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/sampler/prefetch.hpp>
#include <rlalgo/sampler/rollouts.hpp>
#include <rlalgo/sampler/shared.hpp>

#include "sampler/geometry_config.hpp"

using namespace rlalgo;
using rlalgo::support::SnapshotTable;
using sampler::PrefetchConfig;
using sampler::RolloutBatch;
using sampler::RolloutsConfig;
using Rollouts = sampler::Rollouts<SnapshotTable>;
using Shared = sampler::Shared<Rollouts>;
using Prefetch = sampler::Prefetch<Shared>;

static_assert(sampler::Sampler<Prefetch> && sampler::Rewarded<Prefetch> && sampler::Generates<Prefetch> &&
              sampler::Finite<Prefetch> && sampler::GenerationSource<Prefetch>);

namespace {

class FirstToken : public reward::RewardFunction {
 public:
  [[nodiscard]] std::string name() const override { return "first_token"; }
  std::vector<double> operator()(const reward::RewardCall& call) override {
    std::vector<double> out;
    for (const auto ids : call.completion_ids) out.push_back(ids[0] + 0.1 * ids[1] + static_cast<double>(call.step));
    return out;
  }
};

RolloutsConfig config(std::int64_t b, std::int64_t a, std::int64_t s, std::int64_t mu, std::int64_t g) {
  return rlalgo::support::geometry_config(b, a, s, mu, g);
}

struct Bench {
  SnapshotTable table;

  std::shared_ptr<Rollouts> rollouts(const RolloutsConfig& c, std::size_t prompts = 16) {
    return std::make_shared<Rollouts>(rlalgo::support::numbered_prompts(prompts), table,
                                      std::vector<sampler::WeightedReward>{{std::make_shared<FirstToken>(), 1.0}},
                                      rlalgo::support::decode, c, [this] { return table.version.load(); });
  }
  std::unique_ptr<Prefetch> prefetch(PrefetchConfig p, const RolloutsConfig& c = config(4, 1, 1, 1, 2)) {
    table.stop = p.stop.get_token();
    sampler::SharedConfig shared{.world = p.world, .mutex = p.world != nullptr ? p.mutex : nullptr};
    return std::make_unique<Prefetch>(std::move(p), std::make_shared<Shared>(std::move(shared), rollouts(c)));
  }
  // What a trainer does: publish where it is due, then the batch, of weights that then change.
  RolloutBatch step(Prefetch& sampler, std::int64_t k) {
    if (sampler.needs_weights(k)) table.version = k;
    return sampler.next(k);
  }
};

std::vector<std::int64_t> rows_of(const RolloutBatch& batch) {
  std::vector<std::int64_t> out;
  for (const auto& part : batch.parts)
    for (const data::Episode* r : part) out.push_back(r->dataset_row);
  return out;
}

double worst(const core::Metrics& m) { return m.value("async/staleness/max"); }

}  // namespace

TEST_CASE("depth 0 is the sampler within: batches, metrics, seconds, state, when weights are due") {
  for (const auto& c : {config(4, 1, 1, 1, 2), config(2, 2, 3, 1, 2), config(2, 4, 2, 1, 2), config(2, 1, 2, 2, 4)}) {
    Bench plain, around;
    const auto expected = plain.rollouts(c);
    const auto found = around.prefetch({.depth = 0, .sync_interval = 3}, c);
    for (std::int64_t k = 0; k < 9; ++k) {
      CHECK(found->needs_weights(k) == expected->needs_weights(k));
      plain.table.version = around.table.version = k;
      const RolloutBatch x = expected->next(k), y = found->next(k);
      CHECK(rows_of(x) == rows_of(y));
      CHECK(x.metrics.values() == y.metrics.values());
      REQUIRE(x.seconds.size() == y.seconds.size());
      for (std::size_t i = 0; i < x.seconds.size(); ++i) CHECK(x.seconds[i].first == y.seconds[i].first);
      CHECK(expected->state().dump() == found->state().dump());
    }
  }
}

TEST_CASE("what is trained on is what a synchronous sampler draws, of weights at most depth and interval behind") {
  for (const auto& [depth, interval] : {std::tuple{1, 1}, {2, 1}, {4, 1}, {1, 3}, {3, 2}})
    for (const auto& c : {config(4, 1, 1, 1, 2), config(2, 4, 2, 1, 2), config(2, 1, 3, 2, 2)}) {
      INFO("depth " << depth << " interval " << interval << " S " << c.geometry.steps_per_generation);
      Bench bench, plain;
      const auto sampler = bench.prefetch({.depth = depth, .sync_interval = interval}, c);
      const auto expected = plain.rollouts(c);
      const double r =
          static_cast<double>(c.geometry.micro_steps()) / static_cast<double>(c.geometry.gradient_accumulation_steps);
      for (std::int64_t k = 0; k < 12; ++k) {
        if (k % 3 == 2) std::this_thread::sleep_for(std::chrono::milliseconds(3));
        const RolloutBatch batch = bench.step(*sampler, k), same = expected->next(k);
        REQUIRE(rows_of(batch) == rows_of(same));
        for (std::size_t p = 0; p < batch.parts.size(); ++p)
          for (std::size_t i = 0; i < batch.parts[p].size(); ++i)
            CHECK(batch.parts[p][i]->rewards == same.parts[p][i]->rewards);  // the step that trains on it included
        REQUIRE(batch.seconds.size() == 1);
        CHECK(batch.seconds[0].first == "wait");
        if (batch.fresh.empty()) continue;
        CHECK(worst(batch.metrics) <= std::ceil(depth * r) + interval - 1);
        CHECK(batch.metrics.value("num_tokens") == same.metrics.value("num_tokens"));
        CHECK(batch.metrics.value("async/queue_depth") <= depth);
        CHECK(batch.metrics.value("async/dropped") == 0);
      }
    }
}

namespace {

// A rank of several: its own table, sampler and producer.
struct RankBench {
  Bench bench;
  std::unique_ptr<Prefetch> sampler;

  RankBench(const std::shared_ptr<distributed::World>& world, PrefetchConfig p, const RolloutsConfig& c) {
    p.world = world->duplicate("generation");
    p.meanwhile = [world](std::int64_t) { world->check(); };
    sampler = bench.prefetch(std::move(p), c);
  }
};

}  // namespace

TEST_CASE("several ranks train on what one does, in the same order, also where a generation is made again") {
  const RolloutsConfig c = config(4, 1, 2, 1, 2);  // 4 groups
  for (const auto& [depth, staleness] : {std::tuple{1, -1}, {3, -1}, {3, 1}})
    for (const int ranks : {2, 3}) {
      INFO("depth " << depth << " max_staleness " << staleness << ", " << ranks << " ranks");
      Bench plain;
      const auto expected = plain.rollouts(c);
      std::vector<RolloutBatch> all;
      for (std::int64_t k = 0; k < 12; ++k) all.push_back(expected->next(k));
      support::on_ranks(ranks, [&](const std::shared_ptr<distributed::World>& world) {
        RankBench mine(world, {.depth = depth, .max_staleness = staleness}, c);
        for (std::int64_t k = 0; k < 12; ++k) {
          if ((k + world->rank()) % 3 == 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
          const RolloutBatch batch = mine.bench.step(*mine.sampler, k);
          const RolloutBatch& same = all[static_cast<std::size_t>(k)];
          RANK_CHECK(rows_of(batch) == rows_of(same));
          std::string versions;
          for (std::size_t p = 0; p < batch.parts.size(); ++p)
            for (std::size_t i = 0; i < batch.parts[p].size(); ++i) {
              const data::Episode &here = *batch.parts[p][i], &there = *same.parts[p][i];
              RANK_CHECK(std::equal(here.first().completion_ids.begin(), here.first().completion_ids.begin() + 3,
                                    there.first().completion_ids.begin()));  // the fourth is the version
              RANK_CHECK(staleness < 0 || k - here.first().weights_version <= staleness + 1);
              versions += std::to_string(here.first().weights_version) + " ";
            }
          for (const std::string& other : world->gather("what was trained on", versions)) RANK_CHECK(other == versions);
        }
      });
    }
}

TEST_CASE("a producer that fails fails all ranks within a second, with its cause") {
  for (const int who : {0, 1}) {
    std::vector<std::string> told(2);
    const auto begun = std::chrono::steady_clock::now();
    CHECK_THROWS_WITH(support::on_ranks(2,
                                        [&](const std::shared_ptr<distributed::World>& world) {
                                          const auto rank = static_cast<std::size_t>(world->rank());
                                          PrefetchConfig p{.depth = 2};
                                          p.tell = [&told, rank](const std::string& text) { told[rank] = text; };
                                          RankBench mine(world, std::move(p), config(4, 1, 1, 1, 2));
                                          if (world->rank() == who) mine.bench.table.fails_at = 3;
                                          for (std::int64_t k = 0;; ++k) (void)mine.bench.step(*mine.sampler, k);
                                        }),
                      Catch::Contains("the table has burnt"));
    for (const std::string& text : told) CHECK(text.find("the table has burnt") != std::string::npos);
    CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(2));
  }
}

TEST_CASE("an interruption of one rank leaves all before the same step, and what is ready is trained on") {
  for (const int who : {0, 1}) {
    os::Interruption::clear();
    std::vector<std::int64_t> last(2, -1);
    support::on_ranks(2, [&](const std::shared_ptr<distributed::World>& world) {
      PrefetchConfig p{.depth = 2};
      std::stop_source stop = p.stop;
      RankBench mine(world, std::move(p), config(4, 1, 1, 1, 2));
      if (world->rank() == who) mine.bench.table.hangs_at = 4;
      try {
        for (std::int64_t k = 0;; ++k) {
          if (k == 3 && world->rank() == who) {
            os::Interruption::request(SIGINT);
            stop.request_stop();
          }
          (void)mine.bench.step(*mine.sampler, k);
          last[static_cast<std::size_t>(world->rank())] = k;
        }
      } catch (const os::Interrupted&) {
        world->give_up(SIGINT);
      }
      mine.sampler.reset();
      world->barrier("saved");
    });
    CHECK(last == std::vector<std::int64_t>{3, 3});
  }
  os::Interruption::clear();
}

TEST_CASE("the producer begins depth generations and no more, and none beyond the end of the run") {
  Bench bench;
  const auto sampler = bench.prefetch({.depth = 3, .generations = 5});
  (void)bench.step(*sampler, 0);
  for (int i = 0; i < 200 && bench.table.begun < 4; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  CHECK(bench.table.begun == 4);
  for (std::int64_t k = 1; k < 5; ++k) (void)bench.step(*sampler, k);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  CHECK(bench.table.begun == 5);
}

TEST_CASE("weights are due at the first step and when the interval has passed, also after a resume") {
  Bench bench;
  const auto sampler = bench.prefetch({.depth = 1, .sync_interval = 3});
  std::vector<std::int64_t> due;
  for (std::int64_t k = 0; k < 8; ++k) {
    if (sampler->needs_weights(k)) due.push_back(k);
    (void)bench.step(*sampler, k);
  }
  CHECK(due == std::vector<std::int64_t>{0, 3, 6});
  const auto resumed = bench.prefetch({.depth = 1, .sync_interval = 3});
  resumed->restore(sampler->state());
  CHECK(resumed->needs_weights(8));
  (void)resumed->next(8);
  CHECK_FALSE(resumed->needs_weights(10));
  CHECK(resumed->needs_weights(11));
}

TEST_CASE("rows of the weights that are trained have no sampling log-probs to be corrected for") {
  Bench bench;
  const auto sampler = bench.prefetch({.depth = 1});
  const RolloutBatch first = bench.step(*sampler, 0);
  for (const float q : first.parts[0][0]->first().sampling_log_probs) CHECK(std::isnan(q));
  const auto begun = [&](std::int64_t calls) {
    for (int i = 0; i < 400 && bench.table.begun < calls; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  begun(2);
  (void)bench.step(*sampler, 1);
  begun(3);
  const RolloutBatch third = bench.step(*sampler, 2);
  CHECK(third.parts[0][0]->first().sampling_log_probs[0] == -0.5F);
  CHECK(third.parts[0][0]->first().weights_version < 2);
}

TEST_CASE("generations that are too old are made again of the same prompts, and counted") {
  Bench bench, plain;
  const auto sampler = bench.prefetch({.depth = 3, .max_staleness = 1});
  const auto expected = plain.rollouts(config(4, 1, 1, 1, 2));
  double dropped = 0;
  for (std::int64_t k = 0; k < 10; ++k) {
    const RolloutBatch batch = bench.step(*sampler, k);
    CHECK(rows_of(batch) == rows_of(expected->next(k)));
    CHECK(worst(batch.metrics) <= 1);
    dropped += batch.metrics.value("async/dropped");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the queue fills with what will be too old
  }
  CHECK(dropped >= 4);
  CHECK(bench.table.begun >= 10 + static_cast<std::int64_t>(dropped) / 4);
}

TEST_CASE("a failure of the producer comes with its type and text, before what is ready is used up, and again") {
  Bench bench;
  std::string told;
  const auto sampler = bench.prefetch({.depth = 3, .tell = [&](const std::string& line) { told = line; }});
  bench.table.fails_at = 3;  // begun when generation 0 is popped
  (void)bench.step(*sampler, 0);
  for (int i = 0; i < 200 && bench.table.begun < 4; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const os::Stopwatch watch;
  CHECK_THROWS_AS(bench.step(*sampler, 1), std::domain_error);
  CHECK_THROWS_WITH(bench.step(*sampler, 1), "the table has burnt");
  CHECK(watch.seconds() < 1.0);
  CHECK_THAT(told, Catch::Contains("the table has burnt"));
}

namespace {

// A reward that calls back, with the number of its call.
class Calling : public reward::RewardFunction {
 public:
  explicit Calling(std::function<void(int)> then) : then_(std::move(then)) {}
  [[nodiscard]] std::string name() const override { return "calling"; }
  std::vector<double> operator()(const reward::RewardCall& call) override {
    then_(calls_++);
    return std::vector<double>(call.completion_ids.size(), 1.0);
  }

 private:
  std::function<void(int)> then_;
  int calls_ = 0;
};

std::unique_ptr<Prefetch> scored_by(Bench& bench, PrefetchConfig p, std::function<void(int)> then) {
  bench.table.stop = p.stop.get_token();
  return std::make_unique<Prefetch>(
      std::move(p),
      std::make_shared<Shared>(
          sampler::SharedConfig{},
          std::make_shared<Rollouts>(
              rlalgo::support::numbered_prompts(16), bench.table,
              std::vector<sampler::WeightedReward>{{std::make_shared<Calling>(std::move(then)), 1.0}},
              rlalgo::support::decode, config(4, 1, 1, 1, 2), [&bench] { return bench.table.version.load(); })));
}

// Whether it came true within so many milliseconds.
template <class Condition>
bool within(int milliseconds, Condition&& condition) {
  for (; milliseconds > 0 && !condition(); --milliseconds) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

}  // namespace

TEST_CASE("a generation is drawn while the one before is scored, where there is room for both") {
  for (const std::int64_t depth : {1, 2}) {
    Bench bench;
    std::atomic<int> beside{0};
    const auto sampler = scored_by(bench, {.depth = depth, .generations = 6}, [&](int call) {
      if (call == 0 && within(depth > 1 ? 5000 : 20, [&] { return bench.table.begun > 1; })) ++beside;
    });
    (void)bench.step(*sampler, 0);
    for (std::int64_t k = 1; k < 5; ++k) (void)bench.step(*sampler, k);
    CHECK(beside == (depth > 1 ? 1 : 0));  // at the first nothing was popped yet that could have made room
  }
}

TEST_CASE("a score that fails is told while the next generation is drawn") {
  Bench bench;
  std::atomic<bool> popped{false};  // generation 0
  const auto sampler = scored_by(bench, {.depth = 2}, [&](int call) {
    if (call != 1) return;
    (void)within(5000, [&] { return popped.load(); });
    throw std::domain_error("the reward has burnt");
  });
  bench.table.hangs_at = 2;
  (void)bench.step(*sampler, 0);
  popped = true;
  const os::Stopwatch watch;
  CHECK_THROWS_WITH(bench.step(*sampler, 1), Catch::Contains("the reward has burnt"));
  CHECK(watch.seconds() < 5.0);
}

TEST_CASE("a score that hangs is found out, also where no generation is left to be drawn") {
  Bench bench;
  std::atomic<bool> hangs{true};
  const auto sampler = scored_by(bench, {.depth = 2, .generations = 2, .stall_seconds = 0.3}, [&](int call) {
    while (call == 1 && hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  (void)bench.step(*sampler, 0);
  CHECK_THROWS_WITH(bench.step(*sampler, 1), Catch::Contains("[rlalgo.sampler.9]"));
  hangs = false;
}

TEST_CASE("what shares the turns waits for the draw and for the score") {
  Bench bench, other;
  std::atomic<bool> holds{true}, scores{false};
  const PrefetchConfig p{.depth = 2, .generations = 2};
  const auto sampler = scored_by(bench, p, [&](int call) {
    if (call == 1) scores = true;
    while (call == 1 && holds) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  (void)bench.step(*sampler, 0);
  REQUIRE(within(5000, [&] { return scores.load(); }));
  const auto evaluation = other.prefetch({.depth = 0, .mutex = p.mutex, .scoring_mutex = p.scoring_mutex});
  auto done = std::async(std::launch::async, [&] { return evaluation->next(0); });
  CHECK(done.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  holds = false;
  CHECK(done.get().parts.size() == 1);
  (void)bench.step(*sampler, 1);
}

TEST_CASE("a producer that hangs is found out, and ends within the token of its stop") {
  Bench bench;
  const os::Stopwatch watch;
  {
    const auto sampler = bench.prefetch({.depth = 1, .stall_seconds = 0.3});
    bench.table.hangs_at = 1;
    (void)bench.step(*sampler, 0);
    CHECK_THROWS_WITH(bench.step(*sampler, 1), Catch::Contains("[rlalgo.sampler.9]"));
    CHECK(watch.seconds() > 0.25);
  }
  CHECK(watch.seconds() < 5.0);
}

TEST_CASE("a stop that is asked for ends the wait, and leaves everything to be saved and gone on with") {
  Bench bench;
  const auto c = config(2, 4, 2, 1, 2);  // two generations a step
  const auto sampler = bench.prefetch({.depth = 3}, c);
  bench.table.hangs_at = 3;
  (void)bench.step(*sampler, 0);
  std::thread later([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    os::Interruption::request(SIGINT);
  });
  CHECK_THROWS_AS(bench.step(*sampler, 1), os::Interrupted);
  later.join();
  os::Interruption::clear();
  const std::string saved = sampler->state().dump();
  Bench fresh, plain;
  const auto resumed = fresh.prefetch({.depth = 3}, c);
  resumed->restore(sampler::Json::parse(saved));
  const auto expected = plain.rollouts(c);
  (void)expected->next(0);
  for (std::int64_t k = 1; k < 5; ++k) CHECK(rows_of(fresh.step(*resumed, k)) == rows_of(expected->next(k)));
  CHECK(fresh.table.begun <= 10);  // 3 to 9 are trained on, three more are ready: generation 2 was there
}

TEST_CASE(
    "a killed run that goes on trains on every prompt once: the queue is in the state, what was under way is not") {
  for (const auto& c : {config(4, 1, 1, 1, 2), config(2, 2, 3, 1, 2), config(2, 4, 2, 1, 2), config(2, 1, 3, 2, 2)})
    for (const std::int64_t saved_at : {1, 2, 5})
      for (const auto& [depth, later] : {std::pair{1, 1}, {3, 3}, {3, 1}, {3, 0}, {0, 2}}) {
        INFO("S " << c.geometry.steps_per_generation << " saved after " << saved_at << " depth " << depth << " then "
                  << later);
        Bench first_bench, second_bench, plain;
        const auto expected = plain.rollouts(c);
        std::string saved;
        std::int64_t ready = 0;
        {
          const auto first = first_bench.prefetch({.depth = depth}, c);
          for (std::int64_t k = 0; k < saved_at; ++k) {
            (void)first_bench.step(*first, k);
            (void)expected->next(k);
          }
          if (saved_at == 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
          saved = first->state().dump();
        }
        const auto state = sampler::Json::parse(saved);
        ready = static_cast<std::int64_t>(state.value("queue", sampler::Json::array()).size());
        CHECK(ready <= depth);
        const auto second = second_bench.prefetch({.depth = later}, c);
        second->restore(state);
        CHECK(second->state().dump() == saved);
        std::int64_t generations = 0;
        for (std::int64_t k = saved_at; k < saved_at + 7; ++k) {
          const RolloutBatch batch = second_bench.step(*second, k), same = expected->next(k);
          CHECK(rows_of(batch) == rows_of(same));
          for (const auto& generation : batch.fresh) {
            ++generations;
            CHECK(generation->rewards.columns() == 1);
            for (const data::Episode& r : generation->episodes)
              CHECK(r.first().text == rlalgo::support::decode(r.first().completion_ids));
          }
          if (!batch.fresh.empty()) CHECK(batch.metrics.value("num_tokens") == same.metrics.value("num_tokens"));
        }
        CHECK(second_bench.table.begun <= std::max<std::int64_t>(0, generations - ready) + later);
      }
}

TEST_CASE("a state whose queue does not fit is refused and changes nothing") {
  Bench bench;
  const auto sampler = bench.prefetch({.depth = 2});
  (void)bench.step(*sampler, 0);
  sampler::Json good;
  for (int i = 0; i < 400; ++i) {
    good = sampler->state();
    if (good.contains("queue") && good["queue"].size() == 2) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  REQUIRE(good["queue"].size() == 2);
  const auto refused = [&](auto&& spoil) {
    sampler::Json bad = good;
    spoil(bad);
    const auto other = bench.prefetch({.depth = 2});
    const std::string before = other->state().dump();
    CHECK_THROWS_WITH(other->restore(bad), Catch::Contains("[rlalgo.sampler.7]"));
    CHECK(other->state().dump() == before);
  };
  refused([](sampler::Json& s) { s["queue"][1]["number"] = 5; });
  refused([](sampler::Json& s) { s["queue"][0]["number"] = -1; });
  refused([](sampler::Json& s) { s["queue"][0].erase("metrics"); });
  refused([](sampler::Json& s) { s["queue"][0]["rollouts"].erase(0); });
  refused([](sampler::Json& s) { s["queue"][0]["metrics"][0]["kind"] = 9; });
  const auto ahead = bench.prefetch({.depth = 2});
  sampler::Json later = good;
  later["queue"].erase(0);
  ahead->restore(later);
  CHECK_THROWS_WITH(ahead->next(1), Catch::Contains("[rlalgo.sampler.7]"));
}

TEST_CASE("streamed micro-batches are handed over one after the other, and make the batch that is made in one") {
  for (const std::int64_t depth : {0, 1, 3})
    for (const std::int64_t groups : {1, 2, 5})
      for (const auto& c : {config(4, 1, 1, 1, 2), config(2, 6, 6, 1, 4), config(3, 4, 4, 1, 2), config(2, 4, 2, 1, 2),
                            config(4, 1, 3, 1, 2), config(2, 2, 2, 2, 4), config(2, 3, 2, 1, 2)}) {
        INFO("depth " << depth << " groups " << groups << " b " << c.geometry.micro_batch_size << " S "
                      << c.geometry.steps_per_generation);
        Bench bench, plain;
        const auto sampler = bench.prefetch({.depth = depth, .stream_groups = groups}, c);
        const auto expected = plain.rollouts(c);
        for (std::int64_t k = 0; k < 7; ++k) {
          plain.table.version = k;
          RolloutBatch batch = bench.step(*sampler, k);
          const RolloutBatch same = expected->next(k);
          REQUIRE(batch.is_open());
          REQUIRE(batch.parts.size() == same.parts.size());
          std::size_t seen = 0;
          for (std::size_t p = 0; p < batch.parts.size(); ++p) {
            REQUIRE(batch.parts[p].size() == same.parts[p].size());
            CHECK(batch.parts[p][0] == nullptr);
            sampler->pull(batch);
            for (; seen < batch.fresh.size(); ++seen) {
              CHECK(batch.fresh[seen].begin % static_cast<std::size_t>(c.geometry.num_generations) == 0);
              for (const data::Episode& r : batch.fresh[seen].episodes()) CHECK(r.rewards.size() == 1);
            }
            for (std::size_t i = 0; i < batch.parts[p].size(); ++i) {
              CHECK(batch.parts[p][i]->rewards == same.parts[p][i]->rewards);
              CHECK(batch.parts[p][i]->dataset_row == same.parts[p][i]->dataset_row);
              CHECK(batch.parts[p][i]->first().text ==
                    rlalgo::support::decode(batch.parts[p][i]->first().completion_ids));
              if (depth == 0 && k == 0)
                CHECK(batch.parts[p][i]->first().completion_ids == same.parts[p][i]->first().completion_ids);
            }
          }
          std::size_t rows = 0, all = 0;  // every fresh row once
          for (const auto& fresh : batch.fresh) rows += fresh.episodes().size();
          for (const auto& fresh : same.fresh) all += fresh.episodes().size();
          CHECK(rows == all);
          CHECK_FALSE(batch.is_open());
          CHECK_THROWS_WITH(sampler->pull(batch), Catch::Contains("[rlalgo.sampler.11]"));
          CHECK(batch.seconds.size() == 1);
          for (const auto& [name, value] : same.metrics.values()) CHECK(batch.metrics.value(name) == Approx(value));
          if (!batch.fresh.empty() && depth == 0) CHECK(worst(batch.metrics) == 0);
        }
      }
}

TEST_CASE("a streamed step begins before its generation is finished, and one that is given up is as if never begun") {
  const auto c = config(2, 4, 4, 1, 2);  // four groups, each a micro-batch
  for (const std::int64_t depth : {0, 2}) {
    Bench bench, plain;
    PrefetchConfig p{.depth = depth, .stream_groups = 1};
    const auto sampler = bench.prefetch(p, c);
    const auto finish = [&](RolloutBatch& batch) {
      while (batch.is_open()) sampler->pull(batch);
    };
    RolloutBatch first = bench.step(*sampler, 0);
    finish(first);
    bench.table.from = 4;  // of its eight completions
    bench.table.hangs_at = 3;
    for (std::int64_t k = 1; k < 3; ++k) {
      RolloutBatch batch = bench.step(*sampler, k);
      finish(batch);
    }
    const std::string before = sampler->state().dump();
    RolloutBatch part = bench.step(*sampler, 3);
    sampler->pull(part);
    sampler->pull(part);  // while the third group hangs
    CHECK(part.parts[1][0]->first().completion_ids[2] == 3);
    CHECK(part.parts[2][0] == nullptr);
    CHECK(part.fresh.size() == 2);
    os::Interruption::request(SIGINT);
    CHECK_THROWS_AS(sampler->pull(part), os::Interrupted);
    os::Interruption::clear();
    CHECK(sampler->state().dump() == before);
    bench.table.hangs_at = -1;
    RolloutBatch again = bench.step(*sampler, 3);
    finish(again);
    const auto expected = plain.rollouts(c);
    for (std::int64_t k = 0; k < 3; ++k) (void)expected->next(k);
    CHECK(rows_of(again) == rows_of(expected->next(3)));
  }
}

TEST_CASE("a streamed generation that fails half way fails the step, with its cause") {
  Bench bench;
  const auto sampler = bench.prefetch({.depth = 1, .stream_groups = 1}, config(2, 4, 4, 1, 2));
  bench.table.from = 6;
  bench.table.fails_at = 0;
  RolloutBatch batch = bench.step(*sampler, 0);
  const auto finish = [&] {  // the last part fails, or one before it that is asked for later than that
    while (batch.is_open()) sampler->pull(batch);
  };
  CHECK_THROWS_WITH(finish(), "the table has burnt");
  batch = sampler->next(0);
  CHECK_THROWS_WITH(sampler->pull(batch), "the table has burnt");
}

namespace {

// Of every piece but the last of a generation it does not end before the generator has begun with the next one.
class Waiting : public FirstToken {
 public:
  Waiting(SnapshotTable& table, std::int64_t pieces) : table_(table), pieces_(pieces) {}
  std::vector<double> operator()(const reward::RewardCall& call) override {
    const std::int64_t piece = calls_++;
    const os::Deadline deadline(10);
    while (piece % pieces_ != pieces_ - 1 && table_.begun < piece + 2) {
      if (deadline.passed()) throw std::runtime_error("nothing is generated while rewards are computed");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (piece == fails_at) throw std::domain_error("no idea");
    return FirstToken::operator()(call);
  }
  std::int64_t fails_at = -1;

 private:
  SnapshotTable& table_;
  std::int64_t pieces_, calls_ = 0;
};

}  // namespace

TEST_CASE(
    "a piece is scored while the next one is generated; a reward that fails there fails the step, with its cause") {
  const auto c = config(2, 4, 4, 1, 2);  // four groups
  for (const bool fails : {false, true}) {
    Bench bench;
    const auto reward = std::make_shared<Waiting>(bench.table, 4);
    if (fails) reward->fails_at = 5;  // the second group of the second generation
    PrefetchConfig p{.depth = 0, .stream_groups = 1};
    bench.table.stop = p.stop.get_token();
    Prefetch sampler(
        p, std::make_shared<Shared>(
               sampler::SharedConfig{},
               std::make_shared<Rollouts>(rlalgo::support::numbered_prompts(16), bench.table,
                                          std::vector<sampler::WeightedReward>{{reward, 1.0}}, rlalgo::support::decode,
                                          c, [&bench] { return bench.table.version.load(); })));
    for (std::int64_t k = 0; k < 2; ++k) {
      RolloutBatch batch = bench.step(sampler, k);
      const auto finish = [&] {
        while (batch.is_open()) sampler.pull(batch);
      };
      if (fails && k == 1) {
        CHECK_THROWS_WITH(finish(), Catch::Contains("[rlalgo.reward.2]") && Catch::Contains("no idea"));
      } else {
        finish();
        CHECK(batch.parts[3][1]->rewards.size() == 1);
      }
    }
  }
}

TEST_CASE("a streamed run that is resumed goes on with the next prompts") {
  const auto c = config(2, 4, 4, 1, 2);
  for (const std::int64_t later : {0, 2}) {
    Bench bench, other, plain;
    const auto sampler = bench.prefetch({.depth = 2, .stream_groups = 1}, c);
    const auto run = [](Bench& b, Prefetch& s, std::int64_t k) {
      RolloutBatch batch = b.step(s, k);
      while (batch.is_open()) s.pull(batch);
      return rows_of(batch);
    };
    const auto plain_sampler = plain.rollouts(c);
    for (std::int64_t k = 0; k < 3; ++k) CHECK(run(bench, *sampler, k) == rows_of(plain_sampler->next(k)));
    const auto state = sampler::Json::parse(sampler->state().dump());
    const auto resumed = other.prefetch({.depth = later, .stream_groups = later == 0 ? 2 : 0}, c);
    resumed->restore(state);
    for (std::int64_t k = 3; k < 8; ++k) CHECK(run(other, *resumed, k) == rows_of(plain_sampler->next(k)));
  }
}

TEST_CASE("settings that cannot work are refused") {
  Bench bench;
  for (const PrefetchConfig& bad :
       {PrefetchConfig{.depth = -1}, PrefetchConfig{.sync_interval = 0}, PrefetchConfig{.stream_groups = -1},
        PrefetchConfig{.sync_interval = 4, .max_staleness = 2}})
    CHECK_THROWS_WITH(bench.prefetch(bad), Catch::Contains("[rlalgo.sampler.8]"));
}
