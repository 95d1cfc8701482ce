#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <vector>

#include <support/advantage_cases.hpp>
#include <support/catch.hpp>

#include <rlalgo/advantage/any_estimator.hpp>
#include <rlalgo/advantage/group_relative.hpp>

using namespace rlalgo;
using advantage::GroupRelative;
using advantage::Scale;
using rlalgo::support::none;

namespace {
// The scale is part of the type: Dr. GRPO with the deviation would be another method.
static_assert(!std::same_as<GroupRelative<Scale::none>, GroupRelative<Scale::group>>);

advantage::AnyEstimator scaled_by(Scale scale) {
  if (scale == Scale::batch) return advantage::AnyEstimator(GroupRelative<Scale::batch>());
  if (scale == Scale::none) return advantage::AnyEstimator(GroupRelative<Scale::none>());
  return advantage::AnyEstimator(GroupRelative<>());
}
constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double largest = std::numeric_limits<float>::max();
}  // namespace

TEST_CASE("published group-relative advantages, three scales") {
  for (const auto& c : rlalgo::support::advantage_cases()) {
    const std::vector<double> rewards = c.sums();
    rlalgo::support::check_close(scaled_by(Scale::group)(rewards, c.groups()).advantage, c.group);
    rlalgo::support::check_close(scaled_by(Scale::batch)(rewards, c.groups()).advantage, c.batch);
    rlalgo::support::check_close(scaled_by(Scale::none)(rewards, c.groups()).advantage, c.unscaled);
  }
}

TEST_CASE("the spread is the deviation that scaled a sample") {
  // groups (1, 0) and (2, 2, 2): std₁ √½ and 0; all five: mean 1.4, Σ(x−1.4)² = .16+1.96+3·.36 = 3.2, std₁ √.8
  const std::vector<double> rewards = {1, 0, 2, 2, 2};
  core::Groups groups;
  groups.append(2);
  groups.append(3);
  for (const Scale scale : {Scale::group, Scale::none}) {
    const auto spread = scaled_by(scale)(rewards, groups).spread;
    CHECK(spread[0] == Approx(std::sqrt(0.5)));
    CHECK(spread[1] == spread[0]);
    CHECK(spread[2] == 0.0);
    CHECK(spread[4] == 0.0);
  }
  for (const double spread : scaled_by(Scale::batch)(rewards, groups).spread) CHECK(spread == Approx(std::sqrt(0.8)));
}

TEST_CASE("a constant group has advantage and spread exactly 0") {
  for (const double value : {3.3, 0.1, 1e-3, -7.7}) {
    const std::vector<double> rewards(7, value);
    for (const Scale scale : {Scale::group, Scale::batch, Scale::none}) {
      const auto estimate = scaled_by(scale)(rewards, core::Groups::uniform(7, 7));
      for (const double a : estimate.advantage) CHECK(a == 0.0);
      for (const double s : estimate.spread) CHECK(s == 0.0);
    }
  }
}

TEST_CASE("unscorable samples get 0 and leave the others as if they were absent") {
  const std::vector<double> with = {1, none, 0, 0, none, 3};
  core::Groups groups = core::Groups::uniform(6, 6);
  const std::vector<double> without = {1, 0, 0, 3};
  for (const Scale scale : {Scale::group, Scale::batch, Scale::none}) {
    const auto a = scaled_by(scale)(with, groups).advantage;
    const auto b = scaled_by(scale)(without, core::Groups::uniform(4, 4)).advantage;
    CHECK(a[1] == 0.0);
    CHECK(a[4] == 0.0);
    CHECK(std::vector<double>{a[0], a[2], a[3], a[5]} == b);
  }
}

TEST_CASE("one scorable sample, or none, has advantage 0 and an undefined spread") {
  for (const std::vector<double>& rewards : {std::vector<double>{none, 5, none}, std::vector<double>{none, none, none}})
    for (const Scale scale : {Scale::group, Scale::batch, Scale::none}) {
      const auto estimate = scaled_by(scale)(rewards, core::Groups::uniform(3, 3));
      for (const double a : estimate.advantage) CHECK(a == 0.0);
      for (const double s : estimate.spread) CHECK(std::isnan(s));
    }
}

TEST_CASE("groups of one sample have advantage and spread 0") {
  const auto estimate = GroupRelative<>()(std::vector<double>{1, 2}, core::Groups::uniform(2, 1));
  CHECK(estimate.advantage == std::vector<double>{0, 0});
  CHECK(estimate.spread == std::vector<double>{0, 0});
}

TEST_CASE("infinite rewards never give a non-finite advantage") {
  const std::vector<double> rewards = {1, infinite, 0};
  for (const Scale scale : {Scale::group, Scale::batch, Scale::none})
    for (const double a : scaled_by(scale)(rewards, core::Groups::uniform(3, 3)).advantage) CHECK(std::isfinite(a));
  const auto unscaled = scaled_by(Scale::none)(rewards, core::Groups::uniform(3, 3)).advantage;
  CHECK(unscaled == std::vector<double>{-largest, 0, -largest});
}

TEST_CASE("a permutation inside a group permutes its advantages") {
  const std::vector<double> rewards = {0.3, 1.7, -2.2, 0.9, 5, 5.5, 4.25, 6};
  const std::vector<std::size_t> order = {2, 0, 3, 1, 7, 4, 6, 5};
  std::vector<double> permuted;
  for (const std::size_t i : order) permuted.push_back(rewards[i]);
  for (const Scale scale : {Scale::group, Scale::batch, Scale::none}) {
    const auto a = scaled_by(scale)(rewards, core::Groups::uniform(8, 4)).advantage;
    const auto b = scaled_by(scale)(permuted, core::Groups::uniform(8, 4)).advantage;
    for (std::size_t i = 0; i < order.size(); ++i) CHECK(b[i] == Approx(a[order[i]]).epsilon(1e-13));
  }
}

TEST_CASE("an empty batch has no advantages") { CHECK(GroupRelative<>()({}, core::Groups()).advantage.empty()); }
