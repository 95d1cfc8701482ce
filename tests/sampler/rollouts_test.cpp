#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <support/catch.hpp>
#include <support/table_generator.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/sampler/rollouts.hpp>

#include "sampler/geometry_config.hpp"

using namespace rlalgo;
using data::Finish;
using rlalgo::support::completion;
using rlalgo::support::TableGenerator;
using sampler::Geometry;
using sampler::RolloutBatch;
using sampler::RolloutsConfig;
using Rollouts = sampler::Rollouts<TableGenerator>;

static_assert(sampler::Sampler<Rollouts>);

namespace {

// Scores a completion by its first token; NaN for the token 9. Records the calls it gets.
class FirstToken : public reward::RewardFunction {
 public:
  [[nodiscard]] std::string name() const override { return "first_token"; }
  std::vector<double> operator()(const reward::RewardCall& call) override {
    ++calls;
    last_step = call.step;
    prompts.clear();
    for (const data::Json* prompt : call.prompts) prompts.push_back(*prompt);
    completions.assign(call.completions.begin(), call.completions.end());
    columns.assign(call.columns.begin(), call.columns.end());
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
  int calls = 0;
  std::int64_t last_step = -1;
  std::vector<data::Json> prompts, completions, columns;
};

class Length : public reward::RewardFunction {
 public:
  [[nodiscard]] std::string name() const override { return "length"; }
  std::vector<double> operator()(const reward::RewardCall& call) override {
    std::vector<double> out;
    for (const auto ids : call.completion_ids) out.push_back(static_cast<double>(ids.size()));
    if (wrong_count || ++calls == fails_at) out.pop_back();
    return out;
  }
  bool wrong_count = false;
  int calls = 0, fails_at = -1;
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
  std::shared_ptr<FirstToken> first_token = std::make_shared<FirstToken>();
  std::int64_t version = 0;

  Rollouts sampler(RolloutsConfig config, std::size_t prompts = 16) {
    config.sampling.stop_ids = {0};
    return Rollouts(rlalgo::support::numbered_prompts(prompts), generator, {{first_token, 1.0}},
                    rlalgo::support::decode, config, [this] { return version; });
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

TEST_CASE("S = a: one generation a step, groups in order, micro-batches of b rows") {
  Bench bench;
  Rollouts sampler = bench.sampler(config(4, 2, 2, 1, 4));
  const RolloutBatch first = sampler.next(0);
  CHECK(rows_of(first) == RowsOfParts{{0, 0, 0, 0}, {1, 1, 1, 1}});
  REQUIRE(first.fresh.size() == 1);
  CHECK(first.fresh[0]->groups.count() == 2);
  CHECK(rows_of(sampler.next(1)) == RowsOfParts{{2, 2, 2, 2}, {3, 3, 3, 3}});
  CHECK(bench.generator.calls.size() == 2);
  CHECK(bench.first_token->calls == 2);
  CHECK(bench.first_token->last_step == 1);
}

TEST_CASE("prompts may limit their completions: the largest limit of a generation holds, below the sampling's") {
  Bench bench;
  RolloutsConfig limited = config(4, 2, 2, 1, 4);
  limited.sampling.max_new_tokens = 105;
  limited.completion_limit = [](const data::TokenizedPrompt& prompt) { return prompt.row; };  // 100, 101, …
  Rollouts sampler = bench.sampler(limited);
  for (std::int64_t step = 0; step < 4; ++step) (void)sampler.next(step);
  std::vector<std::int64_t> limits;
  for (const auto& call : bench.generator.calls) limits.push_back(call.max_new_tokens);
  CHECK(limits == std::vector<std::int64_t>{101, 103, 105, 105});
}

TEST_CASE("G divides N but not b: a group straddles micro-batches") {
  Bench bench;
  Rollouts sampler = bench.sampler(config(4, 3, 3, 1, 6));
  CHECK(rows_of(sampler.next(0)) == RowsOfParts{{0, 0, 0, 0}, {0, 0, 1, 1}, {1, 1, 1, 1}});
}

TEST_CASE("S < a: a step makes several generations and trains on all of them") {
  Bench bench;
  Rollouts sampler = bench.sampler(config(2, 4, 2, 1, 2));
  const RolloutBatch batch = sampler.next(0);
  CHECK(rows_of(batch) == RowsOfParts{{0, 0}, {1, 1}, {2, 2}, {3, 3}});
  CHECK(batch.fresh.size() == 2);
  for (const auto& part : batch.parts)
    for (const data::Episode* r : part)
      CHECK(r->first().completion_ids.size() >= 2);  // the first generation is still alive
  CHECK(rows_of(sampler.next(1)) == RowsOfParts{{4, 4}, {5, 5}, {6, 6}, {7, 7}});
}

TEST_CASE("S > a: a generation serves several steps; then a straddling one") {
  Bench bench;
  Rollouts sampler = bench.sampler(config(2, 2, 3, 1, 2));
  const RolloutBatch first = sampler.next(0);
  CHECK(rows_of(first) == RowsOfParts{{0, 0}, {1, 1}});
  CHECK(first.fresh.size() == 1);
  bench.version = 1;
  const RolloutBatch second = sampler.next(1);
  CHECK(rows_of(second) == RowsOfParts{{2, 2}, {3, 3}});
  CHECK(second.fresh.size() == 1);
  CHECK(second.parts[0][0]->first().weights_version == 0);
  CHECK(second.parts[1][0]->first().weights_version == 1);
  const RolloutBatch third = sampler.next(2);
  CHECK(rows_of(third) == RowsOfParts{{4, 4}, {5, 5}});
  CHECK(third.fresh.empty());
  CHECK(third.metrics.empty());
}

TEST_CASE("μ = 2 replays the same slices in the same order") {
  Bench bench;
  Rollouts sampler = bench.sampler(config(2, 2, 2, 2, 2));
  const RolloutBatch first = sampler.next(0);
  first.parts[0][0]->advantage = 0.25;
  const RolloutBatch again = sampler.next(1);
  CHECK(first.parts == again.parts);
  CHECK(again.parts[0][0]->advantage == 0.25);
  CHECK(again.fresh.empty());
  CHECK(rows_of(sampler.next(2)) == RowsOfParts{{2, 2}, {3, 3}});

  Bench within;  // both replays inside one step
  Rollouts short_steps = within.sampler(config(2, 4, 2, 2, 2));
  CHECK(rows_of(short_steps.next(0)) == RowsOfParts{{0, 0}, {1, 1}, {0, 0}, {1, 1}});
}

TEST_CASE("requests: one per prompt with G completions, draw indices by position, key by generation number") {
  Bench bench;
  RolloutsConfig c = config(4, 2, 2, 1, 4);
  c.seed = 77;
  Rollouts sampler = bench.sampler(c);
  (void)sampler.next(0);
  (void)sampler.next(1);
  const TableGenerator::Call& call = bench.generator.calls[1];
  CHECK(call.key.seed == 77);
  CHECK(call.key.step == 1);
  REQUIRE(call.requests.size() == 2);
  CHECK(call.requests[0].prompt == std::vector<data::TokenId>{2, 7});
  CHECK(call.requests[0].count == 4);
  CHECK(call.requests[0].first_index == 0);
  CHECK(call.requests[1].first_index == 4);
}

TEST_CASE("a rollout carries everything that is known about a completion") {
  Bench bench;
  bench.version = 5;
  Rollouts sampler = bench.sampler(config(3, 1, 1, 1, 3));
  const RolloutBatch batch = sampler.next(0);
  const data::Episode& r = *batch.parts[0][0];
  CHECK(r.dataset_row == 100);
  CHECK(r.prompt == "prompt 0");
  CHECK(r.columns == data::Json{{"answer", "0"}});
  CHECK(r.first().prompt_ids == std::vector<data::TokenId>{0, 7});
  CHECK(r.first().completion_ids == std::vector<data::TokenId>{1, 10, 0});
  CHECK(r.first().sampling_log_probs == completion({1, 10, 0}).log_probs);
  CHECK(r.first().text == "1 10");
  CHECK(r.first().finish == Finish::stop);
  CHECK(batch.parts[0][2]->first().finish == Finish::length);
  CHECK(r.first().weights_version == 5);
  CHECK(r.rewards == std::vector<double>{1});
  CHECK(r.logged == data::Json{{"first", 1}});
  CHECK(batch.parts[0][2]->logged == data::Json{{"first", 3}});
  CHECK(r.first().loss_mask.empty());
  CHECK(r.first().old_log_probs.empty());
  CHECK(batch.fresh[0]->rewards(2, 0) == 3.0);
}

TEST_CASE("reward functions see prompts, completions and columns of their rows") {
  Bench bench;
  (void)bench.sampler(config(3, 1, 1, 1, 3)).next(0);
  CHECK(bench.first_token->prompts[0] == "prompt 0");
  CHECK(bench.first_token->completions[0] == "1 10");
  CHECK(bench.first_token->columns[2]["answer"] == "0");

  auto prompts = rlalgo::support::numbered_prompts(1);
  prompts[0].prompt = data::Json::array({data::Json{{"role", "user"}, {"content", "hi"}}});
  Rollouts chat(prompts, bench.generator, {{bench.first_token, 1.0}}, rlalgo::support::decode, config(3, 1, 1, 1, 3),
                [] { return std::int64_t{0}; });
  (void)chat.next(0);
  CHECK(bench.first_token->completions[1] == data::Json{{{"role", "assistant"}, {"content", "2"}}});
}

TEST_CASE("metrics of a generation") {
  Bench bench;
  Rollouts sampler = bench.sampler(config(3, 1, 1, 1, 3));
  const core::Metrics m = sampler.next(0).metrics;
  // completions of 3, 2 and 4 tokens, the last one cut off; rewards 1 2 3; prompts of 2 tokens
  CHECK(m.value("num_tokens") == 3 * 2 + 9);
  CHECK(m.value("completions/mean_length") == 3.0);
  CHECK(m.value("completions/min_length") == 2.0);
  CHECK(m.value("completions/max_length") == 4.0);
  CHECK(m.value("completions/clipped_ratio") == Approx(1.0 / 3));
  CHECK(m.value("completions/mean_terminated_length") == 2.5);
  CHECK(m.value("completions/min_terminated_length") == 2.0);
  CHECK(m.value("completions/max_terminated_length") == 3.0);
  CHECK(m.value("rewards/first_token/mean") == 2.0);
  CHECK(m.value("rewards/first_token/std") == 1.0);
  CHECK(m.value("reward") == 2.0);
  CHECK(m.value("reward_std") == 1.0);
  CHECK(m.value("seen") == 3.0);
  CHECK(sampler.next(1).metrics.value("num_tokens") == 30.0);
}

TEST_CASE("two reward functions: each its own metrics, the reward is the weighted sum over what applies") {
  TableGenerator generator({{completion({1, 0}), completion({9, 5, 0})}});
  Rollouts sampler(rlalgo::support::numbered_prompts(1), generator,
                   {{std::make_shared<FirstToken>(), 2.0}, {std::make_shared<Length>(), 0.5}}, rlalgo::support::decode,
                   config(2, 1, 1, 1, 2), [] { return std::int64_t{0}; });
  const RolloutBatch batch = sampler.next(0);
  // rows (1, 2) and (NaN, 3): sums 2·1 + 0.5·2 = 3 and 0.5·3 = 1.5
  CHECK(batch.metrics.value("rewards/first_token/mean") == 1.0);
  CHECK(std::isnan(batch.metrics.value("rewards/first_token/std")));
  CHECK(batch.metrics.value("rewards/length/mean") == 2.5);
  CHECK(batch.metrics.value("reward") == 2.25);
  CHECK(batch.metrics.value("reward_std") == Approx(std::sqrt(2 * 0.75 * 0.75)));
  CHECK(batch.warnings.empty());
}

TEST_CASE("a completion whose environment failed has no reward of any function and no loss, and is counted") {
  const auto with = [](data::Completion one, data::Interaction interaction) {
    one.interaction = std::make_shared<const data::Interaction>(std::move(interaction));
    return one;
  };
  TableGenerator generator(
      {{with(completion({1, 0}), {.messages = "said", .last_text = "said", .turns = 1, .columns = {{"level", 4}}}),
        with(completion({2, 0}), {.messages = nullptr, .turns = 1, .failure = "timeout"}),
        with(completion({3, 3, 0}), {.messages = nullptr, .turns = 2})}});
  auto f = std::make_shared<FirstToken>();
  auto prompts = rlalgo::support::numbered_prompts(1);
  prompts[0].prompt = data::Json::array({data::Json{{"role", "user"}, {"content", "hi"}}});
  Rollouts sampler(prompts, generator, {{f, 1.0}, {std::make_shared<Length>(), 1.0}}, rlalgo::support::decode,
                   config(3, 1, 1, 1, 3), [] { return std::int64_t{0}; });
  const RolloutBatch batch = sampler.next(0);
  const auto& rows = batch.parts.at(0);
  CHECK(std::isnan(rows[1]->rewards[0]));
  CHECK(std::isnan(rows[1]->rewards[1]));
  CHECK(rows[1]->first().loss_mask == std::vector<std::uint8_t>{0, 0});
  CHECK(rows[2]->rewards == std::vector<double>{3, 3});
  CHECK(batch.metrics.value("reward") == (1 + 2 + 3 + 3) / 2.0);
  CHECK(batch.metrics.value("rollout/failed") == Approx(1.0 / 3));
  CHECK(batch.metrics.value("rollout/failed/timeout") == Approx(1.0 / 3));
  // a text is shown as a text although the prompt is a conversation; columns of the episode are columns of its row
  CHECK(f->completions[0] == "said");
  CHECK(f->completions[2].is_array());
  CHECK(f->columns[0]["level"] == 4);
  CHECK_FALSE(f->columns[2].contains("level"));
}

namespace {

// Episodes of one and of three rows; the last row of the second has no end token.
TableGenerator edited_histories() {
  const auto with = [](data::Completion one, std::int64_t turns, const std::string& failure = "") {
    one.interaction = std::make_shared<const data::Interaction>(
        data::Interaction{.messages = nullptr, .reward = std::nan(""), .turns = turns, .failure = failure});
    return one;
  };
  data::Completion three = with(completion({3, 0}), 4);
  three.further = {completion({4, 5, 0}), completion({6, 7})};
  three.further[0].prompt_ids = {8, 8};
  three.further[1].prompt_ids = {9};
  three.further[1].loss_mask = {0, 1};
  return TableGenerator({{with(completion({1, 0}), 1), three, with(completion({2, 0}), 2, "timeout")}});
}

}  // namespace

TEST_CASE("an episode of several rows is one sample: its rewards see all its tokens, its metrics count it once") {
  TableGenerator generator = edited_histories();
  RolloutsConfig c = config(3, 1, 1, 1, 3);
  c.sampling.stop_ids = {0};
  const auto f = std::make_shared<FirstToken>();
  Rollouts sampler(rlalgo::support::numbered_prompts(1), generator, {{f, 1.0}, {std::make_shared<Length>(), 1.0}},
                   rlalgo::support::decode, c, [] { return std::int64_t{4}; });
  const RolloutBatch batch = sampler.next(0);
  REQUIRE(batch.parts.at(0).size() == 3);
  CHECK(batch.fresh[0]->groups.count() == 1);
  const data::Episode& episode = *batch.parts[0][1];
  CHECK(episode.rewards == std::vector<double>{3, 7});
  REQUIRE(episode.rows.size() == 3);
  CHECK(episode.rows[1].prompt_ids == std::vector<data::TokenId>{8, 8});
  CHECK(episode.rows[1].text == "4 5");
  CHECK(episode.dataset_row == 100);
  CHECK(episode.rows[1].weights_version == 4);
  CHECK(episode.rows[2].loss_mask == std::vector<std::uint8_t>{0, 1});
  CHECK(batch.metrics.value("num_tokens") == (2 + 2) + (2 + 2) + (2 + 2) + (2 + 3) + (1 + 1));
  CHECK(batch.metrics.value("completions/max_length") == 6);  // drawn in all rows of one
  CHECK(batch.metrics.value("completions/clipped_ratio") == Approx(1.0 / 3));
  CHECK(batch.metrics.value("rollout/num_turns/mean") == 2.5);
  CHECK(batch.metrics.value("rollout/num_turns/min") == 1);
  CHECK(batch.metrics.value("rollout/num_turns/max") == 4);
  CHECK(batch.metrics.value("rollout/reward/mean") == (3 + 10) / 2.0);
  CHECK(batch.metrics.value("rollout/reward/nonzero_frac") == 1.0);
  CHECK(batch.metrics.value("rollout/n_samples") == 2);
  CHECK(batch.metrics.value("rollout/rows") == 2);
  CHECK(batch.metrics.value("rollout/failed") == Approx(1.0 / 3));
  Bench plain;
  CHECK(std::isnan(plain.sampler(config(3, 1, 1, 1, 3)).next(0).metrics.value("rollout/n_samples")));
}

TEST_CASE("where texts end completions, those that the generator ended are not cut off") {
  for (const bool texts : {false, true}) {
    TableGenerator generator({{completion({1, 5}), completion({2, 6}, Finish::length), completion({3, 7})}});
    RolloutsConfig c = config(3, 1, 1, 1, 3);
    c.sampling.stop_ids = {0};
    if (texts) c.sampling.stop_strings = {"."};
    c.mask_truncated_completions = true;
    Rollouts sampler(rlalgo::support::numbered_prompts(1), generator, {}, rlalgo::support::decode, c,
                     [] { return std::int64_t{0}; });
    const RolloutBatch batch = sampler.next(0);
    const std::vector<std::uint8_t> none = {0, 0};
    CHECK(batch.parts[0][0]->first().loss_mask == (texts ? std::vector<std::uint8_t>() : none));
    CHECK(batch.parts[0][1]->first().loss_mask == none);
    CHECK(batch.metrics.value("completions/clipped_ratio") == Approx(texts ? 1.0 / 3 : 1.0));
  }
}

TEST_CASE("an episode that was cut off in its last row is masked in all") {
  TableGenerator generator = edited_histories();
  RolloutsConfig c = config(3, 1, 1, 1, 3);
  c.sampling.stop_ids = {0};
  c.mask_truncated_completions = true;
  Rollouts sampler(rlalgo::support::numbered_prompts(1), generator, {}, rlalgo::support::decode, c,
                   [] { return std::int64_t{0}; });
  const RolloutBatch batch = sampler.next(0);
  CHECK(batch.parts[0][0]->first().loss_mask.empty());
  const data::Episode& episode = *batch.parts[0][1];
  CHECK(episode.first().loss_mask == std::vector<std::uint8_t>{0, 0});
  CHECK(episode.rows[1].loss_mask == std::vector<std::uint8_t>{0, 0, 0});
  CHECK(episode.rows[2].loss_mask == std::vector<std::uint8_t>{0, 0});
}

TEST_CASE("a half-trained generation comes back with the rows of its episodes, however often it is saved") {
  RolloutsConfig c = config(3, 1, 1, 4, 3);
  c.sampling.stop_ids = {0};
  const auto make = [&](TableGenerator& generator) {
    return std::make_unique<Rollouts>(rlalgo::support::numbered_prompts(1), generator,
                                      std::vector<sampler::WeightedReward>{{std::make_shared<Length>(), 1.0}},
                                      rlalgo::support::decode, c, [] { return std::int64_t{0}; });
  };
  TableGenerator generator = edited_histories();
  auto first = make(generator);
  const RolloutBatch batch = first->next(0);
  batch.parts[0][1]->rows[1].old_log_probs = {-1.5F, -2.5F, -3.5F};
  std::string saved = first->state().dump();
  for (std::int64_t step = 1; step < 4; ++step) {
    auto resumed = make(generator);
    resumed->restore(nlohmann::ordered_json::parse(saved));
    CHECK(resumed->state().dump() == saved);
    const RolloutBatch again = resumed->next(step);
    const auto &was = batch.parts[0][1]->rows, &is = again.parts[0][1]->rows;
    REQUIRE(is.size() == 3);
    for (std::size_t k = 0; k < 3; ++k) {
      CHECK(is[k].prompt_ids == was[k].prompt_ids);
      CHECK(is[k].completion_ids == was[k].completion_ids);
      CHECK(is[k].sampling_log_probs == was[k].sampling_log_probs);
      CHECK(is[k].old_log_probs == was[k].old_log_probs);
      CHECK(is[k].loss_mask == was[k].loss_mask);
      CHECK(is[k].text == was[k].text);
    }
    saved = resumed->state().dump();
  }
  CHECK(generator.calls.size() == 1);
}

TEST_CASE("no terminated completion: the terminated lengths are 0; an unscorable row gives one warning") {
  TableGenerator generator({{completion({9, 9}, Finish::length)}});
  auto f = std::make_shared<FirstToken>();
  RolloutsConfig c = config(2, 1, 1, 1, 2);
  c.sampling.stop_ids = {0};
  Rollouts sampler(rlalgo::support::numbered_prompts(1), generator, {{f, 1.0}}, rlalgo::support::decode, c,
                   [] { return std::int64_t{0}; });
  const RolloutBatch batch = sampler.next(0);
  CHECK(batch.metrics.value("completions/clipped_ratio") == 1.0);
  CHECK(batch.metrics.value("completions/mean_terminated_length") == 0.0);
  CHECK(batch.metrics.value("completions/max_terminated_length") == 0.0);
  CHECK(std::isnan(batch.metrics.value("reward")));
  REQUIRE(batch.warnings.size() == 1);
  CHECK_THAT(batch.warnings[0], Catch::Contains("dataset row 100"));
}

TEST_CASE("any stop id terminates; masked truncated completions carry no loss") {
  TableGenerator generator({{completion({1, 5}), completion({1, 0}), completion({1, 6}, Finish::length)}});
  RolloutsConfig c = config(3, 1, 1, 1, 3);
  c.sampling.stop_ids = {0, 5};
  c.mask_truncated_completions = true;
  Rollouts sampler(rlalgo::support::numbered_prompts(1), generator, {}, rlalgo::support::decode, c,
                   [] { return std::int64_t{0}; });
  const RolloutBatch batch = sampler.next(0);
  CHECK(batch.parts[0][0]->first().loss_mask.empty());
  CHECK(batch.parts[0][1]->first().loss_mask.empty());
  CHECK(batch.parts[0][2]->first().loss_mask == std::vector<std::uint8_t>{0, 0});
  CHECK(batch.metrics.value("completions/mean_length") == 2.0);
  CHECK(batch.metrics.value("completions/clipped_ratio") == Approx(1.0 / 3));
}

TEST_CASE("epochs: shuffled, incomplete generation dropped, every epoch another order") {
  Bench bench;
  RolloutsConfig c = config(4, 1, 1, 1, 2);
  c.shuffle = true;
  Rollouts sampler = bench.sampler(c, 5);  // two generations of two prompts an epoch
  std::vector<std::int64_t> epochs[2];
  for (std::int64_t step = 0; step < 4; ++step) {
    const RolloutBatch batch = sampler.next(step);
    for (std::size_t i = 0; i < 4; i += 2) epochs[step / 2].push_back(batch.parts[0][i]->dataset_row);
  }
  for (const auto& epoch : epochs) CHECK(std::set<std::int64_t>(epoch.begin(), epoch.end()).size() == 4);
  CHECK(epochs[0] != epochs[1]);
  CHECK(sampler.steps() == 2);
}

TEST_CASE("an evaluation sampler gives the whole split in one step, and again after its state is put back") {
  Bench bench;
  RolloutsConfig c;
  c.geometry = Geometry::evaluation(7, 1, 4);
  c.shuffle = false;
  c.count_tokens = false;
  Rollouts sampler = bench.sampler(c, 7);
  CHECK(sampler.steps() == 1);
  const nlohmann::ordered_json start = sampler.state();
  std::vector<data::TokenId> first_tokens[2];
  for (std::size_t pass = 0; pass < 2; ++pass) {
    bench.version = static_cast<std::int64_t>(pass);
    const RolloutBatch batch = sampler.next(0);
    REQUIRE(batch.fresh.size() == 1);
    std::int64_t row = 100;
    for (const auto& part : batch.parts)
      for (const data::Episode* r : part) {
        CHECK(r->dataset_row == row++);
        CHECK(r->first().weights_version == bench.version);
        first_tokens[pass].push_back(r->first().completion_ids[0]);
      }
    CHECK(row == 107);
    CHECK(std::isnan(batch.metrics.value("num_tokens")));
    sampler.restore(start);
  }
  CHECK(bench.generator.calls.size() == 2);
  CHECK(first_tokens[0] == first_tokens[1]);  // the same draws
}

namespace {
// What a trainer would write into a fresh generation: values that do not survive a decimal detour by accident.
void train_on(const RolloutBatch& batch) {
  for (const auto& generation : batch.fresh)
    for (std::size_t i = 0; i < generation->episodes.size(); ++i) {
      data::Episode& r = generation->episodes[i];
      r.advantage = i == 0 ? -0.0 : 1.0 / (3.0 + static_cast<double>(i));
      for (std::size_t t = 0; t < r.first().completion_ids.size(); ++t) {
        r.first().old_log_probs.push_back(-1.0F / (7.0F + static_cast<float>(i + t)));
        r.first().reference_log_probs.push_back(-std::numeric_limits<float>::denorm_min());
      }
    }
}

template <class T>
bool same_bytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}
}  // namespace

TEST_CASE("a run resumed from a saved state goes on bit for bit, half-trained generation included") {
  for (const auto& [a, s, mu] : {std::tuple{2, 2, 2}, {2, 3, 1}, {3, 2, 1}, {2, 2, 1}, {1, 2, 3}, {2, 4, 2}})
    for (std::int64_t saved_at = 0; saved_at < 7; ++saved_at) {
      INFO("a " << a << " S " << s << " mu " << mu << " saved after " << saved_at << " steps");
      RolloutsConfig c = config(2, a, s, mu, 2);
      c.shuffle = true;
      Bench straight_bench, first_bench, second_bench;
      Rollouts straight = straight_bench.sampler(c);
      Rollouts first = first_bench.sampler(c);
      Rollouts second = second_bench.sampler(c);
      for (std::int64_t step = 0; step < saved_at; ++step) {
        straight_bench.version = first_bench.version = step;
        train_on(straight.next(step));
        train_on(first.next(step));
      }
      const std::string saved = first.state().dump();
      second.restore(nlohmann::ordered_json::parse(saved));
      CHECK(second.state().dump() == saved);
      for (std::int64_t step = saved_at; step < saved_at + 4; ++step) {
        straight_bench.version = second_bench.version = step;
        const RolloutBatch x = straight.next(step);
        const RolloutBatch y = second.next(step);
        train_on(x);
        train_on(y);
        REQUIRE(x.fresh.size() == y.fresh.size());
        CHECK(x.metrics.values().size() == y.metrics.values().size());
        if (!x.metrics.empty()) CHECK(x.metrics.value("num_tokens") == y.metrics.value("num_tokens"));
        REQUIRE(x.parts.size() == y.parts.size());
        for (std::size_t p = 0; p < x.parts.size(); ++p)
          for (std::size_t i = 0; i < x.parts[p].size(); ++i) {
            const data::Episode& u = *x.parts[p][i];
            const data::Episode& v = *y.parts[p][i];
            CHECK(u.dataset_row == v.dataset_row);
            CHECK(u.prompt == v.prompt);
            CHECK(u.columns == v.columns);
            CHECK(u.first().prompt_ids == v.first().prompt_ids);
            CHECK(u.first().completion_ids == v.first().completion_ids);
            CHECK(same_bytes(u.first().sampling_log_probs, v.first().sampling_log_probs));
            CHECK(same_bytes(u.first().old_log_probs, v.first().old_log_probs));
            CHECK(same_bytes(u.first().reference_log_probs, v.first().reference_log_probs));
            CHECK(same_bytes(u.rewards, v.rewards));
            CHECK(u.first().loss_mask == v.first().loss_mask);
            CHECK(u.first().text == v.first().text);
            CHECK(u.first().finish == v.first().finish);
            CHECK(u.logged == v.logged);
            CHECK(u.first().weights_version == v.first().weights_version);
            CHECK(std::memcmp(&u.advantage, &v.advantage, sizeof(double)) == 0);
          }
      }
    }
}

TEST_CASE("a finished generation is not carried in the state") {
  Bench bench;
  Rollouts sampler = bench.sampler(config(2, 2, 2, 1, 2));
  (void)sampler.next(0);
  CHECK(sampler.state()["generation"].is_null());
  Rollouts replaying = bench.sampler(config(2, 2, 2, 2, 2));
  (void)replaying.next(0);
  CHECK_FALSE(replaying.state()["generation"].is_null());
}

TEST_CASE("a state of another run, or a damaged one, is refused and changes nothing") {
  Bench bench;
  const RolloutsConfig c = config(2, 2, 2, 2, 2);
  Rollouts sampler = bench.sampler(c);
  (void)sampler.next(0);
  const nlohmann::ordered_json good = sampler.state();
  const auto refused = [&](auto&& spoil) {
    nlohmann::ordered_json bad = good;
    spoil(bad);
    Rollouts other = bench.sampler(c);
    const std::string before = other.state().dump();
    CHECK_THROWS_WITH(other.restore(bad), Catch::Contains("[rlalgo.sampler.7]"));
    CHECK(other.state().dump() == before);
  };
  refused([](auto& s) { s["seed"] = 43; });
  refused([](auto& s) { s["prompts"] = 17; });
  refused([](auto& s) { s.erase("num_iterations"); });
  refused([](auto& s) { s.erase("num_tokens"); });
  refused([](auto& s) { s["next_step"] = "three"; });
  refused([](auto& s) { s["generation"]["rollouts"].erase(0); });
  refused([](auto& s) { s["generation"]["rollouts"][0]["row"] = 3; });
  refused([](auto& s) { s["generation"]["rollouts"][0]["completion_ids"] = "A*=="; });
  refused([](auto& s) { s["generation"]["rollouts"][0]["old_log_probs"] = "AAA="; });
  refused([](auto& s) { s["generation"]["rollouts"][0]["rewards"] = ""; });
  refused([](auto& s) { s["generation"]["number"] = -1; });
  refused([](auto& s) { s = nlohmann::ordered_json::array(); });
}

TEST_CASE("a reward with the wrong count is an error, and the step can be tried again") {
  Bench bench;
  auto length = std::make_shared<Length>();
  length->wrong_count = true;
  Rollouts sampler(rlalgo::support::numbered_prompts(4), bench.generator, {{length, 1.0}}, rlalgo::support::decode,
                   config(2, 1, 1, 1, 2), [] { return std::int64_t{0}; });
  CHECK_THROWS_WITH(sampler.next(0), Catch::Contains("[rlalgo.reward.1]") && Catch::Contains("'length'"));
  length->wrong_count = false;
  CHECK(sampler.next(0).metrics.value("num_tokens") == 2 * 2 + 3 + 2);
}

TEST_CASE("a step that fails halfway leaves the sampler as it was") {
  Bench bench;
  auto length = std::make_shared<Length>();
  // Two generations a step: the second one of step 1 fails.
  Rollouts sampler(rlalgo::support::numbered_prompts(8), bench.generator, {{length, 1.0}}, rlalgo::support::decode,
                   config(2, 2, 1, 1, 2), [] { return std::int64_t{0}; });
  (void)sampler.next(0);
  const auto before = sampler.state();
  length->fails_at = length->calls + 2;
  CHECK_THROWS_WITH(sampler.next(1), Catch::Contains("[rlalgo.reward.1]"));
  CHECK(sampler.state() == before);
  const RolloutBatch again = sampler.next(1);
  Rollouts undisturbed(rlalgo::support::numbered_prompts(8), bench.generator, {{length, 1.0}}, rlalgo::support::decode,
                       config(2, 2, 1, 1, 2), [] { return std::int64_t{0}; });
  (void)undisturbed.next(0);
  const RolloutBatch other = undisturbed.next(1);
  CHECK(rows_of(again) == rows_of(other));
  CHECK(again.metrics.value("num_tokens") == other.metrics.value("num_tokens"));
}

namespace {
struct BrokenGenerator {
  static constexpr inference::WeightSource weights = inference::WeightSource::shared;
  int fault = 0;
  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig&, inference::DrawKey) {
    std::vector<std::vector<data::Completion>> out(requests.size(), {completion({1, 0}), completion({1, 0})});
    if (fault == 0) out.pop_back();
    if (fault == 1) out[0].pop_back();
    if (fault == 2) out[0][0].log_probs.pop_back();
    return out;
  }
};
}  // namespace

TEST_CASE("a generator that breaks its contract is an error") {
  for (const int fault : {0, 1, 2}) {
    BrokenGenerator generator{fault};
    sampler::Rollouts<BrokenGenerator> sampler(rlalgo::support::numbered_prompts(4), generator, {},
                                               rlalgo::support::decode, config(4, 1, 1, 1, 2),
                                               [] { return std::int64_t{0}; });
    CHECK_THROWS_WITH(sampler.next(0), Catch::Contains("[rlalgo.sampler.6]"));
  }
}

TEST_CASE("bad geometry and too few prompts are refused when the sampler is made") {
  Bench bench;
  CHECK_THROWS_WITH(bench.sampler(config(4, 1, 1, 1, 3)), Catch::Contains("[rlalgo.sampler.5]"));
  CHECK_THROWS_WITH(bench.sampler(config(8, 1, 1, 1, 2), 3), Catch::Contains("[rlalgo.sampler.1]"));
}

TEST_CASE(
    "completions of several turns: only drawn tokens count, rewards see messages, the last text and what the "
    "environment gave") {
  auto interaction = std::make_shared<data::Interaction>();
  interaction->messages =
      data::Json::parse(R"([{"role": "assistant", "content": "1"}, {"role": "user", "content": "no"},
      {"role": "assistant", "content": "2"}])");
  interaction->last_text = "2";
  interaction->reward = 0.75;
  interaction->turns = 2;
  interaction->has_tools = true;
  interaction->tool_calls = 3;
  interaction->tool_failures = 1;
  data::Completion several = completion({1, 0, 7, 7, 2, 0});
  several.loss_mask = {1, 1, 0, 0, 1, 1};
  several.prompt_ids = {5, 5, 5};
  several.interaction = interaction;
  Bench bench;
  std::vector<std::vector<data::Completion>> answers = table();
  for (auto& row : answers) row = {several, completion({2, 0})};
  bench.generator = TableGenerator(answers);
  RolloutsConfig settings = config(2, 1, 1, 2, 2);
  settings.mask_truncated_completions = true;
  Rollouts sampler = bench.sampler(settings, 2);
  const RolloutBatch batch = sampler.next(0);
  CHECK(bench.generator.calls.at(0).requests.at(0).source != nullptr);
  const data::Episode& row = *batch.parts.at(0).at(0);
  const data::Episode& plain = *batch.parts.at(0).at(1);
  CHECK(row.first().loss_mask == std::vector<std::uint8_t>{1, 1, 0, 0, 1, 1});
  CHECK(row.first().prompt_ids == std::vector<data::TokenId>{5, 5, 5});
  CHECK(batch.metrics.value("completions/mean_length") == 3.0);
  CHECK(batch.metrics.value("completions/max_length") == 4.0);
  CHECK(batch.metrics.value("environment/turns") == 2.0);
  CHECK(batch.metrics.value("tools/call_frequency") == 3.0);
  CHECK(batch.metrics.value("tools/failure_frequency") == Approx(1.0 / 3.0));
  CHECK(batch.metrics.value("num_tokens") == 3.0 + 4.0 + static_cast<double>(plain.first().prompt_ids.size()) + 2.0);
  CHECK(bench.first_token->columns.at(0)["environment_reward"] == 0.75);
  CHECK_FALSE(bench.first_token->columns.at(1).contains("environment_reward"));
  if (row.prompt->is_array()) CHECK(bench.first_token->completions.at(0) == interaction->messages);

  // A half-used generation comes back with the prompt that was continued.
  Rollouts resumed = bench.sampler(settings, 2);
  resumed.restore(data::Json::parse(sampler.state().dump()));
  const RolloutBatch again = resumed.next(1);
  CHECK(again.fresh.empty());
  CHECK(again.parts.at(0).at(0)->first().prompt_ids == std::vector<data::TokenId>{5, 5, 5});
  CHECK(again.parts.at(0).at(0)->first().loss_mask == row.first().loss_mask);
  CHECK(again.parts.at(0).at(1)->first().prompt_ids == plain.first().prompt_ids);

  several.loss_mask.pop_back();
  for (auto& entry : answers) entry = {several};
  bench.generator = TableGenerator(answers);
  Rollouts broken = bench.sampler(settings, 2);
  CHECK_THROWS_WITH(broken.next(0), Catch::Contains("[rlalgo.sampler.6]") && Catch::Contains("mask"));
}
