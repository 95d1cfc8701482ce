#include <rlalgo/sampler/shared.hpp>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <support/catch.hpp>
#include <support/table_generator.hpp>
#include <support/thread_world.hpp>

#include <rlalgo/sampler/prefetch.hpp>
#include <rlalgo/sampler/replay.hpp>
#include <rlalgo/sampler/reroll.hpp>
#include <rlalgo/sampler/rollouts.hpp>

#include "sampler/geometry_config.hpp"

using namespace rlalgo;
using data::Finish;
using rlalgo::support::completion;
using rlalgo::support::TableGenerator;
using sampler::RolloutBatch;
using sampler::RolloutsConfig;
using Shared = sampler::Shared<sampler::Rollouts<TableGenerator>>;

static_assert(sampler::Sampler<Shared> && sampler::GenerationSource<Shared>);
static_assert(sampler::GenerationSource<sampler::Replay<sampler::Reroll<Shared>>>);

namespace {

// Scores a completion by its first token; NaN for the token 9. Logs a number that JSON cannot write.
class FirstToken : public reward::RewardFunction {
 public:
  [[nodiscard]] std::string name() const override { return "first_token"; }
  std::vector<double> operator()(const reward::RewardCall& call) override {
    std::vector<double> out;
    for (const auto ids : call.completion_ids)
      out.push_back(ids.empty() || ids[0] == 9 ? std::numeric_limits<double>::quiet_NaN() : ids[0]);
    if (call.log != nullptr) {
      call.log->metrics.emplace_back("seen", static_cast<double>(call.size()));
      data::Json first = data::Json::array();
      for (const auto ids : call.completion_ids) first.push_back(ids.empty() ? -1 : ids[0]);
      call.log->extras.emplace_back("first", std::move(first));
    }
    return out;
  }
};

// Every prompt of 0 … 15 gets one of three completions; 0 is the end token.
std::vector<std::vector<data::Completion>> table() {
  std::vector<std::vector<data::Completion>> out;
  for (data::TokenId p = 0; p < 16; ++p)
    out.push_back({completion({1, p + 10, 0}), completion({2, 0}), completion({3, 3, 3, 3}, Finish::length)});
  return out;
}

struct Bench {
  TableGenerator generator{table()};

  Shared shared(RolloutsConfig config, sampler::SharedConfig together) {
    config.sampling.stop_ids = {0};
    return {std::move(together), std::make_shared<sampler::Rollouts<TableGenerator>>(
                                     rlalgo::support::numbered_prompts(16), generator,
                                     std::vector<sampler::WeightedReward>{{std::make_shared<FirstToken>(), 1.0}},
                                     rlalgo::support::decode, config, [] { return std::int64_t{0}; })};
  }
};

RolloutsConfig config(std::int64_t b, std::int64_t a, std::int64_t s, std::int64_t mu, std::int64_t g) {
  return rlalgo::support::geometry_config(b, a, s, mu, g, false);
}

using RowsOfParts = std::vector<std::vector<std::int64_t>>;
RowsOfParts rows_of(const RolloutBatch& batch) {
  RowsOfParts out;
  for (const auto& part : batch.parts) {
    out.emplace_back();
    for (const data::Episode* r : part) out.back().push_back(r->dataset_row - 100);
  }
  return out;
}

}  // namespace

TEST_CASE("on one rank it is the source within: what it gives, when it draws ahead, its state") {
  Bench plain, around;
  for (const auto& world : {std::shared_ptr<distributed::World>(), std::make_shared<distributed::World>()}) {
    Shared found = around.shared(config(4, 3, 3, 2, 4), {.world = world}),
           expected = plain.shared(config(4, 3, 3, 2, 4), {});
    CHECK(found.draws_ahead());
    for (std::int64_t k = 0; k < 4; ++k) {
      const RolloutBatch x = expected.next(k), y = found.next(k);
      CHECK(rows_of(x) == rows_of(y));
      CHECK(x.metrics.values() == y.metrics.values());
      CHECK(expected.state().dump() == found.state().dump());
    }
  }
}

TEST_CASE(
    "parts that are finished one after the other make the generation that is made in one, on any number of ranks") {
  const RolloutsConfig settings = config(4, 4, 4, 1, 2);  // 8 groups
  Bench alone;
  Shared one = alone.shared(settings, {});
  const sampler::Made whole = one.produce({.number = 3, .step = 3});
  for (const int ranks : {1, 2, 3})
    for (const std::int64_t groups : {1, 3, 100})
      support::on_ranks(ranks, [&](const std::shared_ptr<distributed::World>& world) {
        Bench bench;
        Shared sampler = bench.shared(settings, {.world = world});
        const auto open = sampler.open({.number = 3, .step = 3, .groups = groups});
        const std::string before = sampler.state().dump();
        std::vector<std::size_t> finished;
        while (!open->whole()) {
          RANK_CHECK(sampler.state().dump() == before);  // given up here it would be as if it was never asked for
          finished.push_back(open->pull());
        }
        const auto most = static_cast<std::size_t>(groups * ranks);
        RANK_CHECK(finished.front() == std::min<std::size_t>(8, most) * 2);
        RANK_CHECK(finished.size() == (8 + most - 1) / most);
        for (std::size_t i = 0; i < whole.generation->episodes.size(); ++i) {
          RANK_CHECK(open->made().generation->episodes[i].first().completion_ids ==
                     whole.generation->episodes[i].first().completion_ids);
          RANK_CHECK(open->made().generation->episodes[i].rewards == whole.generation->episodes[i].rewards);
          RANK_CHECK(open->made().generation->rewards(i, 0) == whole.generation->rewards(i, 0));
        }
        RANK_CHECK(open->made().tokens == whole.tokens);
        for (const auto& [name, value] : whole.about.metrics.values())
          if (name != "seen") RANK_CHECK(open->made().about.metrics.value(name) == Approx(value));
      });
}

TEST_CASE("ranks make their share of the groups and have all of them, with the metrics and the state of one rank") {
  RolloutsConfig whole = config(4, 3, 3, 2, 4);  // 3 groups
  whole.mask_truncated_completions = true;
  Bench alone;
  Shared one = alone.shared(whole, {});
  const RolloutBatch expected = one.next(0);
  for (const int ranks : {2, 3, 5}) {
    std::atomic<std::size_t> asked{0};
    support::on_ranks(ranks, [&](const std::shared_ptr<distributed::World>& world) {
      Bench bench;
      Shared sampler = bench.shared(whole, {.world = world});
      const RolloutBatch batch = sampler.next(0);
      for (const auto& call : bench.generator.calls) asked += call.requests.size();
      RANK_CHECK(rows_of(batch) == rows_of(expected));
      for (std::size_t p = 0; p < batch.parts.size(); ++p)
        for (std::size_t i = 0; i < batch.parts[p].size(); ++i) {
          const data::Episode &mine = *batch.parts[p][i], &theirs = *expected.parts[p][i];
          RANK_CHECK(mine.first().completion_ids == theirs.first().completion_ids);
          RANK_CHECK(mine.first().loss_mask == theirs.first().loss_mask);
          RANK_CHECK(mine.first().text == theirs.first().text);
          RANK_CHECK(mine.rewards == theirs.rewards);
          RANK_CHECK(mine.logged == theirs.logged);
        }
      RANK_CHECK(batch.fresh.size() == 1);
      RANK_CHECK(batch.fresh[0]->groups.count() == 3);
      for (const auto& [name, value] : expected.metrics.values())
        if (name != "seen") RANK_CHECK(batch.metrics.value(name) == Approx(value));  // "seen" is the rank's own share
      RANK_CHECK(batch.metrics.values().size() == expected.metrics.values().size());
      RANK_CHECK(sampler.state().dump() == one.state().dump());
    });
    CHECK(asked == 3);  // no prompt is asked for twice
  }
}

namespace {

struct Server : TableGenerator {
  static constexpr inference::WeightSource weights = inference::WeightSource::remote;
  using TableGenerator::TableGenerator;
  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig& sampling,
                                                      inference::DrawKey key) {
    auto out = TableGenerator::generate(requests, sampling, key);
    for (std::size_t g = 0; g < out.size(); ++g)
      for (data::Completion& one : out[g]) {
        if (&one == &out[g][1]) {
          one.further = {completion({4, 5}), completion({6, 0})};
          one.further[0].prompt_ids = {8, 8};
          one.further[1].prompt_ids = {9};
          one.further[1].loss_mask = {1, 0};
        }
        one.weights_version = 11;
        one.prompt_ids = requests[g].prompt;
        one.prompt_ids.push_back(5);  // the environment spoke first
        one.interaction = std::make_shared<const data::Interaction>(
            data::Interaction{.messages = {{{"role", "assistant"}, {"content", "message"}}},
                              .last_text = "last of " + std::to_string(requests[g].prompt[0]),
                              .reward = requests[g].prompt[0] % 2 == 0 ? 0.1 : std::nan(""),
                              .turns = 2,
                              .has_tools = true,
                              .tool_calls = 3,
                              .tool_failures = 1});
      }
    return out;
  }
};

class Environment : public reward::RewardFunction {
 public:
  [[nodiscard]] std::string name() const override { return "environment"; }
  std::vector<double> operator()(const reward::RewardCall& call) override {
    std::vector<double> out;
    for (std::size_t i = 0; i < call.size(); ++i)
      out.push_back(call.columns[i].value("environment_reward", 7.0) + static_cast<double>(call.texts[i].size()));
    return out;
  }
};

}  // namespace

TEST_CASE("a server is asked by rank 0 alone, once for all groups, and its episodes are scored where they belong") {
  const auto sampler = [](Server& server, const std::shared_ptr<distributed::World>& world, bool locks) {
    RolloutsConfig settings = config(4, 3, 3, 2, 4);  // 3 groups
    settings.sampling.stop_ids = {0};
    using Rollouts = sampler::Rollouts<Server>;
    return sampler::Shared<Rollouts>(
        {.world = world, .mutex = locks ? std::make_shared<std::mutex>() : nullptr},
        std::make_shared<Rollouts>(rlalgo::support::numbered_prompts(16), server,
                                   std::vector<sampler::WeightedReward>{{std::make_shared<Environment>(), 1.0}},
                                   rlalgo::support::decode, settings, [] { return std::int64_t{2}; }));
  };
  Server alone(table());
  auto one = sampler(alone, nullptr, false);
  const RolloutBatch expected = one.next(0);
  for (const int ranks : {2, 5})
    for (const bool locks : {false, true})
      support::on_ranks(ranks, [&](const std::shared_ptr<distributed::World>& world) {
        Server server(table());
        auto mine = sampler(server, world, locks);
        const RolloutBatch batch = mine.next(0);
        RANK_CHECK(server.calls.size() == (world->rank() == 0 ? 1U : 0U));
        if (world->rank() == 0) RANK_CHECK(server.calls[0].requests.size() == alone.calls[0].requests.size());
        RANK_CHECK(rows_of(batch) == rows_of(expected));
        for (std::size_t p = 0; p < batch.parts.size(); ++p)
          for (std::size_t i = 0; i < batch.parts[p].size(); ++i) {
            const data::Episode &here = *batch.parts[p][i], &there = *expected.parts[p][i];
            RANK_CHECK(here.first().completion_ids == there.first().completion_ids);
            RANK_CHECK(here.first().sampling_log_probs == there.first().sampling_log_probs);
            RANK_CHECK(here.first().prompt_ids == there.first().prompt_ids);
            RANK_CHECK(here.rewards == there.rewards);
            RANK_CHECK(here.first().weights_version == 11);
            RANK_CHECK(here.first().text == there.first().text);
            RANK_CHECK(here.rows.size() == there.rows.size());
            for (std::size_t k = 0; k < there.rows.size(); ++k) {
              const data::Row &row = here.rows[k], &wanted = there.rows[k];
              RANK_CHECK(row.prompt_ids == wanted.prompt_ids);
              RANK_CHECK(row.completion_ids == wanted.completion_ids);
              RANK_CHECK(row.sampling_log_probs == wanted.sampling_log_probs);
              RANK_CHECK(row.loss_mask == wanted.loss_mask);
              RANK_CHECK(row.text == wanted.text);
              RANK_CHECK(row.weights_version == 11);
            }
          }
        for (const auto& [name, value] : expected.metrics.values())
          RANK_CHECK(batch.metrics.value(name) == Approx(value));
        RANK_CHECK(mine.state() == one.state());
      });
}

TEST_CASE("combinators around it decide alike on every rank") {
  using Reroll = sampler::Reroll<Shared>;
  RolloutsConfig settings = config(4, 3, 3, 1, 4);
  const auto stack = [&](Bench& bench, const std::shared_ptr<distributed::World>& world) {
    sampler::RerollConfig rerolls{.on = true, .max_groups = 2};
    return sampler::Replay<Reroll>(
        {.capacity = 4},
        std::make_shared<Reroll>(rerolls, std::make_shared<Shared>(bench.shared(settings, {.world = world}))));
  };
  Bench alone;
  auto one = stack(alone, nullptr);
  std::vector<RowsOfParts> expected;
  for (std::int64_t k = 0; k < 5; ++k) expected.push_back(rows_of(one.next(k)));
  support::on_ranks(2, [&](const std::shared_ptr<distributed::World>& world) {
    Bench bench;
    auto mine = stack(bench, world);
    for (std::int64_t k = 0; k < 5; ++k) RANK_CHECK(rows_of(mine.next(k)) == expected[static_cast<std::size_t>(k)]);
    RANK_CHECK(mine.state().dump() == one.state().dump());
  });
}
