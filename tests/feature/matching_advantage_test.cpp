#include <rlalgo/feature/matching_advantage.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include <support/catch.hpp>

#include <rlalgo/advantage/pass_through.hpp>
#include <rlalgo/aggregation/any_aggregation.hpp>

using namespace rlalgo;

namespace {

core::RewardTable table(std::vector<std::pair<double, double>> rows, double al = 1.0, double dv = 1.0) {
  core::RewardTable out({"alignment", "diversity"}, {al, -dv}, rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out(i, 0) = rows[i].first;
    out(i, 1) = rows[i].second;
  }
  return out;
}

}  // namespace

TEST_CASE("groups are estimated apart, with both terms weighted") {
  const auto rewards = table({{1.6, .6}, {1.2, .8}, {1.92, 1.4}, {1.0, 0.0}, {1.0, 0.0}}, 2.0, .5);
  core::Groups groups;
  groups.append(3);
  groups.append(2);
  const auto out = feature::MatchingAdvantage<>()(advantage::PassThrough(), rewards, groups);
  REQUIRE(out.advantage.size() == 5);
  CHECK(out.reward[0] == Approx(2 * 1.6 - .5 * .6));
  CHECK(out.reward[0] == Approx(rewards.weighted_sum(0)));
  const auto expected = feature::LeaveOutPairs()(std::vector{3.2, 2.4, 3.84}, std::vector{.3, .4, .7});
  for (std::size_t i = 0; i < 3; ++i) CHECK(out.advantage[i] == Approx(expected[i]));
  CHECK(out.advantage[3] == 0.0);
  CHECK(out.spread[3] == 0.0);
  CHECK(out.spread[0] > 0.0);
}

TEST_CASE("a sample without a reward is not in its group") {
  const double none = std::numeric_limits<double>::quiet_NaN();
  const auto whole = feature::MatchingAdvantage<>()(
      advantage::PassThrough(), table({{1.6, .6}, {1.2, .8}, {1.92, 1.4}}), core::Groups::uniform(3, 3));
  core::Groups groups;
  groups.append(4);
  groups.append(2);
  groups.append(1);
  const auto out = feature::MatchingAdvantage<>()(
      advantage::PassThrough(),
      table({{1.6, .6}, {none, none}, {1.2, .8}, {1.92, 1.4}, {none, none}, {none, none}, {.5, 0.0}}), groups);
  REQUIRE(out.advantage.size() == 7);
  CHECK(std::vector{out.advantage[0], out.advantage[2], out.advantage[3]} == whole.advantage);
  CHECK(out.advantage[1] == 0.0);
  CHECK(std::isnan(out.reward[1]));
  CHECK(out.spread == std::vector{whole.spread[0], whole.spread[0], whole.spread[0], whole.spread[0], 0.0, 0.0, 0.0});
  CHECK((out.advantage[4] == 0.0 && out.advantage[5] == 0.0 && std::isnan(out.reward[5])));
  CHECK(out.reward[6] == .5);
}

TEST_CASE("an estimator that is chosen at run time, behind an erased aggregation") {
  using Any = feature::AnyGroupEstimator;
  const aggregation::AnyAggregation<advantage::PassThrough> any{
      feature::MatchingAdvantage<Any>(Any(feature::Reward()))};
  const auto out = any(advantage::PassThrough(), table({{1.0, .25}, {.5, .5}}), core::Groups::uniform(2, 2));
  CHECK(out.advantage == std::vector{.75, 0.0});
}

TEST_CASE("rewards of another kind") {
  core::RewardTable one({"length"}, {1.0}, 1);
  one(0, 0) = 1.0;
  CHECK_THROWS_WITH(feature::MatchingAdvantage<>()(advantage::PassThrough(), one, core::Groups::uniform(1, 1)),
                    Catch::Contains("[rlalgo.feature.7]"));
}

TEST_CASE("the spread of the advantages of completions") {
  std::vector<data::Episode> episodes(3);
  for (std::size_t i = 0; i < 3; ++i) episodes[i].advantage = static_cast<double>(i);
  const data::EpisodeRow first(episodes[0], episodes[0].first()), second(episodes[1], episodes[1].first()),
      third(episodes[2], episodes[2].first());
  std::vector<const data::EpisodeRow*> rows = {&first, &second, &third};
  core::Metrics metrics;
  feature::add_advantage_spread(rows, metrics);
  CHECK(metrics.value("ebft/advantages_std") == Approx(1.0));
}
