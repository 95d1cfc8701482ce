#include <algorithm>
#include <cmath>
#include <vector>

#include <support/advantage_cases.hpp>
#include <support/catch.hpp>

#include <rlalgo/advantage/leave_one_out.hpp>

using namespace rlalgo;
using advantage::LeaveOneOut;
using rlalgo::support::none;

TEST_CASE("published leave-one-out advantages") {
  for (const auto& c : rlalgo::support::advantage_cases())
    rlalgo::support::check_close(LeaveOneOut()(c.sums(), c.groups()).advantage, c.leave_one_out);
}

TEST_CASE("published leave-one-out advantages, whitened over the batch") {
  const auto& cases = rlalgo::support::advantage_cases();
  const LeaveOneOut whitened({.normalize = true});
  rlalgo::support::check_close(
      whitened(cases[0].sums(), cases[0].groups()).advantage,
      {1.1783030055, -1.1783030055, -1.1783030055, 1.1783030055, 0, -0.7069818033, 0.9426424044, -0.2356606011});
  rlalgo::support::check_close(
      whitened(cases[2].sums(), cases[2].groups()).advantage,
      {0.9704791099, -1.5393806571, 0, 0.5689015472, 0.7362255317, 0.7362255317, -0.4238874273, -1.0485636360});
}

TEST_CASE("published advantages of rewards with a KL penalty, and of clipped rewards") {
  const std::vector<double> rewards = {1, 0, 0, 1, .5, .2, .9, .4};
  const std::vector<double> kl = {.5, -.2, .1, 0, 1, .4, -.3, .2};
  std::vector<double> penalised, clipped;
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    penalised.push_back(rewards[i] - 0.05 * kl[i]);
    clipped.push_back(std::clamp(rewards[i], 0.3, 0.8));
  }
  const core::Groups groups = core::Groups::uniform(8, 4);
  rlalgo::support::check_close(LeaveOneOut()(penalised, groups).advantage,
                               {0.64, -0.6466666667, -0.6666666667, 0.6733333333, -0.045, -0.405, 0.575, -0.125});
  rlalgo::support::check_close(
      LeaveOneOut()(clipped, groups).advantage,
      {0.3333333333, -0.3333333333, -0.3333333333, 0.3333333333, 0, -0.2666666667, 0.4, -0.1333333333});
}

TEST_CASE("constant groups are exactly 0, whitened or not") {
  for (const bool normalize : {false, true}) {
    const auto estimate =
        LeaveOneOut({.normalize = normalize})(std::vector<double>(14, 3.3), core::Groups::uniform(14, 7));
    for (const double a : estimate.advantage) CHECK(a == 0.0);
    for (const double s : estimate.spread) CHECK(s == 0.0);
  }
}

TEST_CASE("unscorable samples get 0; a group with one scorable sample too") {
  const auto estimate = LeaveOneOut()(std::vector<double>{1, none, 3, none, 7, none}, core::Groups::uniform(6, 3));
  CHECK(estimate.advantage == std::vector<double>{-2, 0, 2, 0, 0, 0});
  CHECK(estimate.spread[0] == Approx(std::sqrt(2.0)));
  CHECK(std::isnan(estimate.spread[3]));
  CHECK(LeaveOneOut()(std::vector<double>{4}, core::Groups::uniform(1, 1)).advantage == std::vector<double>{0});
}
